"""Arguments as users of other readers write them, and what they are here."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from hyperplane.collections.frames.sources.filters import near
from hyperplane.errors import Fault, RequestError
from hyperplane.units import is_iterable

P = ParamSpec("P")
R = TypeVar("R")

#: What the arguments of pandas and of Dask are called here.
_ELSEWHERE = {
    "usecols": "columns",
    "sep": "separator",
    "delimiter": "separator",
    "dtype": "dtypes",
    "header": "names",
    "blocksize": "partition_size",
    "paths": "urls",
    "path": "urls",
    "filepath_or_buffer": "urls",
    "on_bad_lines": "on_error",
}


def friendly(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function answer unknown keywords with a fault for each, and the name to use.

    Parameters
    ----------
    function : callable
        Without ``**`` among its parameters.
    """
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        unknown = [name for name in kwargs if name not in known]
        if unknown:
            raise RequestError([_unknown(name, kwargs[name], known) for name in unknown])
        return function(*args, **kwargs)

    return checked


def _unknown(name: str, value: object, known: list[str]) -> Fault:
    # Not the value of what may be meant as a store's option: such are secrets.
    asked = repr(value)[:80] if name in _ELSEWHERE else f"a {type(value).__name__}"
    advice = near(name, known) or f"there are {', '.join(known)}"
    if name in _ELSEWHERE:
        advice = f"did you mean {_ELSEWHERE[name]}=?"
    return Fault(name, asked, "no such argument", advice)


def places_faults(urls: Any) -> list[Fault]:
    """One fault for what is rows already and not the places of files."""
    if isinstance(urls, (str, os.PathLike)) or not is_iterable(urls):
        return []
    if not (hasattr(urls, "columns") or hasattr(urls, "dtype") or hasattr(urls, "schema")):
        return []
    allowed = "a path, glob or URL, or a list of them"
    advice = (
        "it holds rows already: leave read out, or for a pandas frame write "
        "dask.dataframe.from_pandas(df, npartitions=...)"
    )
    return [Fault("urls", f"a {type(urls).__name__}", allowed, advice)]
