"""``hyperplane size``: compute the size of the cluster for a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import hyperplane
from hyperplane.cli.output import JsonOption, new_table, show, write_json, write_rows
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need
from hyperplane.core.units import format_bytes, format_number

if TYPE_CHECKING:
    from hyperplane import SizingAdvice
    from hyperplane.sizing.recommend import Basis, Tasks


def size(
    data: Annotated[
        str,
        typer.Argument(
            help="Size of the uncompressed data, such as 100GB or a number of GB; or a path, glob "
            "or URL to measure."
        ),
    ],
    operation: Annotated[
        str | None,
        typer.Option(
            help="light, medium or heavy, or the name of an operation such as groupby or join. "
            "Default: medium."
        ),
    ] = None,
    tasks: Annotated[
        str, typer.Option(metavar="light|heavy", help="Use heavy for a job with many tasks.")
    ] = "light",
    basis: Annotated[
        str,
        typer.Option(
            metavar="allocatable|nominal",
            help="Divide by the allocatable or the nominal memory of a node.",
        ),
    ] = "allocatable",
    pool: Annotated[
        str | None, typer.Option(help="Use this pool instead of the one that the rules choose.")
    ] = None,
    moves_data: Annotated[
        bool,
        typer.Option(
            "--moves-data/--stays-put", help="Whether the job sorts, shuffles or moves data."
        ),
    ] = True,
    pieces: Annotated[
        int | None, typer.Option(help="Divide the data into this number of jobs.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png", help="Save a plot of the needed and the allocatable memory."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the size of the cluster that a job needs, with the reasons."""
    advice = hyperplane.size_cluster(
        data,
        operation,
        cast("Tasks", tasks),  # size_cluster validates both
        basis=cast("Basis", basis),
        pool=pool,
        moves_data=moves_data,
        pieces=pieces,
    )
    if plot is not None:
        _save_plot(advice, plot)
    if as_json:
        write_json(advice.to_dict())
    else:
        _show(advice)


def _show(advice: SizingAdvice) -> None:
    write_rows(row for row in advice.rows() if row[0] != "instead")
    priced = any(other.cost_per_hour is not None for other in advice.alternatives)
    numbers = ("nodes", "processes", "threads", "memory", *["per hour"] * priced)
    table = new_table(["pool"], numbers)
    for other in advice.alternatives:
        cost = other.cost_per_hour
        table.add_row(
            other.pool.name,
            str(other.nodes),
            str(other.nodes * other.worker.nprocs),
            str(other.total_threads),
            format_bytes(other.total_ram),
            *["" if cost is None else format_number(cost)] * priced,
        )
    typer.echo("\nThe same on other pools:\n")
    show(table)


def _save_plot(advice: SizingAdvice, file: Path) -> None:
    # A backend without windows: there may be no display.
    need("matplotlib", "plot").use("agg")
    figure: Any = advice.plot().figure
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        allowed = "a writable file of a type that matplotlib supports"
        raise RequestError([Fault("--plot", str(file), allowed, str(error))]) from error
    finally:
        need("matplotlib.pyplot", "plot").close(figure)
