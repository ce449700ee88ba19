"""Format values and paths in messages, and suggest similar names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

#: Maximum length of a compared name, and maximum known names: a comparison takes quadratic time.
_MAX_LENGTH, _MAX_CANDIDATES = 200, 500
#: Maximum characters of a value in a message.
_MAX_SHOWN = 80


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known names; empty if none is similar.

    Examples
    --------
    >>> suggest_names("depend_on", ["depends_on", "name"])
    'did you mean depends_on?'
    """
    if len(name) > _MAX_LENGTH:
        return ""
    candidates = [
        candidate for candidate in islice(known, _MAX_CANDIDATES) if len(candidate) <= _MAX_LENGTH
    ]
    matches = difflib.get_close_matches(name, candidates, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(matches)}?" if matches else ""


def format_value(value: object) -> str:
    """Format a value for a message: quoted if text, on one line, shortened.

    Examples
    --------
    >>> print(format_value("it"), len(format_value("x" * 1000)))
    'it' 80
    """
    text = repr(value[:_MAX_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def format_path(where: str, sequence: str) -> str:
    """Convert a dotted path to indexing syntax; a leading number is an index of ``sequence``.

    Examples
    --------
    >>> format_path("2.depends_on.0", "tasks"), format_path("requirements", "tasks")
    ('tasks[2].depends_on[0]', 'requirements')
    """
    first, *rest = where.split(".")
    text = f"{sequence}[{first}]" if first.isdecimal() else first
    return text + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in rest)
