"""``init_orca_context``, ``stop_orca_context`` and ``OrcaContext`` on clusters of hyperplane."""

from __future__ import annotations

import atexit
import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any

from dask.system import CPU_COUNT

from hyperplane import config
from hyperplane.cluster import initialize_cluster
from hyperplane.clusters.dask.local.engine import LocalEngine
from hyperplane.clusters.start_lines import BRAND
from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import EngineUnavailable, Fault, UnknownArgument, check
from hyperplane.core.printed_text import print_note
from hyperplane.core.public_calls import check_call, check_names, stating_outcome, warn_caller
from hyperplane.core.units import advise_on_size, bytes_to_gb, format_bytes, parse_bytes, plural
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.readers import NUMBERED_COLUMNS

#: Modes of Orca -> engine.
_ENGINES = {
    "local": "local",
    "k8s": "kubernetes",
    "k8s-client": "kubernetes",
    "k8s-cluster": "kubernetes",
    "kubernetes": "kubernetes",
    "ssh": "ssh",
    "standalone": "ssh",
    "slurm": "slurm",
    "gateway": "gateway",
    "spark-submit": "auto",
    "bigdl-submit": "auto",
    "auto": "auto",
}
#: Arguments of Orca that configure Spark, Ray or Java, and have no effect here.
_SPARK_ONLY = frozenset(
    {
        "additional_archive", "bigdl_executor_gateway", "conf", "container_image", "env",
        "enable_numa_binding", "executor_cores", "extra_executor_memory_for_ray", "extra_params",
        "extra_python_lib", "hadoop_conf", "hadoop_user_name", "include_webui",
        "init_executor_gateway", "init_ray_on_spark", "jars", "master", "object_store_memory",
        "penv_archive", "python_location", "redirect_spark_log", "runtime", "spark_log_level",
        "spark_yarn_archive", "system_config", "ray_node_cpu_cores", "conda_name", "driver_cores",
        "extra_memory_for_ray",
    }
)  # fmt: skip
#: Client, cluster, and the sizes that were requested: cores, memory and number of nodes.
_CLUSTERS: list[tuple[Any, Any, tuple[Any, ...]]] = []
#: Default values of cores, memory and num_nodes.
_DEFAULTS = (2, "2g", 1)
_STORES = re.compile(r"DRAM|PMEM|DISK_\d+")


