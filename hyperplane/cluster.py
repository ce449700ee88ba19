"""The route of a cluster: request -> plan -> start -> (client, cluster)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hyperplane import announce, config
from hyperplane.call_arguments import (
    Advice,
    advised_arguments,
    check_flag,
    find_arguments_beside_plan,
    mark_omitted,
    merge_memory_policy,
    read_step_arguments,
)
from hyperplane.client_config import restore_config_after
from hyperplane.compat import add_removed_methods
from hyperplane.engines import interrupts, registry
from hyperplane.engines.base import Started
from hyperplane.errors import EngineUnavailable, Fault, check
from hyperplane.planning import Planner
from hyperplane.public_calls import check_call
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import OMITTED, ClusterArguments, read_request
from hyperplane.started_clusters import close_previous_clusters, current_location, remember_cluster

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


@check_call(outcome="nothing was started")
@mark_omitted
def plan_cluster(
    num_workers: int | Advice = 2,
    *,
    local_mode: bool = False,
    worker_spec_yaml: str | None = None,
    timeout: float | str = 1200,
    nthreads: int = 1,
    nprocs: int = 15,
    ram_gb_per_proc: float = 0.7,
    cores_per_worker: float = 15,
    scheduler_deploy_mode: Literal["remote", "local"] = "remote",
    dashboard_port: str | int = "random",
    logging: Literal["quiet", "verbose"] = "quiet",
    ngpus: int = 0,
    node_selector: dict[str, str] | str | None = None,
    scheduler_ram: str | None = None,
    scheduler_cpu: str | float | None = None,
    engine: str = "auto",
    engine_options: dict[str, Any] | None = None,
    pool: str | PoolSpec | None = None,
    memory: MemoryPolicy | None = None,
    idle_timeout: float | str | None = None,
    name: str | None = None,
    local_fit: Literal["fit", "exact"] | None = None,
    tuning: str | None = None,
    **others: Any,
) -> ClusterPlan:
    """Work out what :func:`initialize_cluster` would start, without starting anything.

    Parameters
    ----------
    num_workers : int or SizingAdvice
        Nodes, or advice that holds all sizes.
    **others
        ``ram_gb_proc``; anything else is a fault that names the nearest argument. All others are
        those of :func:`initialize_cluster`.

    Returns
    -------
    ClusterPlan
        Prints as a table; :func:`start` starts it.

    Raises
    ------
    RequestError
        With every fault of the request.
    EngineUnavailable
        When no engine can do the work here.

    Examples
    --------
    >>> plan = plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
    >>> plan.dask_workers, plan.pool.name
    (1, '16_16')
    """
    arguments = ClusterArguments(
        num_workers=num_workers,
        local_mode=local_mode,
        worker_spec_yaml=worker_spec_yaml,
        timeout=timeout,
        nthreads=nthreads,
        nprocs=nprocs,
        ram_gb_per_proc=ram_gb_per_proc,
        cores_per_worker=cores_per_worker,
        scheduler_deploy_mode=scheduler_deploy_mode,
        dashboard_port=dashboard_port,
        logging=logging,
        ngpus=ngpus,
        node_selector=node_selector,
        scheduler_ram=scheduler_ram,
        scheduler_cpu=scheduler_cpu,
        engine=engine,
        engine_options=engine_options,
        pool=pool,
        memory=memory,
        idle_timeout=idle_timeout,
        name=name,
        local_fit=local_fit,
        tuning=tuning,
    )
    return _planner("plan_cluster", arguments.with_defaults(others)).plan()


def _planner(function: str, arguments: ClusterArguments, own: Sequence[str] = ()) -> Planner:
    """The planner of a call; ``own`` are the function's parameters that are not of a request."""
    arguments = merge_memory_policy(arguments)
    explicit = arguments.given.keys() - {"num_workers"}
    if isinstance(arguments.num_workers, Advice):
        advised = advised_arguments(arguments.num_workers, explicit)
        arguments = replace_fields(arguments, num_workers=OMITTED).with_defaults(advised)
    names = frozenset("ram_gb_per_proc" if name == "ram_gb_proc" else name for name in explicit)
    request, faults = read_request(arguments, function, own)
    return Planner(request, faults, explicit=names)


@check_call(outcome="nothing was started")
def start(plan: ClusterPlan) -> Started:
    """Start a plan; nothing is printed.

    Parameters
    ----------
    plan : ClusterPlan
        From :func:`plan_cluster`.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Dask's own objects. Every worker of the plan is there.

    Raises
    ------
    EngineUnavailable
        When the engine cannot be used here.
    StartFailed, StartTimeout
        When the cluster did not come up; nothing is left running.
    """
    given: object = plan
    if not isinstance(given, ClusterPlan):
        advice = "plan_cluster(...) makes one"
        check([Fault("plan", repr(given)[:80], "a ClusterPlan", advice)])
    engine = registry.load(plan.engine)
    usable, reason = engine.available()
    if not usable:
        raise EngineUnavailable(plan.engine, reason)
    _check_not_forked()
    return _complete(
        partial(engine.start, plan),
        _prepare,
        lambda started: restore_config_after(started.client),
    )


