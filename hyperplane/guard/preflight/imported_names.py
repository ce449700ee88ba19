"""Modules that code imports, also inside of functions: read from the code, nothing is imported."""

from __future__ import annotations

import ast
import dis
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

#: Maximum bytes of a source file that is parsed; larger ones are data or generated tables.
_LARGEST_SOURCE = 2_000_000
#: Codes of the instructions after which another one than the next may follow.
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def list_code_imports(code: CodeType, package: str = "", certain: bool = False) -> Iterator[str]:
    """Yield the names of the modules that code and the functions in it import.

    ``from a import b`` yields ``a`` and ``a.b``, which may be a module. ``package`` is the one that
    relative imports start from. With ``certain`` only imports that the code always runs count: not
    those in ``try`` and ``with``, after which it may go on without the module, those after a first
    branch or loop, and those of the functions in it.

    Examples
    --------
    >>> def work():
    ...     from json import decoder
    >>> list(list_code_imports(work.__code__))
    ['json', 'json.decoder']
    """
    pending = [code]
    while pending:
        each = pending.pop()
        if not certain:
            pending += [value for value in each.co_consts if isinstance(value, CodeType)]
        # The two instructions before an import load its level and its list of names, or None.
        level: Any = None
        names: Any = None
        bytecode: Any = dis.Bytecode(each)
        guarded = bytecode.exception_entries if certain else ()
        for instruction in bytecode:
            at = instruction.offset
            if certain and instruction.opcode in _JUMPS:
                break
            if instruction.opname == "IMPORT_NAME":
                if any(entry.start <= at < entry.end for entry in guarded):
                    continue
                yield from _resolve(str(instruction.argval), level, names or (), package)
            elif instruction.opname != "EXTENDED_ARG":
                level, names = names, instruction.argval


def list_file_imports(file: Path, package: str = "") -> tuple[str, ...]:
    """Return the names of the modules that a source file imports; none if it cannot be read.

    Imports for type checkers only do not count.
    """
    try:
        state = file.stat()
    except (OSError, ValueError):
        return ()
    if file.suffix != ".py" or state.st_size > _LARGEST_SOURCE:
        return ()
    return _read_file_imports(file, package, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=10_000)
def _read_file_imports(file: Path, package: str, changed: int, size: int) -> tuple[str, ...]:
    """Parse a file; its time and size are those of the version in the cache."""
    del changed, size
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return tuple(dict.fromkeys(_list_tree_imports(ast.parse(file.read_bytes()), package)))
    return ()


def _list_tree_imports(tree: ast.AST, package: str) -> Iterator[str]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield from _resolve(node.module or "", node.level, names, package)
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            pending += node.orelse
        elif not isinstance(node, ast.expr):  # an import is a statement
            pending += ast.iter_child_nodes(node)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _resolve(name: str, level: int, names: tuple[str, ...], package: str) -> Iterator[str]:
    """Yield the absolute name of an imported module, and those that it may be imported from it."""
    if level:
        try:
            name = importlib.util.resolve_name("." * level + name, package)
        except ImportError:  # beyond the top-level package, or of no package
            return
    if name:
        yield name
        yield from (f"{name}.{each}" for each in names if each != "*")
