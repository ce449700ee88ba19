"""Names and time limits as schedulers and programs of the system read them."""

from __future__ import annotations

import re


def slug(name: str, max_length: int) -> str:
    """Convert a name to letters, digits and dashes, which every scheduler allows; may be empty.

    Examples
    --------
    >>> slug("Übung 1: x; rm -rf /", 63)
    'bung-1-x-rm-rf'
    """
    return re.sub("[^A-Za-z0-9]+", "-", name).strip("-")[:max_length].strip("-")


def format_limit(seconds: float) -> str:
    """Return a time limit as the program ``timeout`` reads it, in which 0 would be no limit.

    Examples
    --------
    >>> format_limit(600.0), format_limit(1.5), format_limit(1e-9)
    ('600', '1.5', '0.001')
    """
    return f"{max(seconds, 0.001):.3f}".rstrip("0").rstrip(".")
