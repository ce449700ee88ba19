"""``hyperplane storage``: what lies beside what was saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

import hyperplane
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.errors import Fault, check

app = typer.Typer(no_args_is_help=True, help="Look after what was saved.")


@app.command()
def clean(
    urls: Annotated[list[str], typer.Argument(help="Paths or URLs that were saved to.")],
    older_than: Annotated[
        str, typer.Option(help="Age from which files of other machines are leftovers.")
    ] = "24h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="For the file system, as --option project=mine; several times for several. A "
            "value may be JSON. Others on this machine can see the arguments of a command: give "
            "secrets in the environment variables that the store's library reads.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what killed runs left, and finish what one had published."""
    options = _options(option or [])
    found = [
        hyperplane.storage.clean(
            url, older_than=older_than, dry_run=dry_run, storage_options=options
        )
        for url in urls
    ]
    if as_json:
        write_json([asdict(one) for one in found])
        return
    for one in found:
        typer.echo(str(one))


def _options(given: Sequence[str]) -> dict[str, Any]:
    """Storage options by their names; faults say the names only, since a value may be a secret."""
    options: dict[str, Any] = {}
    faults = []
    for number, text in enumerate(given, 1):
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            faults.append(Fault("--option", f"number {number}", "KEY=VALUE"))
        elif key in options:
            faults.append(Fault("--option", f"{key} twice", "each once"))
        options[key] = value
        with suppress(ValueError):
            options[key] = json.loads(value)
    check(faults)
    return options
