"""Arguments that are true or false."""

from __future__ import annotations

from hyperplane.errors import Fault


def flag_faults(**given: object) -> list[Fault]:
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
