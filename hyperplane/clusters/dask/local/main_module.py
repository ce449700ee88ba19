"""Decide whether worker processes run the definitions of the program's main module.

Plain Dask runs the main module again in each worker process, as ``multiprocessing`` does, so that
workers have the classes and registrations of a script. This needs a main guard: without one, a
worker would try to start a cluster too, and fail. This package runs the module in workers only when
the cluster is started inside the guard.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from multiprocessing import spawn
from pathlib import Path
from types import FrameType
from typing import Any


def spawn_preparation() -> dict[str, str]:
    """Return the data with which ``multiprocessing.spawn.prepare`` runs the main module.

    The result is empty if the main module has no file, as in a notebook, or if the call does not
    come from inside its main guard.
    """
    data: dict[str, Any] = spawn.get_preparation_data("")
    main = {name: value for name, value in data.items() if name.startswith("init_main_from_")}
    return main if main and _in_main_guard() else {}


def _in_main_guard() -> bool:
    frame = _main_frame()
    if frame is None:
        return False
    try:
        module = ast.parse(Path(frame.f_code.co_filename).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(first <= frame.f_lineno <= last for first, last in guarded_lines(module))


def _main_frame() -> FrameType | None:
    """Return the frame that runs the main module's file in the main thread."""
    main = sys.modules["__main__"]
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        code = frame.f_code
        if (
            frame.f_globals is vars(main)
            and code.co_name == "<module>"
            and code.co_filename == getattr(main, "__file__", None)
        ):
            return frame
        frame = frame.f_back
    return None


def guarded_lines(module: ast.Module) -> Iterator[tuple[int, int]]:
    r"""Yield first and last lines of the blocks that run only when ``__name__ == "__main__"``.

    Examples
    --------
    >>> text = "x = 1\nif __name__ == '__main__':\n    x = 2\nelse:\n    x = 3\n"
    >>> list(guarded_lines(ast.parse(text)))
    [(3, 3)]
    """
    for statement in module.body:
        if not isinstance(statement, ast.If):
            continue
        operator = _name_comparison(statement.test)
        block = []
        if operator is ast.Eq:
            block = statement.body
        elif operator is ast.NotEq:
            block = statement.orelse
        if block:
            yield block[0].lineno, block[-1].end_lineno or block[-1].lineno


def _name_comparison(test: ast.expr) -> type[ast.cmpop] | None:
    """Return the operator that compares ``__name__`` with ``"__main__"`` in a condition."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    for part in parts:
        if isinstance(part, ast.Compare) and len(part.ops) == 1:
            sides = [part.left, part.comparators[0]]
            names = [side.id for side in sides if isinstance(side, ast.Name)]
            values = [side.value for side in sides if isinstance(side, ast.Constant)]
            if names == ["__name__"] and values == ["__main__"]:
                return type(part.ops[0])
    return None
