"""Find what prevents a function or an object from being sent to another process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any

import cloudpickle

from hyperplane.core.errors import Fault

_ALLOWED = "a function or object that can be sent to"
#: Levels of functions that refer to other functions, in which the variable is searched.
_MAX_DEPTH = 4


def find_pickle_faults(
    where: str, value: Any, args: Sequence[Any] = (), *, receiver: str = "the workers"
) -> list[Fault]:
    """Return a fault for each variable of a function or object that does not pickle.

    ``args`` are the arguments that it will be called with; each of them must pickle, too.
    ``receiver`` is what the message says that they are sent to.

    Examples
    --------
    >>> import threading
    >>> lock = threading.Lock()
    >>> def locked(values):
    ...     return lock.locked()
    >>> [fault.allowed for fault in find_pickle_faults("objective", locked)]  # doctest: +ELLIPSIS
    ["a function or object that can be sent ...; its global variable 'lock' (lock) cannot be ..."]
    """
    faults = []
    reason = _describe_failure(value)
    allowed = f"{_ALLOWED} {receiver}"
    if reason:
        name = getattr(value, "__qualname__", type(value).__name__)
        advice = "create the object inside of the function, or pass what it is made from"
        found = list(dict.fromkeys(_find_variables(value, "", _MAX_DEPTH, set())))
        if not found:
            faults.append(Fault(where, name, allowed, f"{reason}; {advice}"))
        for kind, variable, type_name, why in found:
            problem = f"{allowed}; its {kind} {variable} ({type_name}) cannot be pickled: {why}"
            faults.append(Fault(where, name, problem, advice))
    for number, argument in enumerate(args):
        reason = _describe_failure(argument)
        if reason:
            given = f"an object of type {type(argument).__name__}"
            faults.append(Fault(f"args[{number}]", given, f"a value that can be pickled: {reason}"))
    return faults


def _describe_failure(value: Any) -> str:
    """Return why a value cannot be pickled; empty if it can."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - __reduce__ of any class may run
        return " ".join(str(error).split())[:160] or type(error).__name__
    return ""


def _find_variables(
    func: Any, prefix: str, depth: int, seen: set[int]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, name, type and reason of each variable that does not pickle."""
    if id(func) in seen:
        return
    seen.add(id(func))
    for kind, name, value in _list_variables(func):
        if isinstance(value, ModuleType):
            continue
        reason = _describe_failure(value)
        if not reason:
            continue
        full = f"{prefix}{name}"
        inner = _is_function(value) and depth > 0
        deeper = list(_find_variables(value, f"{full}.", depth - 1, seen)) if inner else []
        if deeper:
            yield from deeper
        else:
            yield kind, repr(full), type(value).__name__, reason


def _is_function(value: Any) -> bool:
    return isinstance(value, functools.partial) or inspect.isroutine(value)


def _list_variables(func: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, name and value of what a function refers to."""
    if isinstance(func, functools.partial):
        yield "function", "func", func.func
        for number, value in enumerate(func.args):
            yield "argument", f"args[{number}]", value
        for name, value in func.keywords.items():
            yield "argument", name, value
        return
    if inspect.ismethod(func):
        yield from _list_attributes(func.__self__)
        func = func.__func__
    if not inspect.isfunction(func):
        yield from _list_attributes(func)
        call: Any = getattr(type(func), "__call__", None)  # noqa: B004 - the method itself
        if inspect.isfunction(call):
            yield "method", "__call__", call
        return
    yield from _list_closure(func)
    for name in _list_global_names(func.__code__):
        if name in func.__globals__:
            yield "global variable", name, func.__globals__[name]
    parameters = inspect.signature(func).parameters.values()
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            yield "default value", parameter.name, parameter.default


def _list_attributes(value: Any) -> Iterator[tuple[str, str, Any]]:
    for name, attribute in getattr(value, "__dict__", {}).items():
        yield "attribute", f"self.{name}", attribute


def _list_closure(func: Callable[..., Any]) -> Iterator[tuple[str, str, Any]]:
    names = func.__code__.co_freevars
    for name, cell in zip(names, func.__closure__ or (), strict=True):
        try:
            yield "variable", name, cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue


def _list_global_names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _list_global_names(constant)
    return list(dict.fromkeys(names))
