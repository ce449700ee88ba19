"""Labeled rows as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable

Rows = Iterable[tuple[str, str]]


def as_text(rows: Rows) -> str:
    """Format rows as two aligned columns of text.

    Examples
    --------
    >>> print(as_text([("data", "100 GB"), ("memory", "800 GB")]))
    data    100 GB
    memory  800 GB
    """
    listed = list(rows)
    width = max((len(label) for label, _ in listed), default=0)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in listed)


def as_html(rows: Rows) -> str:
    """Format rows as an HTML table for Jupyter.

    Examples
    --------
    >>> "&lt; 3</td></tr></table>" in as_html([("nodes", "< 3")])
    True
    """
    left = "style='text-align:left'"
    cells = "".join(
        f"<tr><th {left}>{html.escape(label)}</th><td {left}>{html.escape(text)}</td></tr>"
        for label, text in rows
    )
    return f"<table>{cells}</table>"
