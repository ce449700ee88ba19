"""Spark sessions on a cluster: ``from hyperplane.spark import init_spark``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hyperplane import config
from hyperplane.clusters import interrupts, registry
from hyperplane.clusters.engine import Engine
from hyperplane.clusters.planning import Planner
from hyperplane.clusters.spark import driver, on_ray
from hyperplane.clusters.spark.engine import BaseSparkEngine
from hyperplane.clusters.spark.framework import SparkFramework
from hyperplane.clusters.spark.start_path import hyperplane_numpy_names
from hyperplane.clusters.start_lines import BRAND
from hyperplane.core.argument_checks import describe_value, find_count_faults
from hyperplane.core.errors import EngineError, EngineUnavailable, Fault, RequestError, check
from hyperplane.core.errors.base import request_error
from hyperplane.core.printed_text import print_note, print_text
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import bytes_to_gb, format_bytes, gb_to_bytes, plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterArguments, read_request
from hyperplane.spec.settings import SparkSettings
from hyperplane.spec.settings.spark import (
    CLUSTER_PROPERTIES,
    PropertyValue,
    describe_property,
)
from hyperplane.spec.spark_options import MIN_HEAP, add_overhead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hyperplane.clusters.ray.cluster import AttachedRayCluster, OwnedRayCluster

    RayCluster = OwnedRayCluster | AttachedRayCluster

__all__ = ["init_spark", "stop_spark"]

hyperplane_numpy_names.install()  # programs import pyspark.pandas before they start a cluster

_FRAMEWORK = SparkFramework.name
_ENGINES = ("spark:local", "spark:ssh", "spark:slurm")
#: The engine of this machine, also if the configuration names no platform of these.
_LOCAL_ENGINE = "spark:local"
#: Arguments of a plan, and their names in ``init_spark``.
_NAMES = {
    "num_workers": "num_executors",
    "nthreads": "executor_cores",
    "cores_per_worker": "executor_cores",
    "ram_gb_per_proc": "executor_memory",
}
_MAX_EXECUTORS = 1_000_000
_MAX_CORES = 10_000
_MEMORY = re.compile(r"\s*(\d{1,18})\s*([kmgt])(?:i?b)?\s*", re.IGNORECASE)
#: Spark's units are powers of 1024.
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_ALLOWED_MEMORY = (
    f"bytes, or text such as '512m' or '4g' (powers of 1024), from {MIN_HEAP // 2**20}m"
)


@check_call(outcome="nothing was started")
def init_spark(
    app_name: str = "hyperplane",
    num_executors: int = 2,
    executor_cores: int = 1,
    executor_memory: str | int = "1g",
    configs: Mapping[str, PropertyValue] | None = None,
    ray_cluster: RayCluster | None = None,
) -> SparkSession:
    """Start a standalone Spark cluster, and return a session on it.

    Its master is on this machine. So is a worker for each executor, unless
    ``hyperplane.engines.auto`` names ``ssh`` or ``slurm`` first: then each is on one of the hosts,
    or in a job. Afterwards, ``SparkSession.builder.getOrCreate()`` and ``spark-submit`` use the
    cluster without an address. A session and a cluster of an earlier call in this process are ended
    first.

    With ``ray_cluster`` no cluster starts: RayDP starts the executors on the nodes of Ray.

    Parameters
    ----------
    app_name : str
        Name of the program on the pages of Spark.
    num_executors : int
        Number of executors.
    executor_cores : int
        Cores of each executor.
    executor_memory : str or int
        Java heap of each executor, in bytes or as text with a unit, such as ``"4g"``. Beside it an
        executor gets 10 %, at least 384 MiB, for Python processes and for the JVM.
    configs : mapping of str to str, int, float or bool, optional
        Properties of Spark, such as ``{"spark.sql.shuffle.partitions": 8}``.
    ray_cluster : OwnedRayCluster or AttachedRayCluster, optional
        Cluster of this machine that :func:`hyperplane.ray_common.initialize_ray_cluster` returned.

    Returns
    -------
    pyspark.sql.SparkSession
        The session; :func:`stop_spark` ends it and the cluster, but not a cluster of Ray.

    Raises
    ------
    RequestError
        With every fault of the request, among them executors for which this machine, the list of
        hosts, or the cluster of Ray has no room; nothing was started.
    EngineUnavailable
        If Spark, a Java that it supports, or RayDP for a cluster of Ray is not installed.
    EngineError
        If this process has a session with another master, or if the cluster of Ray has ended.
    StartFailed, StartTimeout
        If the cluster did not start; none of its processes keeps running.

    Examples
    --------
    >>> spark = init_spark("example", 2, 1, "1g")  # doctest: +SKIP
    >>> spark.range(1000).count()  # doctest: +SKIP
    1000
    """
    heap = _parse_memory(executor_memory)
    faults = [
        *_find_name_faults(app_name),
        *find_count_faults("num_executors", num_executors, 1, _MAX_EXECUTORS),
        *find_count_faults("executor_cores", executor_cores, 1, _MAX_CORES),
        *([] if heap else [_make_memory_fault(executor_memory)]),
        *_find_config_faults(configs),
        *_find_cluster_faults(ray_cluster),
    ]
    check(faults)
    if ray_cluster is not None:
        properties = dict(configs or {})
        request = on_ray.SessionRequest(app_name, num_executors, executor_cores, heap, properties)
        on_ray.check_request(ray_cluster, request)
        _refuse_other_session(ray_cluster.engine)
        _stop()
        return on_ray.start_session(ray_cluster, request)
    engine = _choose_engine()
    usable, reason = engine.available()
    if not usable:
        raise EngineUnavailable(engine.name, reason)
    assert issubclass(engine.settings, SparkSettings)  # noqa: S101 - for mypy
    check(_find_config_faults(configs, engine.settings.reserved))
    _refuse_other_session(engine.name)
    asked = num_executors, executor_cores, executor_memory, heap
    check(_find_size_faults(engine, *asked, _find_own_memory()))
    sizes = num_executors, executor_cores, heap, dict(configs or {})
    _plan(engine.name, *sizes)  # raises an error before a running cluster is ended
    _stop()
    check(_find_size_faults(engine, *asked, 0))
    plan = _plan(engine.name, *sizes)
    _print(f"{BRAND} selecting worker node pool")
    for line in plan.alerts:
        print_note(f"{BRAND} {line}")
    lines: dict[str, Callable[[str], None]] = {
        "dashboard": lambda url: _print(SparkFramework.describe_dashboard(url)),
        "worker": lambda name: _print(f"Waiting for worker {name}..."),
    }
    started = interrupts.complete_start(
        partial(engine.start_with_lines, plan, lambda kind, text: lines[kind](text))
    )
    try:
        return started.client.create_session(app_name)
    except BaseException:
        started.cluster.close()
        raise


@check_call
def stop_spark() -> None:
    """End the Spark session of this process, and the Spark clusters that this process has started.

    Their Java processes, ports and folders are gone when the function returns. Without a session
    and a cluster it does nothing. A session on a cluster of Ray ends, but not the cluster.

    Examples
    --------
    >>> stop_spark()
    """
    _stop()


def _stop() -> None:
    from hyperplane.clusters.spark.cluster import OwnedSparkCluster

    on_ray.end_session()
    for cluster in list(OwnedSparkCluster.running.values()):
        names = list(cluster.workers)
        cluster.close()
        for name in names:
            _print(f"Deleting {name}")


def _choose_engine() -> BaseSparkEngine:
    """Return the first engine of Spark that the configuration names and that can be used.

    If none can be used, it is the first one.
    """
    names = registry.select_engines(_FRAMEWORK, config.auto_engines(registry.ENGINES))
    # Those of other packages may have other clusters.
    names = [name for name in names if name in _ENGINES] or [_LOCAL_ENGINE]
    engines = [_load_engine(name) for name in names]
    return next((engine for engine in engines if engine.available().usable), engines[0])


def _load_engine(name: str) -> BaseSparkEngine:
    engine = registry.load(name)
    assert isinstance(engine, BaseSparkEngine)  # noqa: S101 - for mypy: those of _ENGINES are
    return engine


def _parse_memory(value: object) -> int:
    """Return bytes in whole MiB; 0 if the value is invalid."""
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value)
        value = int(match[1]) * _UNITS[match[2].lower()] if match is not None else 0
    if not isinstance(value, int) or isinstance(value, bool) or value > 2**60:
        return 0
    return value // 2**20 * 2**20 if value >= MIN_HEAP else 0


def _make_memory_fault(value: object) -> Fault:
    return Fault("executor_memory", describe_value(value), _ALLOWED_MEMORY)


def _find_name_faults(app_name: object) -> list[Fault]:
    if isinstance(app_name, str) and app_name.strip() and app_name.isprintable():
        return []
    return [Fault("app_name", describe_value(app_name), "printable text that is not empty")]


def _find_config_faults(
    configs: object, reserved: frozenset[str] = CLUSTER_PROPERTIES
) -> list[Fault]:
    """Return the faults of properties, without their values, which may be secret."""
    allowed = "a mapping with properties of Spark, such as {'spark.sql.shuffle.partitions': 8}"
    if configs is None:
        return []
    if not isinstance(configs, Mapping):
        return [Fault("configs", f"<{type(configs).__name__}>", allowed)]
    faults = []
    for key, value in configs.items():
        if expected := describe_property(key, value, reserved):
            shown = f"<{type(value).__name__}>"
            faults.append(Fault(f"configs[{describe_value(key)}]", shown, expected))
    return faults


def _find_cluster_faults(ray_cluster: object) -> list[Fault]:
    from hyperplane.clusters.ray.cluster_types import find_type_faults

    if ray_cluster is None:
        return []
    return find_type_faults("ray_cluster", ray_cluster) or on_ray.find_engine_faults(ray_cluster)


def _refuse_other_session(engine: str) -> None:
    """Raise an EngineError if this process has a session with another master."""
    from hyperplane.clusters.spark.cluster import OwnedSparkCluster

    own = {cluster.address for cluster in OwnedSparkCluster.running.values()}
    address = driver.find_session_address()
    if address and address not in own and not address.startswith("ray:"):
        raise EngineError(
            engine,
            f"this process has a Spark session with the master {address}; call "
            "SparkSession.stop() first",
        )


def _find_own_memory() -> int:
    """Return the memory of the Spark clusters of this process on this machine, in bytes."""
    from hyperplane.clusters.spark.cluster import OwnedSparkCluster

    running = OwnedSparkCluster.running.values()
    return sum(gb_to_bytes(each.record.ram_gb) for each in running if each.engine == _LOCAL_ENGINE)


def _find_size_faults(
    engine: Engine, executors: int, cores: int, memory: str | int, heap: int, spare: int
) -> list[Fault]:
    """Return a fault for each resource of which this machine has too little for all executors.

    ``spare`` is the memory of clusters that end first. Spark itself would wait for executors that
    cannot start, without an end. Hosts are checked when a cluster starts.
    """
    machine = engine.capacity(config.engine_settings(engine.name, engine.settings))
    if machine is None:
        return []
    faults = []
    asked = executors * cores
    if asked > machine.cores:
        allowed = f"executors with {plural(machine.cores, 'core')} in all: this machine has no more"
        value = f"{executors} with executor_cores={cores}: {plural(asked, 'core')}"
        faults.append(Fault("num_executors", value, allowed))
    ram = executors * add_overhead(heap)
    free = max(0, machine.ram) + spare
    if ram > free:
        others = f", beside {', '.join(machine.clusters)}" if machine.clusters else ""
        value = (
            f"{memory!r}: {format_bytes(ram)} for {plural(executors, 'executor')} with what they "
            "need beside their heaps"
        )
        allowed = f"at most {format_bytes(free)} in all, which is free here{others}"
        faults.append(Fault("executor_memory", value, allowed))
    return faults


def _plan(
    engine: str, executors: int, cores: int, heap: int, properties: dict[str, PropertyValue]
) -> ClusterPlan:
    settings = config.engine_settings(engine, registry.load(engine).settings)
    assert isinstance(settings, SparkSettings)  # noqa: S101 - of the engines of Spark
    arguments = ClusterArguments(
        num_workers=executors,
        nprocs=1,
        nthreads=cores,
        cores_per_worker=cores,
        ram_gb_per_proc=bytes_to_gb(add_overhead(heap)),
        local_fit="exact",
        engine=engine,
        engine_options={"properties": {**settings.properties, **properties}},
    )
    request, faults = read_request(arguments, "init_spark")
    try:
        return Planner(request, faults, explicit=frozenset({"nprocs"})).plan()
    except RequestError as error:
        raise request_error([_rename(fault) for fault in error.faults]) from error


def _rename(fault: Fault) -> Fault:
    """Return a fault of a plan with the names of the arguments of ``init_spark``."""
    advice = re.sub(r"\b(\w+)(?==)", lambda found: _NAMES.get(found[1], found[1]), fault.advice)
    if "engine_options" in advice:  # which init_spark does not have
        advice = "set it in the configuration"
    return replace(fault, where=_NAMES.get(fault.where, fault.where), advice=advice)


def _print(line: str) -> None:
    print_text(f"{line}\n", sys.stdout)
