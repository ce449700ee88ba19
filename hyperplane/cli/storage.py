"""``hyperplane storage``: what lies beside what was saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import hyperplane
from hyperplane.cli.output import JsonOption, write_json

app = typer.Typer(no_args_is_help=True, help="Look after what was saved.")


@app.command()
def clean(
    urls: Annotated[list[str], typer.Argument(help="Paths or URLs that were saved to.")],
    older_than: Annotated[
        str, typer.Option(help="Age from which files of other machines are leftovers.")
    ] = "24h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what killed runs left, and finish what one had published."""
    found = [hyperplane.storage.clean(url, older_than=older_than, dry_run=dry_run) for url in urls]
    if as_json:
        write_json([asdict(one) for one in found])
        return
    for one in found:
        typer.echo(str(one))
