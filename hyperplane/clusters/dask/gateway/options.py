"""Translate a plan into the cluster options of a gateway, and check them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import dask.config

from hyperplane.clusters.dask.remote_process import as_variables, server_settings, worker_variables
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import parse_bytes
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import GatewaySettings

_UNITS = {"bytes": 1, "gb": 10**9, "gib": 2**30}


def environment(plan: ClusterPlan) -> dict[str, str]:
    """Return the environment variables of scheduler and workers, for a gateway's option."""
    settings = cast(GatewaySettings, plan.settings)
    return {**as_variables(server_settings(plan, settings)), **worker_variables(plan)}


def requested_options(plan: ClusterPlan) -> dict[str, Any]:
    """Return the options to request for a plan; others keep the server's defaults.

    Memory is in the unit that ``plan_options`` names. Values in the setting ``options`` have
    priority; environment variables are merged one by one.
    """
    settings = cast(GatewaySettings, plan.settings)
    found = dict(settings.options)
    for name, quantity in settings.options_from_plan.items():
        value = _option_value(quantity, plan)
        if quantity == "environment":
            found[name] = {**value, **(settings.options.get(name) or {})}
        elif value is not None:
            found.setdefault(name, value)
    return {name: value for name, value in found.items() if value is not None}


def _option_value(quantity: str, plan: ClusterPlan) -> Any:
    request = plan.request
    if quantity == "environment":
        return environment(plan)
    if quantity == "idle_timeout":
        return plan.idle_timeout
    if quantity == "nthreads":
        return plan.worker.nthreads
    if quantity == "ngpus":  # each worker process runs on one GPU
        return 1 if plan.worker.ngpus else None
    if quantity == "scheduler_cpu":
        return _cores(request.scheduler_cpu)
    size = plan.worker.ram_per_proc
    if quantity.startswith("scheduler"):
        if request.scheduler_ram is None:
            return None
        size = parse_bytes(request.scheduler_ram)
    return _to_int_if_whole(size / _UNITS[quantity.rpartition("_")[2]])


def _cores(asked: str | float | None) -> float | None:
    """Return a number of cores; ``"1500m"`` is 1.5."""
    if isinstance(asked, str):
        thousandths = asked.strip().endswith("m")
        asked = float(asked.strip().rstrip("m")) / (1000 if thousandths else 1)
    return None if asked is None else _to_int_if_whole(asked)


def _to_int_if_whole(value: float) -> float:
    return int(value) if value == int(value) else value


def fill_options(options: Any, plan: ClusterPlan) -> None:
    """Set the requested options of a plan in a gateway's options.

    Parameters
    ----------
    options : dask_gateway.options.Options
        Options of the gateway for this user, with the server's defaults.
    plan : ClusterPlan
        A plan of the gateway engine.

    Raises
    ------
    RequestError
        With every option that the server does not have or whose value it refuses.
    """
    asked = requested_options(plan)
    # dask-gateway's own configuration may have options too; those of the plan have priority.
    for name, value in (dask.config.get("gateway.cluster.options", default=None) or {}).items():
        if isinstance(value, Mapping) and isinstance(asked.get(name), Mapping):
            asked[name] = {**value, **asked[name]}
        asked.setdefault(name, value)
    check(_faults(options, plan, asked))


def _faults(options: Any, plan: ClusterPlan, asked: Mapping[str, Any]) -> Iterator[Fault]:
    quantities = cast(GatewaySettings, plan.settings).options_from_plan
    for name, value in asked.items():
        where = f"option {name} of the gateway"
        if name in quantities:
            where += f" (receives {quantities[name]})"
        if name not in options:
            near = difflib.get_close_matches(name, options, n=1) or ["NAME"]
            yield Fault(
                where,
                _format_value(value),
                "one of its options: " + (", ".join(options) or "it has none"),
                f"hyperplane.engines.gateway.plan_options maps options to quantities; "
                f"{name}: null removes this one"
                + (f", {near[0]}: {quantities[name]} uses another" if name in quantities else ""),
            )
            continue
        try:
            options[name] = value
        except (TypeError, ValueError) as error:
            yield Fault(where, _format_value(value), _describe_bounds(options, name) or str(error))


def _describe_bounds(options: Any, name: str) -> str:
    """Return a text with the values that the server accepts, or "" if it does not say."""
    field = getattr(options, "_fields", {}).get(name)
    kind = {"Integer": "a whole number", "Float": "a number", "Mapping": "a mapping"}.get(
        type(field).__name__, ""
    )
    low, high = getattr(field, "min", None), getattr(field, "max", None)
    if kind and low is not None:
        kind += f" from {low:g}"
    if kind and high is not None:
        kind += f" to {high:g}"
    choices = getattr(field, "options", ())
    return "one of " + ", ".join(choices) if choices else kind


def _format_value(value: Any) -> str:
    """Return the repr of a value; only the keys of a mapping, because variables may be secrets."""
    return f"variables {', '.join(value)}" if isinstance(value, Mapping) else repr(value)


def describe(plan: ClusterPlan) -> dict[str, Any]:
    """Return a description of the request and its server, without secrets."""
    settings = cast(GatewaySettings, plan.settings)
    default = "as in dask-gateway's own configuration"
    variables = settings.password_variable
    asked = requested_options(plan)
    for name, value in settings.options.items():
        if isinstance(value, Mapping):  # may hold secrets
            asked[name] = {**asked[name], **dict.fromkeys(value, "(hidden)")}
    quantities = settings.options_from_plan
    idle = plan.idle_timeout
    return {
        "gateway": {
            "address": settings.address or default,
            "proxy_address": settings.proxy_address or default,
            "auth": settings.auth or default,
            **({"username": settings.username} if settings.username else {}),
            **({"password": f"in variable {variables}"} if variables else {}),
        },
        "cluster": plan.name,
        "options": asked,
        "workers": plan.dask_workers,
        "memory_policy": DaskOptions.of(plan.options).memory.to_dict(),
        "memory_policy_by": _applied_by("environment", quantities),
        "idle_timeout_s": idle,
        **({"idle_timeout_by": _applied_by("idle_timeout", quantities)} if idle else {}),
    }


def _applied_by(quantity: str, quantities: Mapping[str, str]) -> str:
    """Return the option of the gateway that applies a quantity, or else our plugins."""
    options = [name for name, what in quantities.items() if what == quantity]
    return f"option {options[0]}" if options else "plugins for the scheduler and the nannies"
