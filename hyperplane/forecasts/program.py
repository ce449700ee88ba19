"""Read a collection from a Python program, without running what it guards as its main part."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dask.base import is_dask_collection

from hyperplane.core.errors import Fault, RequestError

#: Name of the module that the program runs as; it is neither ``__main__`` nor importable, so that
#: its functions are sent to the sample by value.
_MODULE = "forecast_program"
_ALLOWED = "FILE.py:NAME, of a collection or of a function without arguments that returns one"


def load_collection(target: str) -> Any:
    """Return the collection that a program defines under a name.

    Parameters
    ----------
    target : str
        Path of the program and name, ``program.py:totals``. The name is of a collection, or of a
        function without arguments that returns one.

    Raises
    ------
    RequestError
        If there is no such file or name, if the program ends with an error, or if the value is no
        collection.
    """
    path, _, name = target.rpartition(":")
    if not path or not name.isidentifier():
        raise _error(target, _ALLOWED)
    file = Path(path)
    if not file.is_file():
        raise _error(target, "the path of an existing Python program before the colon")
    values = _run(file, target)
    if name not in values:
        found = [each for each, value in values.items() if is_dask_collection(value)]
        advice = f"the collections of this program are: {', '.join(found)}" if found else ""
        raise _error(target, f"a name that {file.name} defines", advice)
    value = values[name]
    if callable(value) and not is_dask_collection(value):
        with _errors_as_faults(file, target):
            value = value()
    if not is_dask_collection(value):
        allowed = "the name of a Dask dataframe, array, bag or delayed object, or of a function"
        raise _error(
            target, f"{allowed} that returns one; {name} is of type {type(value).__name__}"
        )
    return value


def _run(file: Path, target: str) -> dict[str, Any]:
    # As Python does for a program; the process of the sample has this path, too.
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _errors_as_faults(file, target):
        return runpy.run_path(str(file), run_name=_MODULE)


@contextmanager
def _errors_as_faults(file: Path, target: str) -> Iterator[None]:
    """Run a part of a program, with its name as the only argument of its command line."""
    former, sys.argv = sys.argv, [str(file)]
    try:
        yield
    except (Exception, SystemExit) as error:
        raise _failure(error, file, target) from error
    finally:
        sys.argv = former


def _failure(error: BaseException, file: Path, target: str) -> RequestError:
    """Return the error of a program that fails, with the last line of it that was running."""
    lines = [frame.lineno for frame in _frames(error) if frame.filename == os.fspath(file)]
    if isinstance(error, SyntaxError) and error.filename == os.fspath(file):
        lines = [error.lineno]
    where = f"line {lines[-1]}: " if lines else ""
    reason = getattr(error, "msg", "") if isinstance(error, SyntaxError) else str(error)
    first = reason.strip().splitlines()[:1]
    text = ": ".join([type(error).__name__, *first])
    advice = "what only the program itself should do belongs under if __name__ == '__main__'"
    return _error(target, f"a program that runs without an error ({where}{text})", advice)


def _frames(error: BaseException) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__)


def _error(target: str, allowed: str, advice: str = "") -> RequestError:
    return RequestError([Fault("target", repr(target)[:200], allowed, advice)])
