"""The commands put together."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import hyperplane
from hyperplane.cli import cluster, job, storage
from hyperplane.cli.demo import demo
from hyperplane.cli.doctor import doctor
from hyperplane.cli.output import JSON_ASKED, exit_code, write_error
from hyperplane.cli.plan import plan
from hyperplane.cli.pools import pools
from hyperplane.cli.size import size
from hyperplane.errors import HyperplaneError


class Commands(TyperGroup):
    """The commands; an error of the package ends any of them with a message and an exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name in the singular or the plural: ``hyperplane jobs list``."""
        asked, *rest = args
        names = [asked, asked.removesuffix("s"), f"{asked}s"]
        known = next((name for name in names if self.get_command(ctx, name)), asked)
        return super().resolve_command(ctx, [known, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except HyperplaneError as error:
            write_error(error, as_json=ctx.meta.get(JSON_ASKED, False))
            raise typer.Exit(exit_code(error)) from error


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hyperplane {hyperplane.__version__}")
        raise typer.Exit


def _hyperplane(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Size, plan and run Dask clusters.

    Exit code: 0 good, 1 failed, 2 a request or a configuration that cannot be used.
    """
    del version


# A fault of this package shall show as Python shows it, without the values of local variables.
app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.callback()(_hyperplane)
for command in (size, plan, pools, demo, doctor):
    app.command()(command)
app.add_typer(cluster.app, name="cluster")
app.add_typer(job.app, name="job")
app.add_typer(storage.app, name="storage")
