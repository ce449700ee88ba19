"""``hyperplane plan``: what would be started."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import takes_request
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.engines import registry
from hyperplane.engines.base import SupportsRender
from hyperplane.errors import Fault, RequestError
from hyperplane.spec.plan import ClusterPlan


@takes_request
def plan(
    request: dict[str, Any],
    render: Annotated[
        bool, typer.Option("--render", help="Print the engine's own script or manifest instead.")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show every setting of the tuning too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what would be started, and start nothing."""
    worked_out = hyperplane.plan_cluster(**request)
    rendered = {"rendered": _rendered(worked_out)} if render else {}
    if as_json:
        write_json({**worked_out.to_dict(), **rendered})
    elif render:
        typer.echo(rendered["rendered"], nl=False)
    else:
        write_rows(worked_out.rows())
        if settings:
            typer.echo()
            write_rows(worked_out.tuning.rows())


def _rendered(worked_out: ClusterPlan) -> str:
    engine = registry.load(worked_out.engine)
    if not isinstance(engine, SupportsRender):
        allowed = "an engine that starts from a script or a manifest"
        advice = f"engine {engine.name} starts processes directly and has nothing to render"
        raise RequestError([Fault("render", f"engine {engine.name}", allowed, advice)])
    return engine.render(worked_out)
