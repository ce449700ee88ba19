"""Rules for combinations of a step's fields: no field may be set that has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.service_tasks import find_service_task_faults
from hyperplane.jobs.definition.validated_record import to_key_fault
from hyperplane.spec.engine_names import DASK, framework_of
from hyperplane.spec.request import ClusterArguments, read_request
from hyperplane.spec.tuning_job import find_tuning_faults

#: Name in place of that of a pool, which is then chosen by earlier runs or a forecast.
AUTO = "auto"
#: Field with the program of a step, by kind; all but the last two are paths of files.
CONTENT_FIELDS = {
    "notebook": "path",
    "python": "path",
    "javascript": "path",
    "bash": "path",
    "command": "argv",
    "train": "module_name",
}
#: Fields of a training program only; the values are those of a step without them.
TRAIN_FIELDS: dict[str, Any] = {
    "package_path": None,
    "job_dir": None,
    "worker_count": 0,
    "parameter_server_count": 0,
    "evaluator_count": 0,
    "args": (),
    "tuning": None,
}
_CHUNK_FIELDS = ("max_parallel", "output", "split")


def step_faults(values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
    """Return the faults of combinations of a step's fields.

    ``values`` are the given fields that are valid individually, ``faulty`` the names of the others.
    """
    given_fields = {
        name for name, value in values.items() if value is not None and value != ""
    } | faulty
    return [
        *_content_faults(values, given_fields),
        *_gang_faults(values),
        *_tuning_faults(values),
        *_chunk_faults(given_fields),
        *_memory_faults(values, given_fields, faulty),
        *_forecast_faults(values, faulty),
        *_secret_faults(values),
        *_cluster_faults(values.get("cluster") or {}),
        *_service_task_faults(values),
    ]


def resources_faults(values: Mapping[str, Any]) -> list[Fault]:
    """Return the fault of a pool beside cores or memory, which the pool already has."""
    given_fields = {name for name, value in values.items() if value is not None}
    sizes = [name for name in ("cores", "ram_gb") if name in given_fields]
    if "pool" not in given_fields or not sizes:
        return []
    allowed = "either a pool, or cores and ram_gb"
    return [Fault("pool", f"{values['pool']!r} beside {' and '.join(sizes)}", allowed)]


def _content_faults(values: Mapping[str, Any], given_fields: Set[str]) -> Iterator[Fault]:
    kind = values.get("kind")
    if kind not in CONTENT_FIELDS:
        return
    needed = CONTENT_FIELDS[kind]
    if needed not in given_fields or not values.get(needed, True):
        # An empty value, such as [], is shown: "not set" would be wrong.
        asked = "nothing" if values.get(needed) is None else format_value(values[needed])
        yield Fault(needed, asked, f"a value; steps of kind {kind} require it")
    elif needed == "argv" and not next(iter(values.get("argv", [True])), True):
        yield Fault("argv.0", "''", "the name of a program")
    for other in dict.fromkeys(CONTENT_FIELDS.values()):
        if other != needed and values.get(other):
            yield Fault(other, format_value(values[other]), f"no {other} for a step of kind {kind}")
    if kind != "notebook":
        for name, use in {"output_path": "write one", "kernel": "have one"}.items():
            if values.get(name):
                yield Fault(name, format_value(values[name]), f"no value; only notebooks {use}")


def _gang_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    kind, gang = values.get("kind"), values.get("gang")
    if kind == "notebook" and gang is not None:
        allowed = "no value for a notebook, which has one kernel and one output"
        yield Fault("gang", str(gang), allowed, "convert it to a script")
    if kind == "train":
        if gang is not None:
            yield Fault("gang", str(gang), "no value; worker_count is the number of workers")
        if values.get("package_path") and values.get("working_dir"):
            allowed = "no value; the program runs in the folder that contains package_path"
            yield Fault("working_dir", format_value(values["working_dir"]), allowed)
        return
    for name, default in TRAIN_FIELDS.items():
        value = values.get(name, default)
        is_absent = value == default if isinstance(default, int) else not value
        if not is_absent and kind in CONTENT_FIELDS:
            shown = "" if name == "args" else format_value(value)
            yield Fault(name, shown, "no value; only for training programs (type: train)")


def _tuning_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    tuning = values.get("tuning")
    if tuning is None or values.get("kind") != "train":
        return
    yield from find_tuning_faults(tuning, "tuning")
    for name in ("chunks", "foreach"):
        if values.get(name) is not None:
            yield Fault(
                name, format_value(values[name]), "no value beside tuning, which has trials"
            )


def _chunk_faults(given_fields: Set[str]) -> Iterator[Fault]:
    if {"chunks", "foreach"} <= given_fields:
        yield Fault("chunks", "", "the step also has foreach; keep one of the two")
    if not given_fields & {"chunks", "foreach"}:
        for name in _CHUNK_FIELDS:
            if name in given_fields:
                yield Fault(name, "", "needs chunks or foreach in the step")


def _memory_faults(
    values: Mapping[str, Any], given_fields: Set[str], faulty: Set[str]
) -> Iterator[Fault]:
    if "more_memory" not in given_fields:
        return
    resources = values.get("resources")
    sized = "resources" in faulty or getattr(resources, "ram_gb", None) is not None
    if not sized and "cluster" not in given_fields:
        allowed = "needs resources.ram_gb or cluster in the step, whose memory then grows"
        yield Fault("more_memory", "", allowed)
    if values.get("retries") == 0:
        yield Fault("more_memory", "", "needs retries; the step has retries: 0")


def memory_growth_faults(steps: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Return a fault for each step whose ``more_memory`` has no memory that it could multiply.

    Only new pipelines are checked, as jobs that are already stored may contain such steps.
    """
    faults = []
    for index, values in enumerate(steps):
        cluster, resources = values.get("cluster"), values.get("resources")
        if not values.get("more_memory") or not isinstance(cluster, Mapping):
            continue
        if getattr(resources, "ram_gb", None) is not None or (
            isinstance(resources, Mapping) and resources.get("ram_gb") is not None
        ):
            continue
        if not {"ram_gb_per_proc", "ram_gb_proc"} & cluster.keys():
            allowed = "needs a memory to multiply: set cluster.ram_gb_per_proc or resources.ram_gb"
            faults.append(Fault(f"{index}.more_memory", "", allowed))
    return faults