def init_orca_context(
    cluster_mode: str | None = "local",
    cores: int | str | None = 2,
    memory: str = "2g",
    num_nodes: int = 1,
    init_ray_on_spark: bool = False,
    **kwargs: Any,
) -> Any:
    """Start a cluster with the arguments of Orca, or return the client of the running one.

    Parameters
    ----------
    cluster_mode : str, optional
        ``"local"``, ``"k8s-client"`` or ``"k8s-cluster"`` (engine kubernetes), ``"standalone"``
        (engine ssh), ``"ssh"``, ``"slurm"``, ``"gateway"``, or ``"spark-submit"`` (the configured
        engine).
    cores : int or "*", optional
        Cores of each node, and as many worker processes; ``"*"`` or None for all of this machine.
        ``"local"`` starts at most one process for each core.
    memory : str
        Memory of each node, such as ``"10g"``, which its processes share; with ``"local"`` at most
        what is free.
    num_nodes : int
        Number of nodes; 1 for ``"local"``.
    init_ray_on_spark : bool
        No effect.
    **kwargs
        Arguments of :func:`~hyperplane.initialize_cluster`, and ``driver_memory``, the memory of
        the scheduler. Settings of Spark, such as ``conf``, cause a warning and have no effect.

    Returns
    -------
    distributed.Client

    Raises
    ------
    RequestError
        With every invalid argument; nothing was started.

    Examples
    --------
    >>> client = init_orca_context("local", cores=1, memory="500m")  # doctest: +ELLIPSIS
    Initializing orca context
    ...
    >>> stop_orca_context()
    Stopping orca context
    """
    client = OrcaContext.get_client()
    if client is not None:
        requested, running = (cores, memory, num_nodes), _CLUSTERS[-1][2]
        if requested not in (_DEFAULTS, running):
            sizes = "cores={!r}, memory={!r}, num_nodes={!r}".format(*running)
            _note(f"returns the running cluster ({sizes}); stop_orca_context() ends it")
        return client
    mode = "local" if cluster_mode is None else cluster_mode
    mode = mode.lower() if isinstance(mode, str) else mode
    faults = []
    engine = _ENGINES.get(mode) if isinstance(mode, str) else None
    if engine is None:
        advice = (
            "there is no engine for YARN; use ssh or slurm"
            if isinstance(mode, str) and "yarn" in mode
            else ""
        )
        allowed = "one of " + ", ".join(_ENGINES)
        faults.append(Fault("cluster_mode", repr(cluster_mode)[:80], allowed, advice))
    is_all = cores is None or (isinstance(cores, str) and cores == "*")
    count: Any = CPU_COUNT if is_all else cores
    faults += find_count_faults("cores", count)
    node_faults = find_count_faults("num_nodes", num_nodes)
    faults += node_faults
    if not node_faults and engine == "local" and num_nodes != 1:
        faults.append(Fault("num_nodes", repr(num_nodes), "1 for cluster_mode='local'"))
    size = 0
    try:
        size = parse_bytes(memory)
    except (ValueError, TypeError, AttributeError):
        advice = advise_on_size(str(memory))
        faults.append(Fault("memory", repr(memory)[:80], "a size such as '2g'", advice))
    check(faults)
    arguments = _translate_arguments({**kwargs, "init_ray_on_spark": init_ray_on_spark}, engine)
    sys.stdout.write("Initializing orca context\n")
    if engine == "local" and arguments.get("local_fit") != "exact":
        # With fewer processes or less memory than requested, they share all of it.
        wanted = count, size
        count, size = min(count, CPU_COUNT), min(size, _find_usable_memory())
        if size < wanted[1] or (count < wanted[0] and not is_all):
            asked = f"{plural(wanted[0], 'core')} and {format_bytes(wanted[1])}"
            given = f"{plural(count, 'core')} and {format_bytes(size)}"
            _note(f"asked for {asked}; this machine gives {given}")
    defaults = {
        "num_workers": num_nodes,
        "engine": engine,
        "nprocs": count,
        "nthreads": 1,
        "cores_per_worker": count,
        "ram_gb_per_proc": bytes_to_gb(size) / count,
        "logging": "verbose" if OrcaContext.log_output else "quiet",
    }
    try:
        started = initialize_cluster(**{**defaults, **arguments})
    except UnknownArgument as error:
        _refuse_names(error, kwargs)
        raise
    _CLUSTERS.append((*started, (cores, memory, num_nodes)))
    atexit.register(stop_orca_context)
    return started[0]


def _note(text: str) -> None:
    print_note(f"{BRAND} {text}")


def _find_usable_memory() -> int:
    """Return the bytes that a cluster on this machine gets for certain."""
    engine = LocalEngine()
    capacity = engine.capacity(config.engine_settings(engine.name, engine.settings))
    # Less than what is usable now: the planner measures again, and would start fewer processes.
    return round(0.95 * capacity.ram)


def _refuse_names(error: UnknownArgument, kwargs: Mapping[str, Any]) -> None:
    """Raise UnknownArgument with the arguments of Orca and of ``initialize_cluster``."""
    refused = {fault.where for fault in error.faults}
    unknown = {name: value for name, value in kwargs.items() if name in refused}
    functions = (init_orca_context, initialize_cluster)
    known = dict.fromkeys(
        name
        for function in functions
        for name, each in inspect.signature(function).parameters.items()
        if each.kind is not each.VAR_KEYWORD
    )
    with stating_outcome("nothing was started"):
        check_names(unknown, [*known, "driver_memory"], "init_orca_context")


