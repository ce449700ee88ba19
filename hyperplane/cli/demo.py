"""``hyperplane demo``: run a complete job on real data and show each step."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from hyperplane.cli.output import JsonOption, write_json


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the data set and the results.")
    ] = Path("hyperplane-demo"),
    data: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Other data: a path, glob or URL of CSV or Parquet files with the columns of "
            "nycflights13.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Size a cluster for real data, start it, compute, compare with pandas, save and close.

    The data are the 336,776 flights from New York in 2013, written once as Parquet.
    """
    from rich.console import Console

    from hyperplane.demo.run import run
    from hyperplane.demo.show import StepPrinter, show

    if as_json:
        # The lines that the start of a cluster prints are not part of the document.
        with contextlib.redirect_stdout(sys.stderr):
            outcome = run(out, data)
        write_json(outcome.to_dict())
    else:
        console = Console(highlight=False, emoji=False)
        show(run(out, data, StepPrinter(console)), console)
