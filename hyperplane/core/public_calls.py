"""Decorator of public functions: names of arguments are checked, and errors state the outcome.

An unknown argument raises an error that lists the arguments of the function. The message of a
RequestError can state its outcome, such as ``nothing was saved``. Tracebacks lead to the code of
the user.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar, cast, overload

from hyperplane.core.errors import HyperplaneError, RequestError, UnknownArgument, UnknownName
from hyperplane.core.tracebacks import is_internal, remove_internal_frames

Function = TypeVar("Function", bound=Callable[..., Any])

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Argument names of pandas and Dask -> names of the same arguments in hyperplane.
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
    "python_script_path": ("py_path",),
    "python_path": ("py_path",),
    "bash_path": ("bash_script_path",),
    "script_path": ("py_path", "bash_script_path"),
    "script": ("py_path", "bash_script_path"),
    "notebook": ("notebook_path",),
    "ipynb_path": ("notebook_path",),
}
#: Least similarity of a name, and of each of its words, that is proposed.
_SIMILAR = 0.6
#: Longer names are not compared: the comparison takes quadratic time.
_MAX_NAME_LENGTH = 100
#: Longest value that a message shows, in characters.
_MAX_VALUE_LENGTH = 40
#: Argument names, and texts such as URLs and connection strings, that may contain a secret.
_SECRET = re.compile(r"tok|key|pass|pw|secret|cred|auth|env|sas|sig|conn", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"://|@|&|;.|\w=")


@overload
def check_call(target: Function) -> Function: ...
@overload
def check_call(*, outcome: str) -> Callable[[Function], Function]: ...
def check_call(target: Any = None, *, outcome: str = "") -> Any:
    """Decorate a function or class so that unknown arguments raise :class:`UnknownArgument`.

    Signature, docstring and pickling do not change. A function with ``**options`` checks these
    itself. ``outcome``, such as ``"nothing was saved"``, is added to the message of a RequestError.

    Examples
    --------
    >>> @check_call
    ... def area(width, height): ...
    >>> area(widht=1, height=2)
    Traceback (most recent call last):
    ...
    hyperplane.errors.UnknownArgument: 1 fault in the request:
      1. widht=1: unknown argument of area; did you mean width? expected one of width, height
    """
    if target is None:
        return functools.partial(_wrap, outcome=outcome)
    return _wrap(target, outcome)


def _wrap(target: Any, outcome: str) -> Any:
    if not isinstance(target, type):
        return _wrap_function(target, target.__qualname__, outcome)
    # Named tuples receive their arguments in __new__, dataclasses in __init__.
    method = "__new__" if issubclass(target, tuple) else "__init__"
    setattr(target, method, _wrap_function(getattr(target, method), target.__name__, outcome))
    return target


def _wrap_function(function: Function, title: str, outcome: str) -> Function:
    parameters = inspect.signature(function).parameters.values()
    has_var_keyword = any(each.kind is each.VAR_KEYWORD for each in parameters)
    names = {each.name for each in parameters if each.kind in _NAMED}
    shown = [each.name for each in parameters if each.name in names - {"self", "cls", "_cls"}]
    by_position = [each.name for each in parameters if each.kind in _POSITIONAL]
    has_var_positional = any(each.kind is each.VAR_POSITIONAL for each in parameters)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # IPython and pytest do not show this frame
        if len(args) > len(by_position) and not has_var_positional:
            _refuse_positions(title, [name for name in by_position if name in shown], shown)
        try:
            if not has_var_keyword and not kwargs.keys() <= names:
                unknown = {name: kwargs[name] for name in kwargs if name not in names}
                check_names(unknown, shown, title)
            return function(*args, **kwargs)
        except Exception as error:
            if outcome and isinstance(error, RequestError):
                error.state(outcome)
            remove_internal_frames(error, isinstance(error, HyperplaneError))
            raise
        except KeyboardInterrupt as error:
            remove_internal_frames(error, is_own=True)
            raise

    return cast(Function, wrapper)


def _refuse_positions(title: str, by_position: Sequence[str], known: Sequence[str]) -> None:
    others = [name for name in known if name not in by_position]
    allowed = ", ".join(by_position) or "no argument"
    advice = f"; pass others by name: {', '.join(others)}" if others else ""
    raise TypeError(f"{title} takes by position: {allowed}{advice}")


def check_names(arguments: Mapping[str, Any], known: Iterable[str], function: str) -> None:
    """Raise :class:`UnknownArgument` for all names that are not arguments of a function."""
    names = list(known)
    faults = [
        unknown_name(name, value, names, function)
        for name, value in arguments.items()
        if name not in names
    ]
    if faults:
        raise UnknownArgument(faults)


def unknown_name(
    name: str, value: object, known: Iterable[str], function: str, near: Iterable[str] = ()
) -> UnknownName:
    """Return the fault of an unknown argument; ``near`` overrides the names that are proposed."""
    names = list(known)
    proposed = list(near) or nearest(name, names)
    advice = f"did you mean {' or '.join(proposed)}?" if proposed else ""
    allowed = f"one of {', '.join(names)}" if names else "no argument"
    return UnknownName(
        name[:_MAX_NAME_LENGTH], _format_value(name, value), allowed, advice, function=function
    )


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return at most two known names that resemble a name, start with it or contain it as a word.

    Examples
    --------
    >>> nearest("opration", ["data", "operation"]), nearest("sep", ["encoding", "separator"])
    (['operation'], ['separator'])
    >>> nearest("name", ["dask_cluster_name"])
    ['dask_cluster_name']
    >>> nearest("api_key", ["api_token"])  # another word
    []
    """
    if len(name) > _MAX_NAME_LENGTH:
        return []
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    low = name.lower()
    equivalents = [other for other in _EQUIVALENTS.get(low, ()) if other in by_lower_case]
    if equivalents:
        return equivalents
    similar = (other for other in by_lower_case if has_similar_words(low, other))
    matches = difflib.get_close_matches(low, similar, n=2, cutoff=_SIMILAR)
    if not matches and len(low) > 2:
        matches = [
            other for other in by_lower_case if other.startswith(low) or low in other.split("_")
        ][:2]
    return [by_lower_case[match] for match in matches]


