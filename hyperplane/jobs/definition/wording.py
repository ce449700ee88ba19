"""How faults say where they are, and which names somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

#: The comparison takes time by the square of lengths, and nobody's name is this long.
_MAX_LENGTH, _MAX_CANDIDATES = 200, 500
#: Characters of a value that a message shows.
_MAX_SHOWN = 80


def suggest_names(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of the known names; empty when none is near.

    Examples
    --------
    >>> did_you_mean("depend_on", ["depends_on", "name"])
    'did you mean depends_on?'
    """
    if len(name) > _MAX_LENGTH:
        return ""
    candidates = [one for one in islice(known, _MAX_CANDIDATES) if len(one) <= _MAX_LENGTH]
    near = difflib.get_close_matches(name, candidates, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


def format_value(value: object) -> str:
    """A value for a message: in quotes if it is text, on one line, and not too long.

    Examples
    --------
    >>> print(format_value("it"), len(format_value("x" * 1000)))
    'it' 80
    """
    text = repr(value[:_MAX_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def format_path(where: str, sequence: str) -> str:
    """The place of a fault as one writes it, from a path with dots.

    Parameters
    ----------
    where : str
        A path such as ``"2.depends_on.0"``; a number in front is the index of a step.
    sequence : str
        What the steps are called.

    Returns
    -------
    str

    Examples
    --------
    >>> spelled("2.depends_on.0", "tasks"), spelled("requirements", "tasks")
    ('tasks[2].depends_on[0]', 'requirements')
    """
    first, *rest = where.split(".")
    text = f"{sequence}[{first}]" if first.isdecimal() else first
    return text + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in rest)
