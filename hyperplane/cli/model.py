"""``hyperplane model``: the registry of models."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from hyperplane.cli.option_names import OptionCommand
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.cli.storage import parse_options

app = typer.Typer(no_args_is_help=True, help="Names and versions of saved models.")

_Registry = Annotated[str, typer.Option(help="Folder or URL of the registry.")]
_Name = Annotated[str, typer.Argument(help="Name of the model.")]
_Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="Option of the file system; may be repeated. See storage.",
    ),
]


@app.command("list", cls=OptionCommand)
def list_models(
    registry: _Registry,
    name: Annotated[str | None, typer.Argument(help="Only versions of this model.")] = None,
    option: _Options = None,
    as_json: JsonOption = False,
) -> None:
    """List models and their versions."""
    versions = _open(registry, option).list_versions(name)
    if as_json:
        write_json([asdict(version) for version in versions])
        return
    if not versions:
        typer.echo(f"no models in {registry}; hyperplane model create adds one", err=True)
        return
    table = new_table(["model", "version", "default", "framework", "created"], ["columns"])
    for version in versions:
        columns = "" if version.columns is None else str(len(version.columns))
        default = "yes" if version.is_default else ""
        table.add_row(
            version.name, version.version, default, version.framework, version.created, columns
        )
    show(table)


@app.command(cls=OptionCommand)
def create(
    name: _Name,
    model: Annotated[str, typer.Argument(help="File or folder of the saved model.")],
    registry: _Registry,
    version: Annotated[
        str | None, typer.Option(help="Name of the version; v1, v2 and so on by default.")
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Make it the default version.")
    ] = False,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Load a model that can run code of its author.")
    ] = False,
    option: _Options = None,
    as_json: JsonOption = False,
) -> None:
    """Create a version of a model; the first one becomes the default."""
    created = _open(registry, option).create(name, model, version, default=default, trusted=trusted)
    _write(created, f"created {created.name} {created.version}", as_json=as_json)


@app.command("default", cls=OptionCommand)
def set_default(
    name: _Name,
    version: Annotated[str, typer.Argument(help="An existing version.")],
    registry: _Registry,
    option: _Options = None,
    as_json: JsonOption = False,
) -> None:
    """Make an existing version the default one of its model."""
    chosen = _open(registry, option).set_default(name, version)
    text = f"the default version of {chosen.name} is {chosen.version}"
    _write(chosen, text, as_json=as_json)


def _open(url: str, option: list[str] | None) -> Any:
    from hyperplane.ml import ModelRegistry

    options = parse_options(option or [])
    return ModelRegistry(url, storage_options=options or None)


def _write(version: Any, text: str, *, as_json: bool) -> None:
    if as_json:
        write_json(asdict(version))
        return
    default = ", the default version" if version.is_default and "default" not in text else ""
    typer.echo(f"{text}{default}: {version.url}")
