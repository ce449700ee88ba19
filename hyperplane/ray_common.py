"""Documented functions for Ray clusters: ``from hyperplane import ray_common as rc``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from hyperplane import config
from hyperplane.clusters import interrupts, records, registry
from hyperplane.clusters.gpu_requests import find_gpu_pool
from hyperplane.clusters.planning import Planner
from hyperplane.clusters.ray.engine import RayEngine
from hyperplane.clusters.ray.framework import RayFramework
from hyperplane.clusters.running_clusters import UNKNOWN_ENGINE, ClusterNotFound, read_running
from hyperplane.clusters.spark.start_path import hyperplane_numpy_names
from hyperplane.clusters.start_lines import BRAND
from hyperplane.core.argument_checks import find_count_faults, find_flag_faults
from hyperplane.core.errors import (
    EngineError,
    EngineUnavailable,
    Fault,
    RequestError,
    UnknownPool,
    check,
)
from hyperplane.core.errors.base import request_error
from hyperplane.core.printed_text import print_note, print_text
from hyperplane.core.public_calls import check_call
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import OMITTED, ClusterArguments, read_request

if TYPE_CHECKING:
    from hyperplane.clusters.ray.cluster import AttachedRayCluster, OwnedRayCluster
    from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster

    RayCluster = OwnedRayCluster | AttachedRayCluster | KubernetesRayCluster

__all__ = [
    "RayWorker",
    "find_ray_workers",
    "get_ray_cluster",
    "initialize_ray_cluster",
    "quickstart_ray",
    "stop_ray_cluster",
]

hyperplane_numpy_names.install()  # programs import pyspark.pandas before they start a cluster

_FRAMEWORK = RayFramework.name
_ENGINES = ("ray:local", "ray:ssh", "ray:slurm", "ray:kubernetes")
#: Engine if the configuration names no platform of these.
_DEFAULT_ENGINE = "ray:local"
#: Arguments of a plan, and their names in the functions of this module.
_NAMES = {
    "nthreads": "cpu_core_per_worker",
    "cores_per_worker": "cpu_core_per_worker",
    "ram_gb_per_proc": "ram_gb_per_worker",
    "ngpus": "n_gpus",
    "pool": "size",
}
#: Most worker nodes of a request; larger numbers are considered mistakes.
_MAX_WORKERS = 1_000_000


class RayWorker(NamedTuple):
    """A running worker node.

    Parameters
    ----------
    name : str
        ``ray-worker-<uuid4>``, or the name of its pod.
    status : str
        ``Running``.
    ip : str
        Address of its machine or pod.
    """

    name: str
    status: str
    ip: str


@check_call(outcome="nothing was started")
def initialize_ray_cluster(
    num_workers: int = 2,
    cpu_core_per_worker: int = 15,
    ram_gb_per_worker: float = 12,
    n_gpus: int = 0,
    use_existing: bool = False,
    timeout: float | str = 1200,
) -> RayCluster:
    """Start a Ray cluster, and wait until all its worker nodes are registered.

    Its head node is on this machine. So are its worker nodes, unless ``hyperplane.engines.auto``
    names ``ssh`` or ``slurm`` first: then they are on hosts, or in jobs. If it names ``kubernetes``
    first, all are in pods. Afterwards, ``ray.init()`` without an address uses the cluster.

    Parameters
    ----------
    num_workers : int
        Number of worker nodes; 0 with ``use_existing=True`` connects only.
    cpu_core_per_worker : int
        Cores of each worker node.
    ram_gb_per_worker : float
        Memory of each worker node in GB (10**9 bytes), of which its object store gets 30 %.
    n_gpus : int
        GPUs of each worker node, which tasks with ``num_gpus`` use. If a pool has as many, the two
        arguments before are ignored, and each worker node is a node of the smallest such pool.
    use_existing : bool
        Whether to return the running Ray cluster, if there is one. Otherwise the Ray clusters that
        this process has started are ended, and a new one is started.
    timeout : float or str
        Longest time for the start, in seconds or as text such as ``"2 hours"``; pending jobs of
        Slurm count.

    Returns
    -------
    OwnedRayCluster, AttachedRayCluster or KubernetesRayCluster
        The cluster; ``close()`` or :func:`stop_ray_cluster` ends it.

    Raises
    ------
    RequestError
        With every fault of the request; nothing was started.
    EngineUnavailable
        If Ray is not installed.
    EngineError
        If no Ray cluster runs and ``num_workers`` is 0.
    StartFailed, StartTimeout
        If the cluster did not start; none of its processes keeps running.

    Examples
    --------
    >>> cluster = initialize_ray_cluster(2, 15, 12)  # doctest: +SKIP
    """
    faults = [
        *find_count_faults("num_workers", num_workers, 0, _MAX_WORKERS),
        *find_flag_faults(use_existing=use_existing),
    ]
    if not faults and not num_workers and not use_existing:
        allowed = "a whole number, 1 or more; 0 with use_existing=True connects only"
        faults.append(Fault("num_workers", "0", allowed))
    if pool := find_gpu_pool(config.pools().values(), n_gpus):
        cpu_core_per_worker, ram_gb_per_worker = pool.whole_cores, pool.allocatable_ram_gb
    arguments = ClusterArguments(
        num_workers=max(1, num_workers) if not faults else OMITTED,
        nprocs=1,
        nthreads=cpu_core_per_worker,
        cores_per_worker=cpu_core_per_worker,
        ram_gb_per_proc=ram_gb_per_worker,
        ngpus=n_gpus,
        timeout=timeout,
        engine=_choose_engine().name,
    )
    planner = _create_planner(arguments, faults)
    return _initialize(planner, num_workers, use_existing)


@check_call(outcome="nothing was started")
def quickstart_ray(num_workers: int, size: str) -> RayCluster:
    """Start a Ray cluster with worker nodes of one t-shirt size.

    Parameters
    ----------
    num_workers : int
        Number of worker nodes.
    size : str
        T-shirt size, such as ``"hyperplane-med-high-mem"``, or the name of a pool.

    Returns
    -------
    OwnedRayCluster or KubernetesRayCluster
        The cluster, as :func:`initialize_ray_cluster` returns it.

    Raises
    ------
    UnknownPool
        If there is no such size; the message lists all sizes. Other errors are those of
        :func:`initialize_ray_cluster`.
    """
    faults = find_count_faults("num_workers", num_workers, 1, _MAX_WORKERS)
    try:
        pool = config.get_pool(size)
    except UnknownPool as error:
        error.faults = (*faults, *(replace(each, where="size") for each in error.faults))
        raise
    check(faults)
    arguments = ClusterArguments(
        num_workers=num_workers,
        nprocs=1,
        nthreads=pool.whole_cores,
        cores_per_worker=pool.allocatable_cores,
        ram_gb_per_proc=pool.allocatable_ram_gb,
        ngpus=pool.gpus,
        pool=pool,
        engine=_choose_engine().name,
    )
    return _initialize(_create_planner(arguments, []), num_workers, False)


@check_call
def get_ray_cluster(extra_workers: int = 0) -> RayCluster:
    """Connect to the running Ray cluster, and add worker nodes of the same size.

    Parameters
    ----------
    extra_workers : int
        Number of worker nodes to add; only the process that started the cluster can add them.

    Returns
    -------
    OwnedRayCluster, AttachedRayCluster or KubernetesRayCluster
        The cluster of this process, or that of its environment variables, such as in a step of a
        job, or else the one that was started last by this user.

    Raises
    ------
    RequestError
        If ``extra_workers`` is invalid, or if there is no room for them on this machine or hosts.
    EngineError
        If no Ray cluster runs, or if another process owns it and ``extra_workers`` is not 0.
    StartFailed, StartTimeout
        If a worker node did not start.
    """
    check(find_count_faults("extra_workers", extra_workers, 0, _MAX_WORKERS))
    cluster = _find_cluster()
    if cluster is None:
        raise EngineError(
            _DEFAULT_ENGINE,
            "no Ray cluster is running on this machine; initialize_ray_cluster starts one",
        )
    if extra_workers:
        with interrupts.defer_interrupts():
            cluster.add_workers(extra_workers, _announce)
    return cluster


@check_call
def find_ray_workers() -> list[RayWorker]:
    """Print the running worker nodes of the running Ray cluster, and return them.

    Returns
    -------
    list of RayWorker
        Empty if no Ray cluster runs.
    """
    found: list[tuple[str, str]] = []
    for record in _list_records():
        engine = _load_engine(record.engine)
        settings = config.engine_settings(engine.name, engine.settings)
        with suppress(ClusterNotFound):  # it has ended: the next one
            found = engine.list_workers(record, settings)
            break
    workers = [RayWorker(name, "Running", address) for name, address in found]
    for worker in workers:
        _print("\t".join(worker))
    return workers


@check_call(outcome="nothing was stopped")
def stop_ray_cluster(ray_cluster: RayCluster) -> None:
    """End a Ray cluster and all its processes; do nothing if it has ended.

    Parameters
    ----------
    ray_cluster : OwnedRayCluster, AttachedRayCluster or KubernetesRayCluster
        Result of :func:`initialize_ray_cluster` or :func:`get_ray_cluster`.

    Raises
    ------
    RequestError
        If it is another object.
    EngineError
        If another process owns the cluster and has not ended it within a minute.
    """
    from hyperplane.clusters.ray.cluster_types import find_type_faults

    check(find_type_faults("ray_cluster", ray_cluster))
    for name in ray_cluster.workers:
        _print(f"Deleting {name}")
    ray_cluster.close()


def _choose_engine() -> RayEngine:
    """Return the first engine of Ray that the configuration names and that can be used.

    If none can be used, it is the first one.
    """
    engines = _list_engines()
    return next((engine for engine in engines if engine.available().usable), engines[0])


def _list_engines() -> list[RayEngine]:
    """Return the engines of Ray on the configured platforms, in order."""
    names = registry.select_engines(_FRAMEWORK, config.auto_engines(registry.ENGINES))
    # Those of other packages may have other clusters.
    found = [_load_engine(name) for name in names if name in _ENGINES]
    return found or [_load_engine(_DEFAULT_ENGINE)]


def _load_engine(name: str) -> RayEngine:
    return cast("RayEngine", registry.load(name))  # those of _ENGINES are


def _create_planner(arguments: ClusterArguments, faults: list[Fault]) -> Planner:
    request, others = read_request(arguments, "initialize_ray_cluster")
    # The number of worker nodes is kept as far as there are cores; their sizes are reduced.
    return Planner(request, [*faults, *others], explicit=frozenset({"nprocs"}))


def _plan(planner: Planner) -> ClusterPlan:
    """Return the plan; the faults of a request name the arguments of this module."""
    try:
        return planner.plan()
    except RequestError as error:
        named = [replace(each, where=_NAMES.get(each.where, each.where)) for each in error.faults]
        if named == list(error.faults):
            raise
        unique = list({(each.where, each.asked): each for each in named}.values())
        raise request_error(unique) from error


def _initialize(planner: Planner, num_workers: int, use_existing: bool) -> RayCluster:
    engine = _load_engine(planner.request.engine)
    usable, reason = engine.available()
    if planner.faults or not usable:
        _plan(planner)  # raises an error if there are faults
        raise EngineUnavailable(engine.name, reason)
    existing = _find_cluster() if use_existing else None
    if existing is not None:
        return existing
    if not num_workers:
        return get_ray_cluster()
    if not use_existing:
        _close_own_clusters()
    preferred = _list_engines()[0]
    if preferred.name != engine.name:
        planner.alerts.append(
            f"engine {engine.name}, because {preferred.name} cannot be used: "
            f"{preferred.available().reason}"
        )
    plan = _plan(planner)
    _print(f"{BRAND} selecting worker node pool")
    for line in filter(None, (plan.fit_note, *plan.alerts)):
        print_note(f"{BRAND} {line}")
    lines: dict[str, Callable[[str], None]] = {
        "dashboard": _announce_dashboard,
        "worker": _announce,
    }
    started = interrupts.complete_start(
        partial(engine.start_with_lines, plan, lambda kind, text: lines[kind](text))
    )
    return cast("RayCluster", started.cluster)


def _close_own_clusters() -> None:
    """End the Ray clusters that this process has started."""
    from hyperplane.clusters.ray.cluster import OwnedRayCluster

    for cluster in list(OwnedRayCluster.running.values()):
        for name in cluster.workers:
            _print(f"deleting pod {name}")
        cluster.close()


def _list_records() -> list[records.ClusterRecord]:
    """Return the records of Ray clusters: of this process, of its variables, then the latest."""
    found = [each for each in read_running(UNKNOWN_ENGINE) if each.engine in _ENGINES]
    own = [record for record in found if record.pid == os.getpid()]
    # In a step of a job: the cluster of the step, although other steps started theirs later.
    named = [record for record in found if record.scheduler == os.environ.get("RAY_ADDRESS")]
    return [*own[::-1], *named[::-1], *found[::-1]]


def _find_cluster() -> RayCluster | None:
    """Return the first cluster of the records that still exists."""
    for record in _list_records():
        engine = _load_engine(record.engine)
        settings = config.engine_settings(engine.name, engine.settings)
        with suppress(ClusterNotFound):
            return cast("RayCluster", engine.connect(record.name, settings).cluster)
    return None


def _announce_dashboard(dashboard: str) -> None:
    if dashboard:
        _print(RayFramework.describe_dashboard(f"{dashboard}/#/"))


def _announce(name: str) -> None:
    _print(f"Waiting for worker {name}...")


def _print(line: str) -> None:
    print_text(f"{line}\n", sys.stdout)
