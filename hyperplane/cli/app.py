"""The ``hyperplane`` application with all its commands; a command has a file of its name.

Subcommands are in the file of their noun, or in files that begin with its name: ``job_inspect``.
CONTRIBUTING.md, *Add a command*, has the steps.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import hyperplane
from hyperplane.cli import asl, cluster, history, job, model, storage, vertex
from hyperplane.cli.demo import demo
from hyperplane.cli.doctor import doctor
from hyperplane.cli.forecast import forecast
from hyperplane.cli.metrics import metrics
from hyperplane.cli.option_names import OptionCommand
from hyperplane.cli.output import JSON_REQUESTED, exit_code, write_error
from hyperplane.cli.plan import plan
from hyperplane.cli.pools import pools
from hyperplane.cli.predict import predict
from hyperplane.cli.preflight import preflight
from hyperplane.cli.report import report
from hyperplane.cli.serve import serve
from hyperplane.cli.size import size
from hyperplane.cli.train import train
from hyperplane.cli.ui import ui
from hyperplane.core.errors import HyperplaneError


def _join_lines(text: str) -> str:
    """Return a help text with each paragraph on one line, which the terminal wraps.

    Typer joins the lines of the first paragraph only, and wraps each line of the others.
    """
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _format_help_texts(command: Any) -> None:
    """Join the lines of the paragraphs in the help of a command, and of those below it."""
    if command.help:
        command.help = _join_lines(command.help)
    for each in getattr(command, "commands", {}).values():
        _format_help_texts(each)


def _hide_types_of_flags(command: Any) -> None:
    """Let the help of a command, and of those below it, have no ``<bool>`` after a flag.

    Typer writes it also after flags, which take no value.
    """
    for parameter in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    for each in getattr(command, "commands", {}).values():
        _hide_types_of_flags(each)


class CommandGroup(TyperGroup):
    """Command group that turns errors of the package into a message and an exit code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _hide_types_of_flags(self)
        _format_help_texts(self)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; typer has added options for the completion since."""
        _hide_types_of_flags(self)
        super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name in the singular or the plural: ``hyperplane jobs list``."""
        command, *rest = args
        names = [command, command.removesuffix("s"), f"{command}s"]
        known = next((name for name in names if self.get_command(ctx, name)), command)
        return super().resolve_command(ctx, [known, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; write an error of the package and exit with its code."""
        try:
            return super().invoke(ctx)
        except HyperplaneError as error:
            write_error(error, as_json=ctx.meta.get(JSON_REQUESTED, False))
            raise typer.Exit(exit_code(error)) from error


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"hyperplane {hyperplane.__version__}")
        raise typer.Exit


def _hyperplane(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Size, plan and start clusters; run pipeline jobs.

    Commands may be written in the plural, such as hyperplane jobs list.

    Exit code: 0 success, 1 failure, 2 invalid request or configuration.
    """
    del version


# Internal errors are shown as Python shows them: rich would print the values of local variables.
app = typer.Typer(cls=CommandGroup, no_args_is_help=True, pretty_exceptions_enable=False)
app.callback()(_hyperplane)
for command in (
    size,
    plan,
    forecast,
    preflight,
    train,
    predict,
    serve,
    pools,
    report,
    metrics,
    ui,
    demo,
    doctor,
):
    app.command(cls=OptionCommand if command in (train, predict, serve) else None)(command)
app.add_typer(asl.app, name="asl")
app.add_typer(cluster.app, name="cluster")
app.add_typer(history.app, name="history")
app.add_typer(job.app, name="job")
app.add_typer(model.app, name="model")
app.add_typer(storage.app, name="storage")
app.add_typer(vertex.app, name="vertex")