def _forecast_faults(values: Mapping[str, Any], faulty: Set[str]) -> Iterator[Fault]:
    target = values.get("forecast")
    if target is None:
        return
    cluster = values.get("cluster") or {}
    pools = getattr(values.get("resources"), "pool", None), cluster.get("pool")
    if AUTO not in pools and not {"resources", "cluster"} & faulty:
        allowed = "needs pool: auto in resources or cluster of the step, which it chooses"
        yield Fault("forecast", "", allowed)
    if values.get("gang") is not None or values.get("kind") == "train":
        allowed = "no value for a step of several processes, each of which gets the resources"
        yield Fault("forecast", format_value(target), allowed)
    framework = cluster.get("framework") or framework_of(str(cluster.get("engine", "")))
    if framework != DASK:
        allowed = f"no value for a cluster of {framework}; only collections of Dask are forecast"
        yield Fault("forecast", format_value(target), allowed)


def _secret_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    secrets = set(values.get("secrets", ()))
    for name in values.get("env", ()):
        if name in secrets:
            yield Fault(f"env.{name}", "", "is also listed under secrets; keep one of the two")


def _service_task_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    task = values.get("step_functions")
    if task is not None:
        yield from find_service_task_faults(task, "step_functions")


def _cluster_faults(arguments: Mapping[str, Any]) -> Iterator[Fault]:
    for fault in read_request(ClusterArguments.from_mapping(arguments))[1]:
        yield to_key_fault(replace(fault, where=f"cluster.{fault.where}"))
