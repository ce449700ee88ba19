"""Labeled rows as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hyperplane.core.html_output import make_output, make_rows

Rows = Iterable[tuple[str, str]]


def as_text(rows: Rows) -> str:
    """Format rows as two aligned columns of text, which does not depend on the terminal.

    Examples
    --------
    >>> print(as_text([("data", "100 GB"), ("memory", "800 GB")]))
    data    100 GB
    memory  800 GB
    """
    listed = list(rows)
    width = max((len(label) for label, _ in listed), default=0)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in listed)


def format_columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format cells as aligned columns of text below their titles.

    Examples
    --------
    >>> print(format_columns(("run", "status"), [("nightly #12", "done"), ("b", "failed")]))
    run          status
    nightly #12  done
    b            failed
    """
    lines = [titles, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_html(rows: Rows) -> str:
    """Format rows as an HTML table for Jupyter.

    Examples
    --------
    >>> "&lt; 3</td></tr></table>" in as_html([("nodes", "< 3")])
    True
    """
    return make_output(make_rows(rows))
