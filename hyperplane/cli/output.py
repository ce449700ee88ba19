"""What the commands write: tables for people, one JSON document for programs, errors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hyperplane.errors import ConfigError, HyperplaneError, RequestError

#: Where a command notes that ``--json`` was given, for the one place that writes errors.
JSON_ASKED = "hyperplane.cli.json"

_STYLES = {"warning": "yellow", "note": "yellow"}


def _note_json(context: typer.Context, value: bool) -> bool:
    context.meta[JSON_ASKED] = value
    return value


JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=_note_json,
        is_eager=True,
        help="Print one JSON document and nothing else; an error is one too, "
        "with its message on standard error.",
    ),
]


def new_table(texts: Iterable[str], numbers: Iterable[str]) -> Table:
    """A table with these columns, texts to the left and numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for title in texts:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def show(table: Table) -> None:
    """Print a table, as wide as the terminal and without the blanks that rich fills lines with."""
    # Values are shown as they stand: a path may hold what rich takes for markup.
    console = Console(markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n"))


def write_json(document: Any) -> None:
    """Print the one document of a command."""
    typer.echo(json.dumps(document, indent=2))


def write_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print labels and texts in two columns; a label that repeats is shown once."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    before = None
    for label, text in rows:
        shown = "" if label == before else label
        grid.add_row(Text(shown, style=_STYLES.get(label, "bold")), text)
        before = label
    show(grid)


def write_error(error: HyperplaneError, *, as_json: bool) -> None:
    """Print an error: its message on standard error and, if asked, a document on standard output.

    The document is ``{"error": message, "faults": [...]}``. Each fault has ``where``, ``asked``,
    ``allowed``, ``advice`` and ``source``; errors that are no faults of the request have none.
    """
    if as_json:
        faults = getattr(error, "faults", ())
        write_json({"error": str(error), "faults": [asdict(fault) for fault in faults]})
    typer.echo(str(error), err=True)


def exit_code(error: HyperplaneError) -> int:
    """2 for what cannot be asked, 1 for what failed."""
    return 2 if isinstance(error, RequestError | ConfigError) else 1
