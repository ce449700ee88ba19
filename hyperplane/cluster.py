"""The route of a cluster: request -> plan -> start -> (client, cluster)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hyperplane import announce, config
from hyperplane.call_arguments import (
    LEFT_OUT,
    Advice,
    advised,
    beside_a_plan,
    checked_flag,
    given_of,
    marks_left_out,
    of_the_step,
    with_merged_policy,
)
from hyperplane.call_sites import call_site, close_previous, remember
from hyperplane.client_config import restore_after
from hyperplane.compat import keep_old_methods
from hyperplane.engines import interrupts, registry
from hyperplane.engines.base import StartedCluster
from hyperplane.errors import EngineUnavailable, Fault, check
from hyperplane.planning import Study
from hyperplane.public_calls import check_call
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import read_request

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


@check_call(outcome="nothing was started")
@marks_left_out
def plan_cluster(num_workers: int | Advice = 2, **arguments: Any) -> ClusterPlan:
    """Work out what :func:`initialize_cluster` would start, without starting anything.

    Parameters
    ----------
    num_workers : int or SizingAdvice
        Nodes, or advice that holds all sizes.
    **arguments
        As for :func:`initialize_cluster`.

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
    return _study("plan_cluster", num_workers, arguments).plan()


def _study(
    function: str, num_workers: int | Advice, arguments: Mapping[str, Any], own: Sequence[str] = ()
) -> Study:
    """What plans the call of a function that has these arguments, and its own besides."""
    explicit = with_merged_policy(arguments)
    given = {} if num_workers is LEFT_OUT else {"num_workers": num_workers}
    if isinstance(num_workers, Advice):
        given = advised(num_workers, explicit)
    names = frozenset("ram_gb_per_proc" if name == "ram_gb_proc" else name for name in explicit)
    request, faults = read_request({**given, **explicit}, function, own)
    return Study(request, faults, explicit=names)


@check_call(outcome="nothing was started")
def start(plan: ClusterPlan) -> StartedCluster:
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
        lambda started: restore_after(started.client),
    )


@check_call(outcome="nothing was started")
@marks_left_out
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
    given = given_of(locals())
    site, closed = call_site(), []
    replaces = checked_flag("replace", given.pop("replace", False))
    study = None
    if isinstance(num_workers, ClusterPlan):
        check(beside_a_plan(initialize_cluster, given))
    else:
        named = {**of_the_step(num_workers), **given}
        nodes = named.pop("num_workers", LEFT_OUT)
        study = _study("initialize_cluster", nodes, named, own=("replace",))
    # Before the plan, which counts what is free; but not for a call whose arguments are wrong.
    if replaces and (study is None or study.has_valid_arguments()):
        closed = close_previous(site, given.get("name"))
    plan: Any = num_workers if study is None else study.plan()
    began = time.monotonic()
    announce.before(plan, closed)
    client, cluster = _complete(
        partial(start, plan),
        partial(remember, site, plan.name),
        lambda started: announce.after(
            plan, started.client.dashboard_link, time.monotonic() - began
        ),
    )
    return client, cluster


@check_call
def get_cluster(name: str, engine: str | None = None) -> StartedCluster:
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
        from hyperplane.engines.attach import find_engine

        engine = find_engine(name)
    found = registry.load(engine)
    _check_not_forked()
    started = found.connect(name, config.engine_settings(engine, found.settings))
    _prepare(started)
    restore_after(started.client, getattr(started.cluster, "settings_key", ""))
    return started


def _check_not_forked() -> None:
    # Imported here: it loads distributed once something is started, and a plan needs none of it.
    from hyperplane.guard import forks

    forks.check_not_forked()


def _prepare(started: StartedCluster) -> None:
    """Add to a client and cluster what holds for all engines."""
    from hyperplane.engines import dask_notices
    from hyperplane.guard import forks

    keep_old_methods(started.client)
    loop: Any = started.client.loop
    dask_notices.drop_interrupted_waits(loop.asyncio_loop)
    forks.guard_forks(started.client, started.cluster)


def _complete(
    begin: Callable[[], StartedCluster], *steps: Callable[[StartedCluster], object]
) -> StartedCluster:
    """Begin a cluster and take further steps; leave nothing when one fails or Ctrl-C comes.

    Ctrl-C interrupts what an engine lets it interrupt, and is put off to the end else: then the
    caller gets no cluster that it could close.
    """
    started: StartedCluster | None = None
    try:
        with interrupts.defer_interrupts():
            started = begin()
            for step in steps:
                step(started)
        return started
    except BaseException:
        if started is not None:
            with interrupts.defer_interrupts():
                _close(started)
        raise


def _close(started: StartedCluster) -> None:
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
    return initialize_cluster(num_workers, **{"pool": config.get_pool(size), **arguments})
