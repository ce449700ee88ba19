"""Output of the commands: tables, JSON documents and errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hyperplane.core.errors import ConfigError, HyperplaneError, RequestError

#: Key of the typer context that holds ``--json``, for the output of errors.
JSON_REQUESTED = "hyperplane.cli.json"

_STYLES = {"warning": "yellow", "note": "yellow"}
#: Characters between two columns of a table.
_BETWEEN = 2


def _record_json(context: typer.Context, value: bool) -> bool:
    context.meta[JSON_REQUESTED] = value
    return value


JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=_record_json,
        is_eager=True,
        help="Print one JSON document instead of text, also for an error.",
    ),
]


def new_table(texts: Iterable[str], numbers: Iterable[str]) -> Table:
    """Return a table with left-aligned text columns, then right-aligned number columns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for title in texts:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def fit_texts(table: Table, floors: Sequence[int]) -> int:
    """Fix the widths of the columns so that only the first ones are folded; return the width.

    Rich makes all columns of a narrow terminal narrower, and cuts those of numbers.

    Parameters
    ----------
    table : Table
        The table, with all rows. Its first columns are texts.
    floors : sequence of int
        Least width of each of these, if its texts are that long, and that of its title. The others
        have the width of their longest cell.
    """
    needs = [max(map(cell_len, [str(column.header), *map(str, column.cells)]))
             for column in table.columns]  # fmt: skip
    titles = [cell_len(str(column.header)) for column in table.columns[: len(floors)]]
    widths = [*map(min, needs, map(max, floors, titles)), *needs[len(floors) :]]
    total = sum(widths) + _BETWEEN * (len(widths) - 1)
    spare = Console().width - total
    while spare > 0:
        narrow = [number for number in range(len(floors)) if widths[number] < needs[number]]
        if not narrow:
            break
        widths[min(narrow, key=widths.__getitem__)] += 1
        spare, total = spare - 1, total + 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    return total


def show(table: Table, min_width: int = 0) -> None:
    """Print a table as wide as the terminal, at least ``min_width``, without trailing spaces."""
    # No markup, as a path may contain text that rich would interpret as markup.
    console = Console(markup=False, highlight=False, emoji=False)
    console.width = max(console.width, min_width)
    with console.capture() as captured:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n"))


def write_json(document: Any) -> None:
    """Print the JSON document of a command."""
    typer.echo(json.dumps(document, indent=2))


def write_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print labels and texts in two columns; a label that repeats is printed once."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    previous = None
    for label, text in rows:
        new_label = "" if label == previous else label
        grid.add_row(Text(new_label, style=_STYLES.get(label, "bold")), text)
        previous = label
    show(grid)


def write_error(error: HyperplaneError, *, as_json: bool) -> None:
    """Print an error on standard error and, with ``as_json``, a document on standard output.

    The document is ``{"error": message, "faults": [...]}``. Each fault has ``where``, ``asked``,
    ``allowed``, ``advice`` and ``source``; only errors of a request or configuration have faults.
    """
    if as_json:
        faults = getattr(error, "faults", ())
        write_json({"error": str(error), "faults": [asdict(fault) for fault in faults]})
    typer.echo(str(error), err=True)


def exit_code(error: HyperplaneError) -> int:
    """Return 2 for an invalid request or configuration, 1 for any other error."""
    return 2 if isinstance(error, RequestError | ConfigError) else 1
