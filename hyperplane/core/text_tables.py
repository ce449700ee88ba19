"""Labeled rows as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from hyperplane.core.html_output import make_output, make_rows

Rows = Iterable[tuple[str, str]]


#: Least characters of the second column; a narrower terminal breaks the lines itself.
_LEAST_WIDTH = 30


def as_text(rows: Rows) -> str:
    """Format rows as two aligned columns of text.

    On a terminal long texts are broken at its width and continue in their column, and a label that
    repeats is written once.

    Examples
    --------
    >>> print(as_text([("data", "100 GB"), ("memory", "800 GB")]))
    data    100 GB
    memory  800 GB
    """
    listed = list(rows)
    width = max((len(label) for label, _ in listed), default=0)
    room = _find_terminal_width() - width - 2
    if room >= _LEAST_WIDTH:
        listed = list(_fold(listed, room))
    return "\n".join(f"{label:<{width}}  {text}" for label, text in listed)


def _fold(rows: Rows, width: int) -> Iterator[tuple[str, str]]:
    """Yield rows whose texts fit into a width, without labels that repeat."""
    previous = None
    for label, text in rows:
        for line in text.splitlines() or [""]:
            for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]:
                yield ("" if label == previous else label), part
                previous = label


def _find_terminal_width() -> int:
    """Return the width of the terminal that standard output is; 0 if it is none."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else 0


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
