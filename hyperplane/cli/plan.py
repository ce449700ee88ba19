"""``hyperplane plan``: print a plan without starting it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import with_request_options
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.clusters import registry
from hyperplane.clusters.engine import SupportsRender
from hyperplane.core.errors import Fault, RequestError
from hyperplane.spec.plan import ClusterPlan


@with_request_options
def plan(
    request: dict[str, Any],
    render: Annotated[
        bool, typer.Option("--render", help="Print the engine's script or manifest instead.")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Also show every setting of the tuning profile.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the plan of a cluster without starting it."""
    cluster_plan = hyperplane.plan_cluster(**request)
    usable, reason = registry.load(cluster_plan.engine).available()
    unavailable = "" if usable else f"engine {cluster_plan.engine} cannot be used here: {reason}"
    noted = {"unavailable": unavailable} if unavailable else {}
    rendered = {"rendered": _render(cluster_plan)} if render else {}
    if as_json:
        write_json({**cluster_plan.to_dict(), **noted, **rendered})
    elif render:
        typer.echo(rendered["rendered"], nl=False)
    else:
        write_rows(cluster_plan.rows())
        if settings:
            typer.echo()
            write_rows(cluster_plan.options.setting_rows())
    if unavailable and not as_json:
        typer.echo(unavailable, err=True)


def _render(cluster_plan: ClusterPlan) -> str:
    engine = registry.load(cluster_plan.engine)
    if not isinstance(engine, SupportsRender):
        allowed = "an engine that starts from a script or a manifest"
        advice = f"engine {engine.name} has nothing to render; leave out --render"
        raise RequestError([Fault("--render", f"engine {engine.name}", allowed, advice)])
    return engine.render(cluster_plan)
