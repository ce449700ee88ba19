"""Arguments that are true or false."""

from __future__ import annotations

from collections.abc import Iterable

from hyperplane.errors import Fault


def find_flag_faults(**given: object) -> list[Fault]:
    """A fault for each argument that is neither True nor False: the text ``"no"`` is true.

    Examples
    --------
    >>> print(*flag_faults(utc="no", dayfirst=False))
    utc = 'no': allowed is True or False
    """
    return [
        Fault(where, repr(value)[:80], "True or False")
        for where, value in given.items()
        if not isinstance(value, bool)
    ]


def is_one_of(value: object, choices: Iterable[str | None]) -> bool:
    """Whether a value is one of some words, or None where that is one of them.

    What is neither text nor None is none of them: arrays and frames cannot be compared.

    Examples
    --------
    >>> is_one_of("left", ("left", "right", None)), is_one_of([1], ("left", "right"))
    (True, False)
    """
    return (value is None or isinstance(value, str)) and value in tuple(choices)
