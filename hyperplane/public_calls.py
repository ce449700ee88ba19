"""Checks that every public function makes of its call, before its own body runs.

A misspelt argument is an error that names the function's own arguments, and an error of the request
says what was not done.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, TypeVar, cast, overload

from hyperplane.errors import RequestError, UnknownArgument, UnknownName

Function = TypeVar("Function", bound=Callable[..., Any])

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
#: Arguments of pandas and Dask, and what they are called by the functions here that have them.
_EQUIVALENTS = {
    "usecols": ("columns",),
    "sep": ("separator",),
    "delimiter": ("separator",),
    "dtype": ("dtypes",),
    "header": ("names",),
    "blocksize": ("partition_size",),
    "path": ("urls", "url"),
    "paths": ("urls", "url"),
    "filepath_or_buffer": ("urls", "url"),
    "on_bad_lines": ("on_error",),
    "freq": ("every",),
    "n_workers": ("num_workers",),
    "processes": ("nprocs",),
    "threads_per_worker": ("nthreads",),
    "memory_limit": ("ram_gb_per_proc",),
    "cores": ("cores_per_worker",),
    "dashboard_address": ("dashboard_port",),
}
#: The comparison of names takes time by the square of their lengths.
_MAX_NAME_LENGTH = 100
#: Characters of a value that a message shows.
_MAX_VALUE_LENGTH = 40
#: Names of arguments, and texts such as URLs and connection strings, that may hold a secret.
_SECRET = re.compile(r"tok|key|pass|pw|secret|cred|auth|env|sas|sig|conn", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"://|@|&|;.|\w=")


@overload
def check_call(target: Function) -> Function: ...
@overload
def check_call(*, outcome: str) -> Callable[[Function], Function]: ...
def check_call(target: Any = None, *, outcome: str = "") -> Any:
    """Make a function or class refuse arguments that it does not have, with their nearest names.

    Signature, docstring and pickling stay as they are. A function that collects other arguments
    (``**options``) checks these itself.

    Parameters
    ----------
    target : callable
        A function, or a class, whose constructor is checked.
    outcome : str
        What did not happen when the request has a fault, such as ``"nothing was saved"``.

    Examples
    --------
    >>> @check_call
    ... def area(width, height): ...
    >>> area(widht=1, height=2)
    Traceback (most recent call last):
    ...
    hyperplane.errors.UnknownArgument: 1 fault in the request:
      1. widht=1: unknown argument of area; did you mean width? allowed is one of width, height
    """
    if target is None:
        return functools.partial(_wrap, outcome=outcome)
    return _wrap(target, outcome)


def _wrap(target: Any, outcome: str) -> Any:
    if not isinstance(target, type):
        return _wrap_function(target, target.__qualname__, outcome)
    # A named tuple is made by __new__, a dataclass by __init__.
    maker = "__new__" if issubclass(target, tuple) else "__init__"
    setattr(target, maker, _wrap_function(getattr(target, maker), target.__name__, outcome))
    return target


def _wrap_function(function: Function, title: str, outcome: str) -> Function:
    parameters = inspect.signature(function).parameters.values()
    takes_others = any(each.kind is each.VAR_KEYWORD for each in parameters)
    names = {each.name for each in parameters if each.kind in _NAMED}
    shown = [each.name for each in parameters if each.name in names - {"self", "cls", "_cls"}]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not takes_others and not kwargs.keys() <= names:
            unknown = {name: kwargs[name] for name in kwargs if name not in names}
            check_names(unknown, shown, title, outcome)
        if not outcome:
            return function(*args, **kwargs)
        with stating_outcome(outcome):
            return function(*args, **kwargs)

    return cast(Function, wrapper)


def check_names(
    given: Mapping[str, Any], known: Iterable[str], function: str, outcome: str = ""
) -> None:
    """Raise :class:`UnknownArgument` with all names that are no arguments of a function."""
    names = list(known)
    faults = [
        unknown_name(name, value, names, function)
        for name, value in given.items()
        if name not in names
    ]
    if faults:
        with stating_outcome(outcome):
            raise UnknownArgument(faults)


def unknown_name(
    name: str, value: object, known: Iterable[str], function: str, near: Iterable[str] = ()
) -> UnknownName:
    """The fault of an argument that a function does not have; ``near`` overrides the nearest."""
    names = list(known)
    found = list(near) or nearest(name, names)
    advice = f"did you mean {' or '.join(found)}?" if found else ""
    allowed = f"one of {', '.join(names)}" if names else "no argument"
    return UnknownName(
        name[:_MAX_NAME_LENGTH], _format_value(name, value), allowed, advice, function=function
    )


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most two known names that are spelt like a name, begin as it does, or have it as a word.

    Examples
    --------
    >>> nearest("opration", ["data", "operation"]), nearest("sep", ["encoding", "separator"])
    (['operation'], ['separator'])
    >>> nearest("name", ["dask_cluster_name"])
    ['dask_cluster_name']
    """
    if len(name) > _MAX_NAME_LENGTH:
        return []
    names = {one.lower(): one for one in known}
    low = name.lower()
    ours = [one for one in _EQUIVALENTS.get(low, ()) if one in names]
    if ours:
        return ours
    found = difflib.get_close_matches(low, names, n=2, cutoff=0.6)
    if not found and len(low) > 2:
        found = [one for one in names if one.startswith(low) or low in one.split("_")][:2]
    return [names[one] for one in found]


def _format_value(name: str, value: object) -> str:
    """A value for a message; of text that may be a secret, and of large objects, the type only."""
    kind = type(value)  # a class of the program's own may fail in repr
    is_text = kind is str and not may_be_secret(name, value)
    if value is None or kind in (bool, int, float) or is_text:
        with contextlib.suppress(ValueError):  # of a whole number with thousands of digits
            text = repr(value)
            if len(text) <= _MAX_VALUE_LENGTH:
                return text
    return f"<{kind.__name__}>"


def may_be_secret(name: str, value: object = None) -> bool:
    """Whether a message must not show a value: a password, a key, a URL that may have one."""
    is_secret_text = isinstance(value, str) and _SECRET_TEXT.search(value)
    return bool(_SECRET.search(name) or is_secret_text)


@contextlib.contextmanager
def stating_outcome(outcome: str) -> Iterator[None]:
    """Add to an error of the request what was not done; the outermost call knows it best."""
    try:
        yield
    except RequestError as error:
        if outcome:
            error.state(outcome)
        raise


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of this package from which it was called."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level - (frame is None))


def _is_internal(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "hyperplane"
