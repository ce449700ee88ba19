"""Functions with the variables that they have when ``transform_shard`` is called."""

from __future__ import annotations

import functools
import sys
from types import CellType, CodeType, FunctionType
from typing import Any


def fix_variables(func: Any) -> Any:
    """Return a function whose variables keep their present values.

    Shards are lazy: without this, a function that is defined in a loop and uses the variable of the
    loop would be called with its last value. The values themselves are not copied.

    Examples
    --------
    >>> functions = [fix_variables(lambda: number) for number in range(3)]
    >>> [function() for function in functions]
    [0, 1, 2]
    """
    if isinstance(func, functools.partial):
        return functools.partial(fix_variables(func.func), *func.args, **func.keywords)
    if type(func) is not FunctionType or _is_importable(func):
        return func
    names = _list_names(func.__code__)
    variables = {name: value for name, value in func.__globals__.items() if name in names}
    variables |= {
        name: func.__globals__[name]
        for name in ("__name__", "__builtins__", "__package__")
        if name in func.__globals__
    }
    cells = tuple(map(_copy_cell, func.__closure__ or ()))
    fixed = FunctionType(func.__code__, variables, func.__name__, func.__defaults__, cells)
    fixed.__kwdefaults__ = func.__kwdefaults__
    fixed.__qualname__ = func.__qualname__
    fixed.__module__ = func.__module__
    fixed.__doc__ = func.__doc__
    fixed.__dict__.update(func.__dict__)
    return fixed


def _is_importable(func: FunctionType) -> bool:
    """Return whether workers import the function by its name."""
    found: Any = sys.modules.get(func.__module__ or "")
    for name in func.__qualname__.split("."):
        found = getattr(found, name, None)
    return func.__module__ != "__main__" and found is func


def _list_names(code: CodeType) -> set[str]:
    """Return the names that a function and the functions in it refer to."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_list_names, inner))


def _copy_cell(cell: CellType) -> CellType:
    try:
        return CellType(cell.cell_contents)
    except ValueError:  # the variable has no value yet
        return cell