@check_call(outcome="nothing was started")
@mark_omitted
def initialize_cluster(
    num_workers: int | Advice | ClusterPlan = 2,
    local_mode: bool = False,
    worker_spec_yaml: str | None = None,
    timeout: float | str = 1200,
    nthreads: int = 1,
    nprocs: int = 15,
    ram_gb_per_proc: float = 0.7,
    cores_per_worker: float = 15,
    scheduler_deploy_mode: Literal["remote", "local"] = "remote",
    dashboard_port: str | int = "random",
    logging: Literal["quiet", "verbose"] = "quiet",
    ngpus: int = 0,
    node_selector: dict[str, str] | str | None = None,
    scheduler_ram: str | None = None,
    scheduler_cpu: str | float | None = None,
    *,
    engine: str = "auto",
    engine_options: dict[str, Any] | None = None,
    pool: str | PoolSpec | None = None,
    memory: MemoryPolicy | None = None,
    idle_timeout: float | str | None = None,
    name: str | None = None,
    local_fit: Literal["fit", "exact"] | None = None,
    tuning: str | None = None,
    replace: bool = False,
    **others: Any,
) -> tuple[Client, Cluster]:
    """Start a Dask cluster and wait until its workers are there.

    Parameters
    ----------
    num_workers : int, SizingAdvice or ClusterPlan
        Nodes; or advice or a plan that holds all sizes.
    local_mode : bool
        Start it on this machine, whatever the engine.
    worker_spec_yaml : str, optional
        Template of a worker's pod, for engines that have pods.
    timeout : float or str
        Seconds to wait for the cluster, or text such as ``"20 min"``.
    nthreads : int
        Threads of each worker process.
    nprocs : int
        Worker processes on each node.
    ram_gb_per_proc : float
        Memory of each process in GB (10**9 bytes); also ``ram_gb_proc``.
    cores_per_worker : float
        Cores of each node that its processes take together.
    scheduler_deploy_mode : {"remote", "local"}
        Where the scheduler runs, for engines that have a choice. The local engine has none; this
        decides which of the documented lines are printed.
    dashboard_port : str or int
        ``"random"`` or a port.
    logging : {"quiet", "verbose"}
        The documented lines only, or the plan and timings too.
    ngpus : int
        GPUs of each node; without ``nprocs`` one process is planned for each of them.
    node_selector : dict or str, optional
        Labels of nodes, for engines that have labels.
    scheduler_ram, scheduler_cpu : str, optional
        Size of the scheduler, such as ``"4Gi"`` and ``"1500m"``.
    engine : str
        ``"auto"`` takes the first usable one of ``hyperplane.engines.auto``; an engine asked for
        by name is used or refused.
    engine_options : dict, optional
        Settings of the engine for this cluster only, such as ``{"hosts": ["a", "b"]}`` for ssh.
    pool : str or PoolSpec, optional
        The kind of node. Given alone, the layout is :func:`~hyperplane.fit_workers`'s.
    memory : MemoryPolicy, optional
        Freeze policy of every worker; the configured one by default.
    idle_timeout : float or str, optional
        Close the cluster after so many seconds without use, or ``"30 minutes"``.
    name : str, optional
        Name of the cluster; ``dask-cluster-<uuid4>`` by default.
    local_fit : {"fit", "exact"}, optional
        For the local engine: cut the request to this machine, or start exactly what is asked.
    tuning : str, optional
        Profile of settings of Dask; ``"dask"`` leaves all as Dask ships it. The configured one,
        ``"fast"``, by default.
    replace : bool
        Close first the cluster that an earlier run of the same cell, or of the same line of a
        program, has started; with ``name`` also the cluster of that name, in whichever of your
        programs it runs.
    **others
        ``ram_gb_proc``; anything else is a fault that names the nearest argument.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Dask's own objects. Close either or both, in any order.

    Raises
    ------
    RequestError
        With every fault of the request; nothing was started.
    EngineUnavailable
        When the engine cannot be used here.
    StartFailed, StartTimeout
        When the cluster did not come up; nothing is left running.

    Examples
    --------
    >>> client, cluster = initialize_cluster(
    ...     num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5
    ... )  # doctest: +ELLIPSIS
    👉 Hyperplane: selecting worker node pool
    ...
    >>> client.submit(sum, [1, 2, 3]).result()
    6
    >>> client.close(); cluster.close()
    """
    arguments = ClusterArguments(
        num_workers=num_workers,
        local_mode=local_mode,
        worker_spec_yaml=worker_spec_yaml,
        timeout=timeout,
        nthreads=nthreads,
        nprocs=nprocs,
        ram_gb_per_proc=ram_gb_per_proc,
        cores_per_worker=cores_per_worker,
        scheduler_deploy_mode=scheduler_deploy_mode,
        dashboard_port=dashboard_port,
        logging=logging,
        ngpus=ngpus,
        node_selector=node_selector,
        scheduler_ram=scheduler_ram,
        scheduler_cpu=scheduler_cpu,
        engine=engine,
        engine_options=engine_options,
        pool=pool,
        memory=memory,
        idle_timeout=idle_timeout,
        name=name,
        local_fit=local_fit,
        tuning=tuning,
    ).with_defaults(others)
    location, closed = current_location(), []
    replaces = check_flag("replace", False if replace is OMITTED else replace)
    planner = None
    if isinstance(num_workers, ClusterPlan):
        check(find_arguments_beside_plan(initialize_cluster, arguments))
    else:
        defaults = read_step_arguments(num_workers)
        planner = _planner(
            "initialize_cluster", arguments.with_defaults(defaults), own=("replace",)
        )
    # Before planning, which counts free memory; but not for a call whose arguments are wrong.
    if replaces and (planner is None or planner.has_valid_arguments()):
        closed = close_previous_clusters(location, None if name is OMITTED else name)
    plan: Any = num_workers if planner is None else planner.plan()
    began = time.monotonic()
    announce.print_start_lines(plan, closed)
    client, cluster = _complete(
        partial(start, plan),
        partial(remember_cluster, location, plan.name),
        lambda started: announce.print_ready_lines(
            plan, started.client.dashboard_link, time.monotonic() - began
        ),
    )
    return client, cluster


