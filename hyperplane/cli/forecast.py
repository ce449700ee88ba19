"""``hyperplane forecast``: forecast the memory and the time of a job."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import with_request_options
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.core.public_calls import stating_outcome

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
            history=history,
        )
    if as_json:
        write_json(found.to_dict())
    else:
        write_rows(found.rows())
    if found.refused:
        raise typer.Exit(1)
