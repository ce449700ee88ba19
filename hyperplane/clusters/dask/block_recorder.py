"""``hyperplane.record``: the record of a block of code that uses a Dask cluster."""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import platform
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hyperplane.core.active_cluster import find_client_faults, get_active_client
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.by_value import find_own_imports, pickled_by_value
from hyperplane.core.errors import Fault, HyperplaneError, check
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.guard.run_recorder import loaded_versions, summarize_plan
from hyperplane.history.program import identify_program
from hyperplane.history.run_record import PlanSummary, RunRecord, new_run_name, to_file_name
from hyperplane.history.store import LATEST, write_run
from hyperplane.spec.plan import ClusterPlan

if TYPE_CHECKING:
    from types import TracebackType

    from distributed import Client, Scheduler

    from hyperplane.guard.block_usage import BlockMonitor

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FORM = "up to 63 letters, digits and . _ -, the first a letter or digit"
#: Longest name of a block with those around it; a longer one is left without them.
_LONGEST = 128
#: Seconds that a scheduler may take to begin and to end a measurement.
_ANSWER_SECONDS = 10.0
#: Name of the innermost block that is open, with those around it.
_open_block: contextvars.ContextVar[str] = contextvars.ContextVar("open_block", default="")


class BlockRecorder:
    """Recorder of a block of code, which :func:`hyperplane.record` returns.

    Attributes
    ----------
    run : RunRecord or None
        The record; None before the end of the block.
    """

    def __init__(self, name: str, client: Client | None) -> None:
        self.name, self._given = name, client
        self.run: RunRecord | None = None
        self._block = ""
        self._started = 0.0
        self._token: contextvars.Token[str] | None = None
        self._client: Client | None = None
        self._monitor: BlockMonitor | None = None

    def __enter__(self) -> BlockRecorder:
        client: Any = get_active_client() if self._given is None else self._given
        faults = find_client_faults(client)
        if self._token is not None:
            advice = "call hyperplane.record again"
            faults.append(Fault("record", repr(self.name), "a block that is not open", advice))
        check(faults)
        outer = _open_block.get()
        block = f"{outer}/{self.name}" if outer else self.name
        self._block = block if len(block) <= _LONGEST else self.name
        self._client, self.run = client, None
        self._monitor = _begin(client, self.name)
        self._token = _open_block.set(self._block)
        self._started = time.time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        del kind, frames
        client, monitor, token = self._client, self._monitor, self._token
        self._client = self._monitor = self._token = None
        if token is not None:
            _open_block.reset(token)
        ended = time.time()
        try:
            usage = _end(client, monitor, self.name)
            self.run = write_run(self._record(client, usage, ended, _describe_end(error)))
        except (OSError, ValueError, RuntimeError, HyperplaneError) as failure:
            # Such as a full disk: the block has its own result or error.
            warn_caller(f"the block {self.name!r} has no record: {failure}")

    def __call__(self, function: Function) -> Function:
        """Return a function whose calls are recorded, each as a block of this name."""
        check(_find_function_faults(function))

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with BlockRecorder(self.name, self._given):
                return function(*args, **kwargs)

        return cast(Function, wrapper)

    def _record(
        self, client: Any, usage: Mapping[str, Any], ended: float, reason: str
    ) -> RunRecord:
        cluster = getattr(client, "cluster", None)
        plan: ClusterPlan | None = getattr(cluster, "cluster_plan", None)
        workers = usage.get("workers", ())
        return RunRecord(
            **{
                **identify_program(),
                "name": new_run_name(to_file_name(self._block), self._started),
                "cluster": str(getattr(cluster, "name", "") or client.id)[:_LONGEST],
                "started": self._started,
                "ended": ended,
                "exit_reason": reason,
                "plan": _summarize_workers(workers) if plan is None else summarize_plan(plan),
                "versions": loaded_versions(),
                "workers": workers,
                "tasks": usage.get("tasks", ()),
                "computations": usage.get("computations", ()),
                "timeline": usage.get("timeline"),
                "block": self._block,
            }
        )


