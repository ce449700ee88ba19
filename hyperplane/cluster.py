"""Public functions that plan, start and find clusters."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hyperplane import config
from hyperplane.clusters import interrupts, registry, replacement, start_lines, start_progress
from hyperplane.clusters.call_arguments import (
    Advice,
    check_flag,
    find_arguments_beside_plan,
    mark_omitted,
    read_step_arguments,
)
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.planning import create_planner
from hyperplane.clusters.running_clusters import find_engine
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import OMITTED, ClusterArguments
from hyperplane.start_checks import check_available, check_before_start

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


@check_call(outcome="nothing was started")
@mark_omitted
def plan_cluster(
    num_workers: int | tuple[int, int] | Advice = 2,
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
    framework: str | None = None,
    budget: float | str | None = None,
    stall_timeout: float | str | None = None,
    oom: Literal["retry", "raise"] | None = None,
    preflight: bool | None = None,
    **others: Any,
) -> ClusterPlan:
    """Plan what :func:`initialize_cluster` would start, without starting anything.

    Parameters
    ----------
    num_workers : int, (int, int) or SizingAdvice
        Nodes, also least and most of an adaptive cluster; or advice that sets all sizes.
    **others
        ``ram_gb_proc``. Further parameters are those of :func:`initialize_cluster`.

    Returns
    -------
    ClusterPlan
        Prints as a table; pass it to :func:`start`.

    Raises
    ------
    RequestError
        With every fault of the request.
    EngineUnavailable
        If no configured engine can be used here.

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
        framework=framework,
        budget=budget,
        stall_timeout=stall_timeout,
        oom=oom,
        preflight=preflight,
    )
    return create_planner("plan_cluster", arguments.with_defaults(others)).plan()


@check_call(outcome="nothing was started")
def start(plan: ClusterPlan, sync: bool = False) -> StartedCluster:
    """Start the cluster of a plan, without printing anything.

    Parameters
    ----------
    plan : ClusterPlan
        Result of :func:`plan_cluster`.
    sync : bool
        As for :func:`initialize_cluster`.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Objects of Dask, or those of the engine's framework. Every worker of the plan is connected.

    Raises
    ------
    RequestError
        If ``plan`` is not a plan, or has values that the platform does not accept.
    EngineUnavailable
        If the engine cannot be used here.
    StartFailed, StartTimeout
        If the cluster did not start; no process or job of it keeps running.

    Examples
    --------
    >>> plan = plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
    >>> client, cluster = start(plan)
    >>> client.close(); cluster.close()
    """
    value: object = plan  # callers may pass another type
    if not isinstance(value, ClusterPlan):
        check([Fault("plan", repr(value)[:80], "a ClusterPlan, as plan_cluster returns it")])
    engine = registry.load(plan.engine)
    ship = interrupts.carry_handler_errors(check_before_start)(engine, plan, sync)
    framework = registry.load_framework(plan.engine)
    framework.check_process()
    return interrupts.complete_start(
        partial(engine.start, plan), lambda started: framework.prepare(started, False), ship
    )


