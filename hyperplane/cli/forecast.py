"""``hyperplane forecast``: forecast the memory and the time of a job."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import with_request_options
from hyperplane.cli.output import JsonOption, new_table, show, write_json, write_rows
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import stating_outcome

if TYPE_CHECKING:
    from hyperplane.forecasts.measured_advice import MeasuredAdvice

#: Arguments that matter only when a cluster starts and runs; ``--budget`` is that of the sample.
_OF_RUNNING = (
    "budget", "dashboard_port", "idle_timeout", "name", "oom", "preflight",
    "stall_timeout", "timeout",
)  # fmt: skip


@partial(with_request_options, omitted=_OF_RUNNING)
def forecast(
    request: dict[str, Any],
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="A Python program and the name in it of a Dask collection, or of a function that "
            "returns one. Statements under if __name__ == '__main__' are not run.",
        ),
    ],
    budget: Annotated[
        float, typer.Option(help="Share of the work that the sample may take.")
    ] = 0.05,
    confidence: Annotated[
        float, typer.Option(help="Nominal probability that the peak is in the interval.")
    ] = 0.9,
    history: Annotated[
        bool, typer.Option(help="Use the records of earlier runs of the program, if there are any.")
    ] = True,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Also simulate all layouts, of --pool if it is given, and recommend the cheapest "
            "one on which the job fits.",
        ),
    ] = False,
    local: Annotated[
        bool | None,
        typer.Option(
            "--this-machine/--pools",
            help="With --advise: consider layouts of this machine, or of pools. By default it "
            "depends on the engine.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg", help="With --advise: save a picture of time and cost of layouts."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast the memory and the time of a job, from its earlier runs or a sample of its tasks."""
    plan = hyperplane.plan_cluster(**request)
    from hyperplane.forecasts.forecast import forecast_program  # they import Dask
    from hyperplane.forecasts.program import load_collection

    # What the program prints is not part of the document.
    with redirect_stdout(sys.stderr), stating_outcome("nothing was sampled"):
        collection = load_collection(target)
        found = forecast_program(
            collection,
            plan,
            Path(target.rpartition(":")[0]).name,
            budget=budget,
            confidence=confidence,
            history=history and not advise,  # layouts are simulated from a sample
        )
    # A forecast that is refused for its own layout only has advice.
    advice = found.advise(request.get("pool"), local=local) if advise and found.job else None
    if advice is not None and plot is not None:
        _save_picture(advice, plot)
    if as_json:
        write_json({**found.to_dict(), **({} if advice is None else {"advice": advice.to_dict()})})
    else:
        write_rows(found.rows())
        if advice is not None:
            _show_advice(advice)
    if found.refused and advice is None:
        raise typer.Exit(1)


def _show_advice(advice: MeasuredAdvice) -> None:
    typer.echo("\nRecommended:\n")
    write_rows(advice.summary_rows())
    table = new_table((), advice.titles)
    for cells in advice.table():
        table.add_row(*cells)
    typer.echo("\nLayouts on which the job fits:\n")
    show(table)
    typer.echo()
    write_rows(advice.closing_rows())


def _save_picture(advice: MeasuredAdvice, file: Path) -> None:
    try:
        file.write_text(advice.to_svg(), encoding="utf-8")
    except OSError as error:
        raise RequestError([Fault("--plot", str(file), "a writable file", str(error))]) from error
