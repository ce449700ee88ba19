"""Checks of arguments that are booleans or one of a few strings."""

from __future__ import annotations

from collections.abc import Iterable

from hyperplane.core.errors import Fault


def find_flag_faults(**flags: object) -> list[Fault]:
    """Return a fault for each argument that is neither True nor False.

    Without this check the string ``"no"`` would count as true.

    Examples
    --------
    >>> [fault.allowed for fault in find_flag_faults(utc="no", dayfirst=False)]
    ['True or False']
    """
    return [
        Fault(where, repr(value)[:80], "True or False")
        for where, value in flags.items()
        if not isinstance(value, bool)
    ]


def is_one_of(value: object, choices: Iterable[str | None]) -> bool:
    """Return whether a value is one of the choices, which are strings or None.

    Other values are never compared: ``==`` of an array or a dataframe returns no boolean.

    Examples
    --------
    >>> is_one_of("left", ("left", "right", None)), is_one_of([1], ("left", "right"))
    (True, False)
    """
    return (value is None or isinstance(value, str)) and value in tuple(choices)