def _describe_end(error: BaseException | None) -> str:
    """Return how a block has ended. Messages of errors may have data, so they are left out."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "done"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"failed: {type(error).__name__}"


def _summarize_workers(workers: Any) -> PlanSummary:
    """Return the layout of a cluster whose plan is not known: that of its largest worker."""
    threads = max((each["nthreads"] for each in workers), default=0)
    limit = max((each["limit"] for each in workers), default=0)
    return PlanSummary(
        framework="dask", nodes=1 if workers else 0, max_nodes=1 if workers else 0,
        nprocs=len(workers), nthreads=threads, ram_per_proc=limit,
    )  # fmt: skip


def _find_function_faults(function: Any) -> list[Fault]:
    if not callable(function):
        return [Fault("function", describe_value(function), "a function")]
    is_later = (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )
    if not is_later:
        return []
    advice = "use `with hyperplane.record(...):` around the code that computes"
    kind = "a coroutine or a generator, whose code runs after the call"
    return [Fault("function", kind, "a function that returns a value", advice)]


def _begin(client: Client, name: str) -> BlockMonitor | None:
    """Let the scheduler measure; return None with a warning if it does not."""
    # They load distributed, which a client has loaded already.
    from hyperplane.guard import block_usage
    from hyperplane.guard.block_usage import BlockMonitor

    monitor = BlockMonitor(uuid.uuid4().hex, client.id)
    scheduler = _find_scheduler(client)
    try:
        _measure_processes(client)
        if scheduler is not None:
            client.sync(_add, scheduler, monitor, callback_timeout=_ANSWER_SECONDS)
        else:
            # Not by value in this process: cloudpickle would replace the methods of the classes.
            modules = () if _is_here(client) else find_own_imports(block_usage)
            with pickled_by_value(*modules):
                client.register_plugin(monitor)
    except Exception as error:  # noqa: BLE001 - the scheduler can raise any exception
        warn_caller(f"the record of {name!r} will have no figures: {_describe(error)}")
        return None
    return monitor


def _find_scheduler(client: Client) -> Scheduler | None:
    """Return the scheduler of a client if its event loop is that of this process."""
    from distributed import Scheduler

    scheduler = getattr(client.cluster, "scheduler", None)
    return scheduler if isinstance(scheduler, Scheduler) else None


def _is_here(client: Client) -> bool:
    """Return whether the scheduler of a client is in this process."""
    # In a container the ID of both may be 1.
    found = [client.run_on_scheduler(each) for each in (os.getpid, platform.node)]
    return found == [os.getpid(), platform.node()]


async def _add(scheduler: Scheduler, monitor: BlockMonitor) -> None:
    await monitor.start(scheduler)
    scheduler.add_plugin(monitor)


def _measure_processes(client: Client) -> None:
    """Let worker processes of a cluster that this package has not started tell what they take."""
    from hyperplane.guard import process_usage
    from hyperplane.guard.process_usage import ProcessUsage

    workers = client.scheduler_info(n_workers=1)["workers"]
    # Workers that are threads of this process would each tell the usage of all of it.
    if getattr(client.cluster, "cluster_plan", None) is None and not any(
        address.startswith("inproc://") for address in workers
    ):
        with pickled_by_value(process_usage):
            client.register_plugin(ProcessUsage())


def _end(client: Any, monitor: BlockMonitor | None, name: str) -> dict[str, Any]:
    """Return the figures of the block; none with a warning if the scheduler does not answer."""
    if monitor is None:
        return {}
    try:
        if client.status != "running":
            raise OSError("the client was closed in it")
        answer = client.sync(
            getattr(client.scheduler, monitor.handler), callback_timeout=_ANSWER_SECONDS
        )
        return dict(answer)
    except Exception as error:  # noqa: BLE001 - the scheduler may have ended
        warn_caller(f"the record of {name!r} has no figures: {_describe(error)}")
        return {}


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


@check_call
def record(name: str, *, client: Client | None = None) -> BlockRecorder:
    """Record what a block of code takes on a Dask cluster, as the run of a cluster is recorded.

    Parameters
    ----------
    name : str
        Name of the block: up to 63 letters, digits and ``. _ -``. In another block it is
        ``outer/name``.
    client : distributed.Client, optional
        Client of the cluster; by default the one that Dask uses when the block begins. Clusters
        that this package has not started are recorded, too.

    Returns
    -------
    BlockRecorder
        A context manager and a decorator. After the block its ``run`` is the
        :class:`~hyperplane.history.RunRecord`, with the tasks, memory, spilled data and time of the
        cluster during the block, those of other clients included.

    Raises
    ------
    RequestError
        If the name is none; at the start of the block, if there is no running cluster.

    Warns
    -----
    UserWarning
        If the scheduler does not return the figures, or the record cannot be written. The block
        itself is not affected.

    Examples
    --------
    >>> import hyperplane
    >>> client, cluster = hyperplane.initialize_cluster(
    ...     num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5
    ... )  # doctest: +ELLIPSIS
    👉 Hyperplane: selecting worker node pool
    ...
    >>> with hyperplane.record("add") as block:
    ...     client.submit(sum, [1, 2, 3]).result()
    6
    >>> block.run.block, block.run.exit_reason, [task.name for task in block.run.tasks]
    ('add', 'done', ['sum'])
    >>> client.close(); cluster.close()
    """
    text: object = name  # callers may pass another type
    faults = []
    if not isinstance(text, str) or not _NAME.fullmatch(text) or text == LATEST:
        advice = 'write @hyperplane.record("name") above the function' if callable(text) else ""
        faults.append(Fault("name", describe_value(text), f"{_FORM}, and not 'latest'", advice))
    if client is not None and not _is_client(client):
        faults.append(Fault("client", describe_value(client), "a distributed.Client or None"))
    check(faults)
    return BlockRecorder(name, client)


def _is_client(value: object) -> bool:
    from distributed import Client

    return isinstance(value, Client)
