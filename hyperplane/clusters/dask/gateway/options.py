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
    options = dict(settings.options)
    for name, quantity in settings.options_from_plan.items():
        value = _option_value(quantity, plan)
        if quantity == "environment":
            options[name] = {**value, **(settings.options.get(name) or {})}
        elif value is not None:
            options.setdefault(name, value)
    return {name: value for name, value in options.items() if value is not None}


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


def _cores(cpu: str | float | None) -> float | None:
    """Return a number of cores; ``"1500m"`` is 1.5."""
    if isinstance(cpu, str):
        is_millicores = cpu.strip().endswith("m")
        cpu = float(cpu.strip().rstrip("m")) / (1000 if is_millicores else 1)
    return None if cpu is None else _to_int_if_whole(cpu)


def _to_int_if_whole(value: float) -> float:
    return int(value) if value == int(value) else value


def fill_options(options: Any, plan: ClusterPlan) -> None:
    """Set the options that a plan requests in an Options object of dask-gateway.

    Parameters
    ----------
    options : dask_gateway.options.Options
        Options of the server for this user, with its defaults.
    plan : ClusterPlan
        A plan of the gateway engine.

    Raises
    ------
    RequestError
        With every option that the server does not have or whose value it refuses.
    """
    requested = requested_options(plan)
    # dask-gateway's own configuration may have options too; those of the plan have priority.
    for name, value in (dask.config.get("gateway.cluster.options", default=None) or {}).items():
        if isinstance(value, Mapping) and isinstance(requested.get(name), Mapping):
            requested[name] = {**value, **requested[name]}
        requested.setdefault(name, value)
    check(_set_options(options, plan, requested))


def _set_options(options: Any, plan: ClusterPlan, requested: Mapping[str, Any]) -> Iterator[Fault]:
    """Set the options, and yield a fault for each that the server lacks or refuses."""
    settings = cast(GatewaySettings, plan.settings)
    quantities = settings.options_from_plan
    for name, value in requested.items():
        where = f"option {name} of the gateway"
        if name in quantities:
            where += f" (receives {quantities[name]})"
        if name not in options:
            allowed = "one of its options: " + (", ".join(options) or "it has none")
            yield Fault(where, _format_value(value), allowed, _advise(name, options, settings))
            continue
        try:
            options[name] = value
        except (TypeError, ValueError) as error:
            yield Fault(where, _format_value(value), _describe_bounds(options, name) or str(error))


def _advise(name: str, options: Any, settings: GatewaySettings) -> str:
    """Return what to do about an option that the server does not have."""
    if quantity := settings.options_from_plan.get(name):
        near = difflib.get_close_matches(name, options, n=1) or ["NAME"]
        return (
            f"in hyperplane.engines.gateway.plan_options, {name}: null leaves it out, and "
            f"{near[0]}: {quantity} passes the value to another option"
        )
    if name in settings.options:
        return "remove it from hyperplane.engines.gateway.options"
    return "remove it from gateway.cluster.options in the configuration of dask-gateway"


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
    variable = settings.password_variable
    options = requested_options(plan)
    for name, value in settings.options.items():
        if isinstance(value, Mapping):  # may hold secrets
            options[name] = {**options[name], **dict.fromkeys(value, "(hidden)")}
    quantities = settings.options_from_plan
    idle = plan.idle_timeout
    return {
        "gateway": {
            "address": settings.address or default,
            "proxy_address": settings.proxy_address or default,
            "auth": settings.auth or default,
            **({"username": settings.username} if settings.username else {}),
            **({"password": f"in variable {variable}"} if variable else {}),
        },
        "cluster": plan.name,
        "options": options,
        "workers": plan.dask_workers,
        "memory_policy": DaskOptions.of(plan.options).memory.to_dict(),
        "memory_policy_by": _applied_by("environment", quantities),
        "idle_timeout_s": idle,
        **({"idle_timeout_by": _applied_by("idle_timeout", quantities)} if idle else {}),
    }


def _applied_by(quantity: str, quantities: Mapping[str, str]) -> str:
    """Return the option of the gateway that applies a quantity, or else our plugins."""
    options = [name for name, mapped in quantities.items() if mapped == quantity]
    return f"option {options[0]}" if options else "plugins for the scheduler and the nannies"