def has_similar_words(name: str, other: str) -> bool:
    """Return whether each word of two names resembles the other's, if they have as many words.

    A common word, as in ``api_key`` and ``api_token``, is no sign of a misspelling.

    Examples
    --------
    >>> has_similar_words("max_retry", "max_retries"), has_similar_words("bash_path", "js_path")
    (True, False)
    """
    words, others = name.split("_"), other.split("_")
    if len(words) != len(others) or len(words) == 1:
        return True
    return all(
        sorted(one) == sorted(two)  # two letters in another order, such as no and on
        or difflib.SequenceMatcher(None, one, two).ratio() >= _SIMILAR
        for one, two in zip(words, others, strict=True)
    )


def _format_value(name: str, value: object) -> str:
    """Format None, a number or a short text without secrets; other values as their type."""
    kind = type(value)  # only built-in types: repr of a user's class may fail
    is_text = kind is str and not may_be_secret(name, value)
    if value is None or kind in (bool, int, float) or is_text:
        with contextlib.suppress(ValueError):  # repr of an integer with thousands of digits
            text = repr(value)
            if len(text) <= _MAX_VALUE_LENGTH:
                return text
    return f"<{kind.__name__}>"


def may_be_secret(name: str, value: object = None) -> bool:
    """Return whether a value may contain a secret, such as a password, a key or a URL with one."""
    is_secret_text = isinstance(value, str) and _SECRET_TEXT.search(value)
    return bool(_SECRET.search(name) or is_secret_text)


@contextlib.contextmanager
def stating_outcome(outcome: str) -> Iterator[None]:
    """Add an outcome to RequestErrors of this block; the outermost block overrides inner ones."""
    try:
        yield
    except RequestError as error:
        if outcome:
            error.state(outcome)
        raise


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the nearest caller outside this package."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and is_internal(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level - (frame is None))
