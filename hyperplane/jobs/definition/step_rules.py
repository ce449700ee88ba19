"""Rules for combinations of a step's fields: no field may be set that has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.spec.request import ClusterArguments, read_request

#: Field with the program of a step, by kind; all but the last are paths of files.
CONTENT_FIELDS = {
    "notebook": "path",
    "python": "path",
    "javascript": "path",
    "bash": "path",
    "command": "argv",
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
        *_chunk_faults(given_fields),
        *_memory_faults(values, given_fields, faulty),
        *_secret_faults(values),
        *_cluster_faults(values.get("cluster") or {}),
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
    other = "argv" if needed == "path" else "path"
    if needed not in given_fields or not values.get(needed, True):
        yield Fault(needed, "nothing", f"a value; steps of kind {kind} require it")
    elif needed == "argv" and not next(iter(values.get("argv", [True])), True):
        yield Fault("argv.0", "''", "the name of a program")
    if values.get(other):
        yield Fault(other, format_value(values[other]), f"no {other} for a step of kind {kind}")
    if kind != "notebook":
        for name, use in {"output_path": "write one", "kernel": "have one"}.items():
            if values.get(name):
                yield Fault(name, format_value(values[name]), f"no value; only notebooks {use}")


def _chunk_faults(given_fields: Set[str]) -> Iterator[Fault]:
    if {"chunks", "foreach"} <= given_fields:
        yield Fault("chunks", "both chunks and foreach", "one of them")
    if not given_fields & {"chunks", "foreach"}:
        for name in _CHUNK_FIELDS:
            if name in given_fields:
                allowed = "a step with chunks or foreach"
                yield Fault(name, "a step without chunks", allowed)


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


def _secret_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    secrets = set(values.get("secrets", ()))
    for name in values.get("env", ()):
        if name in secrets:
            asked = "a variable that is also listed under secrets"
            yield Fault(f"env.{name}", asked, "one of the two")


def _cluster_faults(arguments: Mapping[str, Any]) -> Iterator[Fault]:
    for fault in read_request(ClusterArguments.from_mapping(arguments))[1]:
        where = f"cluster.{fault.where}"
        yield Fault(where, fault.asked, fault.allowed, fault.advice, fault.source)