@check_call(outcome="nothing was started")
@mark_omitted
def initialize_cluster(
    num_workers: int | tuple[int, int] | Advice | ClusterPlan = 2,
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
    framework: str | None = None,
    budget: float | str | None = None,
    stall_timeout: float | str | None = None,
    oom: Literal["retry", "raise"] | None = None,
    preflight: bool | None = None,
    replace: bool = False,
    sync: bool = False,
    **others: Any,
) -> tuple[Client, Cluster]:
    """Start a Dask cluster and wait until all its workers are connected.

    Parameters
    ----------
    num_workers : int, (int, int), SizingAdvice or ClusterPlan
        Nodes; ``(2, 10)`` adapts with the work; or advice or a plan that sets all sizes.
    local_mode : bool
        Use the local engine, even if another one is configured.
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
        Cores that all worker processes of a node use together.
    scheduler_deploy_mode : {"remote", "local"}
        Where the scheduler runs, for engines that support both. With the local engine it only
        selects which of the documented lines are printed.
    dashboard_port : str or int
        ``"random"`` or a port number.
    logging : {"quiet", "verbose"}
        Print the documented lines only, or also the plan and timings.
    ngpus : int
        GPUs of each node; if ``nprocs`` is left out, one worker process per GPU is planned.
    node_selector : dict or str, optional
        Labels that nodes must have, for engines that support labels.
    scheduler_ram, scheduler_cpu : str, optional
        Memory and cores of the scheduler, such as ``"4Gi"`` and ``"1500m"``.
    engine : str
        Name of an engine, or ``"auto"`` for the first usable one of ``hyperplane.engines.auto``.
    engine_options : dict, optional
        Settings of the engine for this cluster only, such as ``{"hosts": ["a", "b"]}`` for ssh.
    pool : str or PoolSpec, optional
        Type of node. Without a layout, :func:`~hyperplane.fit_workers` chooses one for the pool.
    memory : MemoryPolicy, optional
        Memory thresholds of every worker; the configured ones by default.
    idle_timeout : float or str, optional
        Seconds without use after which the cluster closes, or text such as ``"30 minutes"``.
    name : str, optional
        Name of the cluster; ``dask-cluster-<uuid4>`` by default.
    local_fit : {"fit", "exact"}, optional
        For the local engine: reduce the request to this machine, or start exactly that.
    tuning : str, optional
        Profile of Dask settings: the configured one, ``"fast"``, by default; ``"dask"`` has none.
    framework : str, optional
        ``"dask"`` or ``"ray"``, whose engine may be named by its platform; by default the engine's.
    budget : float or str, optional
        Core-hours, or ``"5 USD"`` if the pool has a price, after which the cluster closes.
    stall_timeout : float or str, optional
        Seconds without progress after which the tasks of a stalled Dask cluster end; 60 by default.
    oom : {"retry", "raise"}, optional
        Whether tasks that run out of memory get more, or run again; ``"retry"`` by default.
    preflight : bool, optional
        Whether the engine checks first what would make the start fail; by default it does.
    replace : bool
        First close the cluster that an earlier run of the same cell or line of code has started;
        with ``name`` also the cluster of that name, in any of your processes.
    sync : bool
        Ship modules that are files of this machine, and editable packages, to all workers.
    **others
        ``ram_gb_proc``; any other name is an error that proposes the nearest argument.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Objects of Dask, or of another framework. Close either or both, in any order.

    Raises
    ------
    RequestError
        With every fault of the request; nothing was started.
    EngineUnavailable
        If the engine cannot be used here.
    StartFailed, StartTimeout
        If the cluster did not start; no process or job of it keeps running.

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
        framework=framework,
        budget=budget,
        stall_timeout=stall_timeout,
        oom=oom,
        preflight=preflight,
    ).with_defaults(others)
    location, closed = replacement.current_location(), []
    replaces = check_flag("replace", False if replace is OMITTED else replace)
    ships = check_flag("sync", False if sync is OMITTED else sync)
    planner = None
    if isinstance(num_workers, ClusterPlan):
        check(find_arguments_beside_plan(initialize_cluster, arguments))
    else:
        arguments = arguments.with_defaults(read_step_arguments(num_workers))
        planner = create_planner("initialize_cluster", arguments, own=("replace", "sync"))
    # Before planning, which counts free memory, and only if the arguments are valid.
    if replaces and (planner is None or planner.has_valid_arguments()):
        closed = replacement.close_previous_clusters(location, None if name is OMITTED else name)
    plan: Any = num_workers if planner is None else planner.plan()
    check_available(registry.load(plan.engine))  # before the first line
    began = time.monotonic()
    start_lines.print_start_lines(plan, closed)
    client, cluster = interrupts.complete_start(
        partial(_start_shown, plan, ships),
        partial(replacement.remember_cluster, location, plan),
        partial(start_lines.print_started, plan, began),
    )
    return client, cluster


def _start_shown(plan: ClusterPlan, ships: bool) -> StartedCluster:
    """Start the cluster of a plan, and show what the start waits for."""
    progress = config.progress()
    with start_progress.show_start(plan, progress.delay_seconds, progress.log_lines):
        return start(plan, ships)


@check_call
@interrupts.carry_handler_errors
def get_cluster(name: str, engine: str | None = None) -> StartedCluster:
    """Connect to a running cluster that any process of this user started.

    Parameters
    ----------
    name : str
        Name of the cluster, ``dask-cluster-<uuid4>``; ``hyperplane cluster list`` shows all.
    engine : str, optional
        Its engine; by default, or with ``"auto"``, the one that started it on this machine.
        Required for clusters on Kubernetes or started on another machine.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Closing the cluster ends it for all its clients.

    Raises
    ------
    EngineError
        If no such cluster runs; the message lists the clusters started on this machine.

    Examples
    --------
    >>> client, cluster = get_cluster("flights")  # doctest: +SKIP
    """
    if not isinstance(name, str) or not name:
        check([Fault("name", repr(name)[:80], "the name of a cluster as a string")])
    engine = find_engine(name) if engine is None or is_one_of(engine, ("auto",)) else engine
    loaded_engine = registry.load(engine)
    framework = registry.load_framework(engine)
    framework.check_process()
    settings = config.engine_settings(engine, loaded_engine.settings)
    started = loaded_engine.connect(name, settings)
    framework.prepare(started, True)
    return started
