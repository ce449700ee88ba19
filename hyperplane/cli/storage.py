"""``hyperplane storage``: maintain saved outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

import hyperplane
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.core.errors import Fault, check

app = typer.Typer(no_args_is_help=True, help="Maintain saved outputs.")


@app.command()
def clean(
    urls: Annotated[list[str], typer.Argument(help="Paths or URLs of saved outputs.")],
    older_than: Annotated[
        str,
        typer.Option(
            help="Minimum age of shards, temporary files and files of other machines to remove."
        ),
    ] = "24h",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the file system, such as --option project=mine; may be repeated. A "
            "value may be JSON. Other users of this machine can see the arguments of a command: "
            "pass secrets in the environment variables that the store's library reads.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove leftovers of killed and failed saves; complete a commit that was interrupted."""
    from hyperplane.storage.cleanup import find_age_faults, find_clean_faults  # loads pyarrow

    options, faults = read_options(option or [])
    if faults:  # a store cannot be opened without its options
        check([*faults, *find_age_faults(older_than)])
    for url in urls:
        found = find_clean_faults(url, older_than, storage_options=options)
        faults += [fault for fault in found if fault not in faults]
    check(faults)
    reports = [
        hyperplane.storage.clean(
            url, older_than=older_than, dry_run=dry_run, storage_options=options
        )
        for url in urls
    ]
    allowed = "a path or URL where something was saved; nothing was found"
    missing = [
        Fault("url", repr(report.url), allowed, "check the name")
        for report in reports
        if not report.found
    ]
    cleaned = [report for report in reports if report.found]
    if as_json:
        if not cleaned:
            check(missing)
        write_json([asdict(report) for report in reports])  # a missing name has found: false
        if missing:
            raise typer.Exit(2)
        return
    for report in cleaned:
        typer.echo(str(report))
    if dry_run and cleaned:
        typer.echo("dry run: nothing was removed")
    check(missing)


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return storage options by name, or raise RequestError with all faults."""
    options, faults = read_options(texts)
    check(faults)
    return options


def read_options(texts: Sequence[str]) -> tuple[dict[str, Any], list[Fault]]:
    """Return storage options by name, and faults; these show no values, which may be secrets."""
    options: dict[str, Any] = {}
    faults: list[Fault] = []
    for number, text in enumerate(texts, 1):
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            faults.append(Fault("--option", "", f"number {number} is not KEY=VALUE"))
        elif key in options:
            faults.append(Fault("--option", "", f"{key} is given twice"))
        options[key] = value
        with suppress(ValueError):
            options[key] = json.loads(value)
    return options, faults
