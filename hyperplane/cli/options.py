"""The arguments of ``initialize_cluster`` as command-line options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

import typer
import yaml

import hyperplane
from hyperplane import config
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.spec.request import ClusterRequest

_MEMORY = "memory_"

_LAYOUT, _CLUSTER, _POLICY = "Size", "Cluster", "Memory policy of each worker"


def _option(
    name: str, kind: type, panel: str, text: str, metavar: str | None = None
) -> inspect.Parameter:
    """Return an option that defaults to None, as the plan applies the defaults."""
    field = ClusterRequest.model_fields.get(name)
    default = None if field is None else field.default
    help_text = text if default is None else f"{text} Default: {default}."
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(
            None, help=help_text, metavar=metavar, rich_help_panel=panel, show_default=False
        ),
        annotation=kind | None,
    )


def _threshold_option(name: str, action: str) -> inspect.Parameter:
    text = f"Fraction of its memory above which a worker {action}; or never."
    return _option(_MEMORY + name, str, _POLICY, text, "FRACTION")


#: Options that the library parses are passed as text, so that it reports all errors together.
OPTIONS = {
    option.name: option
    for option in (
        _option(
            "num_workers", str, _LAYOUT, "Number of nodes; 2-10 adapts it to the work.", "INTEGER"
        ),
        _option("nprocs", int, _LAYOUT, "Number of worker processes on each node."),
        _option("nthreads", int, _LAYOUT, "Number of threads of each worker process."),
        _option("ram_gb_per_proc", str, _LAYOUT, "Memory of each worker process in GB.", "GB"),
        _option("cores_per_worker", float, _LAYOUT, "Cores of a node for its worker processes."),
        _option("ngpus", int, _LAYOUT, "Number of GPUs of each node."),
        _option(
            "pool",
            str,
            _LAYOUT,
            "Kind of node, by its name in hyperplane pools; it determines the layout if no other "
            "sizes are given.",
        ),
        _option(
            "framework",
            str,
            _CLUSTER,
            "Framework of the cluster: dask or ray; that of the engine by default.",
        ),
        _option("engine", str, _CLUSTER, "Engine that starts the cluster."),
        _option(
            "engine_options",
            list[str],
            _CLUSTER,
            "A setting of the engine for this cluster, such as partition=short, with a value in "
            "YAML; may be repeated.",
            "NAME=VALUE",
        ),
        _option("name", str, _CLUSTER, "Name of the cluster; unique by default."),
        _option("timeout", str, _CLUSTER, "Seconds to wait for the workers.", "SECONDS"),
        _option(
            "idle_timeout",
            str,
            _CLUSTER,
            "Close the cluster when it has been idle for this time.",
            "'30 minutes'",
        ),
        _option(
            "budget",
            str,
            _CLUSTER,
            "Close the cluster when it has taken these core-hours, or this money.",
            "'5 USD'",
        ),
        _option(
            "stall_timeout",
            str,
            _CLUSTER,
            "End the tasks of a cluster that has made no progress for this time.",
            "SECONDS",
        ),
        _option(
            "oom",
            str,
            _CLUSTER,
            "Whether tasks that ran out of memory run again, so that they may fit.",
            "retry|raise",
        ),
        _option(
            "preflight",
            bool,
            _CLUSTER,
            "Whether the engine checks before a start what would make it fail; by default it does.",
        ),
        _option("dashboard_port", str, _CLUSTER, "Port of the dashboard.", "PORT"),
        _option(
            "local_fit",
            str,
            _CLUSTER,
            "For the local engine: fit reduces the request to this machine, exact does not.",
            "fit|exact",
        ),
        _option(
            "tuning",
            str,
            _CLUSTER,
            "Profile of Dask settings; dask keeps Dask's defaults.",
            "PROFILE",
        ),
        _threshold_option("target", "moves data to disk, by the size of its data"),
        _threshold_option("spill", "moves data to disk, by the memory of its process"),
        _threshold_option("pause", "starts no new task"),
        _threshold_option("terminate", "is restarted"),
    )
}


def with_request_options(
    command: Callable[..., None], omitted: Collection[str] = ()
) -> Callable[..., None]:
    """Replace the parameter ``request`` of a command by an option for each argument.

    Parameters
    ----------
    command : callable
        The command.
    omitted : collection of str
        Arguments without an effect on this command, which get no options.
    """
    request_options = {name: each for name, each in OPTIONS.items() if name not in omitted}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        options = {name: values.pop(name) for name in request_options}
        arguments, faults = _arguments(options)
        if faults:
            with stating_outcome("nothing was started"):
                try:
                    hyperplane.plan_cluster(**arguments)  # reports the other faults
                except RequestError as error:
                    faults += error.faults
                check(faults)
        command(request=arguments, **values)

    command_options = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [
        *request_options.values(),
        *(
            option.replace(kind=option.KEYWORD_ONLY)
            for option in command_options
            if option.name != "request"
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in parameters}
    return run


def _arguments(options: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the given options as arguments of ``plan_cluster``, and faults."""
    faults: list[Fault] = []
    arguments = {name: value for name, value in options.items() if value not in (None, [])}
    thresholds = {
        name.removeprefix(_MEMORY): _parse_threshold(arguments.pop(name))
        for name in options
        if name.startswith(_MEMORY) and name in arguments
    }
    if "engine_options" in arguments:
        settings, faults = parse_settings(arguments["engine_options"], "engine_options")
        arguments["engine_options"] = settings
    if thresholds:
        arguments["memory"] = {**config.memory_policy().to_dict(), **thresholds}
    return arguments, faults


def parse_settings(texts: Iterable[str], where: str) -> tuple[dict[str, object], list[Fault]]:
    """Parse texts ``name=value``, whose values are YAML, into settings and faults."""
    settings: dict[str, object] = {}
    faults: list[Fault] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            advice = "write name=value, or name=[a,b] for several values"
            faults.append(Fault(where, repr(text), "NAME=VALUE", advice))
            continue
        try:
            settings[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            settings[name.strip()] = value
    return settings, faults


def _parse_threshold(text: str) -> object:
    if text.lower() in {"never", "false"}:
        return False
    try:
        return float(text)
    except ValueError:
        return text
