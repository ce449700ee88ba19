"""``hyperplane preflight``: check a plan, its data and its output before a start."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import with_request_options
from hyperplane.cli.output import JsonOption, write_json, write_rows


@partial(with_request_options, omitted=["preflight"])
def preflight(
    request: dict[str, Any],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Path or URL that the job reads; may be repeated."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", help="Path or URL that the job writes.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a plan, its data and its output within 5 seconds, without starting anything.

    Exit code: 1 if the start or the job would certainly fail.
    """
    plan = hyperplane.plan_cluster(**request)
    report = hyperplane.preflight(plan, data=data or None, output=output)
    if as_json:
        write_json(report.to_dict())
    else:
        write_rows(report.rows())
    if report.faults:
        raise typer.Exit(1)