def _translate_arguments(kwargs: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    """Return arguments of ``initialize_cluster``; warn about those of Spark."""
    unused = [
        name
        for name, value in kwargs.items()
        if name in _SPARK_ONLY and value is not None and value is not False
    ]
    if unused:
        image = ""
        if engine == "kubernetes" and "container_image" in unused:
            image = (
                "; give an image with Dask and this Python version as hyperplane.engines."
                'kubernetes.image or engine_options={"image": "..."}'
            )
        warn_caller(f"no effect without Spark: {', '.join(unused)}{image}")
    arguments = {name: value for name, value in kwargs.items() if name not in _SPARK_ONLY}
    if isinstance(arguments.get("driver_memory"), str):
        arguments["scheduler_ram"] = arguments.pop("driver_memory").upper().removesuffix("B")
    return arguments


@check_call
def stop_orca_context() -> None:
    """Close the cluster of :func:`init_orca_context`; without one nothing happens."""
    atexit.unregister(stop_orca_context)
    if not _CLUSTERS:
        return
    sys.stdout.write("Stopping orca context\n")
    while _CLUSTERS:
        client, cluster, _ = _CLUSTERS.pop()
        client.close()
        cluster.close()


class _Settings(type):
    """Settings as properties of the class, as in Orca."""

    def __init__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> None:
        super().__init__(name, bases, names)
        cls._values: dict[str, Any] = {
            "log_output": False,
            "pandas_read_backend": "spark",
            "serialize_data_creator": False,
            "train_data_store": "DRAM",
            "barrier_mode": True,
        }

    def __getattr__(cls, name: str) -> Any:
        if name == "_eager_mode":
            return tasks.EAGER.is_set()
        try:
            return cls._values[name]
        except KeyError:
            raise AttributeError(f"OrcaContext has no setting {name!r}") from None

    def __setattr__(cls, name: str, value: Any) -> None:
        if name == "_values":
            super().__setattr__(name, value)
            return
        check(_find_setting_faults(name, value, cls._values))
        if name == "_eager_mode":
            (tasks.EAGER.set if value else tasks.EAGER.clear)()
        else:
            cls._values[name] = value
        if name == "pandas_read_backend":
            is_pandas = value.lower() == "pandas"
            (NUMBERED_COLUMNS.set if is_pandas else NUMBERED_COLUMNS.clear)()


def _find_setting_faults(name: str, value: Any, known: Mapping[str, Any]) -> list[Fault]:
    where = f"OrcaContext.{name}"
    if name == "pandas_read_backend":
        text = isinstance(value, str) and value.lower()
        return [] if text in ("spark", "pandas") else [Fault(where, repr(value), "spark or pandas")]
    if name == "train_data_store":
        is_valid = isinstance(value, str) and _STORES.fullmatch(value.upper())
        return [] if is_valid else [Fault(where, repr(value), "DRAM, PMEM or DISK_n")]
    if name not in (*known, "_eager_mode"):
        return [Fault(where, repr(value)[:80], "one of the settings " + ", ".join(known))]
    return [] if isinstance(value, bool) else [Fault(where, repr(value)[:80], "True or False")]


class OrcaContext(metaclass=_Settings):
    """Settings of Orca, as attributes of the class.

    ``log_output`` makes the start of a cluster verbose. ``_eager_mode`` computes new shards at
    once, except selections; unlike in Orca it is False by default. ``pandas_read_backend`` decides
    on the names of columns of CSV files without a header only: the readers always use pandas.
    ``serialize_data_creator``, ``train_data_store`` and ``barrier_mode`` accept Orca's values and
    have no effect: workers spill to disk.

    Examples
    --------
    >>> OrcaContext.pandas_read_backend = "pandas"
    >>> OrcaContext.pandas_read_backend
    'pandas'
    """

    @staticmethod
    def get_client() -> Any:
        """Return the client of the running cluster of :func:`init_orca_context`, or None."""
        while _CLUSTERS and _CLUSTERS[-1][0].status != "running":
            _CLUSTERS.pop()
        return _CLUSTERS[-1][0] if _CLUSTERS else None

    @staticmethod
    def get_spark_context() -> Any:
        """Raise EngineUnavailable: there is no Spark."""
        return _refuse("spark")

    get_sql_context = get_spark_session = get_spark_context

    @staticmethod
    def get_ray_context() -> Any:
        """Raise EngineUnavailable: there is no Ray."""
        return _refuse("ray")


def _refuse(name: str) -> Any:
    reason = "shards are on a Dask cluster; OrcaContext.get_client() returns its client"
    raise EngineUnavailable(name, reason)