@check_call
def get_cluster(name: str, engine: str | None = None) -> Started:
    """Attach to a running cluster that any process of this user started.

    Parameters
    ----------
    name : str
        Its name, ``dask-cluster-<uuid4>``; ``hyperplane cluster list`` shows those that run.
    engine : str, optional
        The engine that runs it; by default the one that started a cluster of that name on this
        machine. One on Kubernetes, or that was started elsewhere, needs it.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Closing the cluster ends it for everybody.

    Raises
    ------
    EngineError
        When no such cluster runs, with those that this machine has started and their engines.
    """
    if not isinstance(name, str) or not name:
        check([Fault("name", repr(name)[:80], "the name of a cluster, as text")])
    if engine is None:
        from hyperplane.engines.attach import engine_of

        engine = engine_of(name)
    found = registry.load(engine)
    _check_not_forked()
    started = found.connect(name, config.engine_settings(engine, found.settings))
    _prepare(started)
    restore_config_after(started.client, getattr(started.cluster, "lent_to", ""))
    return started


def _check_not_forked() -> None:
    # Imported here: it loads distributed once something is started, and a plan needs none of it.
    from hyperplane.guard import forks

    forks.check_not_forked()


def _prepare(started: Started) -> None:
    """Add to a client and cluster what holds for all engines."""
    from hyperplane.engines import dask_notices
    from hyperplane.guard import forks

    add_removed_methods(started.client)
    loop: Any = started.client.loop
    dask_notices.drop_interrupted_waits(loop.asyncio_loop)
    forks.guard_forks(started.client, started.cluster)


def _complete(begin: Callable[[], Started], *steps: Callable[[Started], object]) -> Started:
    """Begin a cluster and take further steps; leave nothing when one fails or Ctrl-C comes.

    Ctrl-C interrupts what an engine lets it interrupt, and is put off to the end else: then the
    caller gets no cluster that it could close.
    """
    started: Started | None = None
    try:
        with interrupts.put_off():
            started = begin()
            for step in steps:
                step(started)
        return started
    except BaseException:
        if started is not None:
            with interrupts.put_off():
                _close(started)
        raise


def _close(started: Started) -> None:
    try:
        started.client.close()
    finally:
        started.cluster.close()


@check_call(outcome="nothing was started")
def quickstart(num_workers: int, size: str, **arguments: Any) -> tuple[Client, Cluster]:
    """Start so many nodes of one size, laid out by :func:`~hyperplane.fit_workers`.

    Parameters
    ----------
    num_workers : int
        Nodes.
    size : str
        T-shirt name or pool, such as ``"hyperplane-med"``.
    **arguments
        As for :func:`initialize_cluster`.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
    """
    pool = arguments.pop("pool", config.get_pool(size))
    return initialize_cluster(num_workers, pool=pool, **arguments)
