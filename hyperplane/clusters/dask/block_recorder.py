"""``hyperplane.record``: the record of a block of code that uses a Dask cluster."""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hyperplane.clusters.dask.block_measurement import (
    describe_error,
    end_measurement,
    start_measurement,
    warn,
)
from hyperplane.core.active_cluster import find_client_faults, get_active_client
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.guard.run_recorder import loaded_versions, summarize_plan
from hyperplane.history.program import digest_program, identify_program
from hyperplane.history.run_record import PlanSummary, RunRecord, new_run_name, to_file_name
from hyperplane.history.store import LATEST, write_run
from hyperplane.spec.plan import ClusterPlan

if TYPE_CHECKING:
    from types import TracebackType

    from distributed import Client

    from hyperplane.guard.block_usage import BlockMonitor

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FORM = "up to 63 letters, digits and . _ -, the first a letter or digit"
#: Longest name of a block with those around it; of a longer one the outer names are left out.
_LONGEST = 128


class _OpenBlock:
    """One use of a recorder, from its begin to its end."""

    def __init__(self, name: str) -> None:
        self.outer: _OpenBlock | None = _find_open(_innermost.get())
        full: str = f"{self.outer.name}/{name}" if self.outer else name
        while len(full) > _LONGEST:
            full = full.partition("/")[2]
        self.name: str = full
        self.is_open = True
        self.process = os.getpid()
        self.client: Any = None
        self.monitor: BlockMonitor | None = None
        self.started = time.time()
        self.code = digest_program()

    def close(self) -> None:
        """End the block; later ones of this thread or task are no longer within it."""
        # No token: a generator may end in another thread or task, where the variable has its
        # value of there, and blocks may end in another order than that of their begins.
        self.is_open = False
        if _innermost.get() is self:
            _innermost.set(_find_open(self.outer))


def _find_open(block: _OpenBlock | None) -> _OpenBlock | None:
    """Return a block, or the innermost one around it that is open."""
    while block is not None and not block.is_open:
        block = block.outer
    return block


#: Innermost block of this thread or task, which another one may have closed.
_innermost: contextvars.ContextVar[_OpenBlock | None] = contextvars.ContextVar(
    "innermost_block", default=None
)
#: Held while a recorder is claimed for a block, so that threads cannot use it at a time.
_claiming = threading.Lock()


class BlockRecorder:
    """Recorder of a block of code, which :func:`hyperplane.record` returns; prints as its record.

    Attributes
    ----------
    run : RunRecord or None
        The record; None before the end of the block.
    """

    def __init__(self, name: str, client: Client | None) -> None:
        self.name, self._given = name, client
        self.run: RunRecord | None = None
        self._open: _OpenBlock | None = None

    def __repr__(self) -> str:
        return f"record({self.name!r})" if self.run is None else repr(self.run)

    def __str__(self) -> str:
        return repr(self) if self.run is None else str(self.run)

    def _repr_html_(self) -> str | None:
        return None if self.run is None else self.run._repr_html_()

    def __enter__(self) -> BlockRecorder:
        with _claiming:
            if self._open is not None:
                advice = "call hyperplane.record for each block"
                allowed = "a recorder of which no block is open"
                check([Fault("record", repr(self.name), allowed, advice)])
            block = self._open = _OpenBlock(self.name)
        self.run = None
        try:
            client: Any = get_active_client() if self._given is None else self._given
            check(find_client_faults(client))
            block.client = client
            block.monitor = start_measurement(client, self.name)
        except BaseException:
            self._open = None
            raise
        _innermost.set(block)
        block.started = time.time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        del kind, frames
        ended = time.time()
        block, self._open = self._open, None
        try:
            if block is None:
                raise ValueError("it was not open")
            block.close()
            if block.process != os.getpid():
                return  # a fork of the process of the block, which will write the record
            usage = end_measurement(block.client, block.monitor, self.name)
            self.run = write_run(_make_record(block, usage, ended, _describe_end(error)))
        except Exception as failure:  # noqa: BLE001 - the block has its own result or error
            # Such as a full disk.
            warn(f"the block {self.name!r} has no record: {describe_error(failure)}")

    def __call__(self, function: Function) -> Function:
        """Return a function whose calls are recorded, each as a block of this name."""
        check(_find_function_faults(function))
        name, client = self.name, self._given

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with BlockRecorder(name, client):
                return function(*args, **kwargs)

        return cast(Function, wrapper)


def _make_record(
    block: _OpenBlock, usage: Mapping[str, Any], ended: float, reason: str
) -> RunRecord:
    client = block.client
    cluster = getattr(client, "cluster", None)
    return RunRecord(
        **{
            **identify_program(),
            "name": new_run_name(to_file_name(block.name), block.started),
            "cluster": str(getattr(cluster, "name", "") or client.id)[:_LONGEST],
            "started": block.started,
            "ended": ended,
            "exit_reason": reason,
            "plan": _find_plan(cluster, usage),
            "versions": loaded_versions(),
            "workers": usage.get("workers", ()),
            "tasks": usage.get("tasks", ()),
            "computations": usage.get("computations", ()),
            "timeline": usage.get("timeline"),
            "block": block.name,
            "code": block.code,
        }
    )


def _describe_end(error: BaseException | None) -> str:
    """Return how a block has ended. Messages of errors may have data, so they are left out."""
    # A generator that is closed before its end has no fault.
    if error is None or isinstance(error, GeneratorExit):
        return "done"
    if isinstance(error, SystemExit) and not error.code:
        return "done"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"failed: {type(error).__name__}"


def _find_plan(cluster: Any, usage: Mapping[str, Any]) -> PlanSummary:
    """Return the plan of a cluster; without one, the number and the size of its workers."""
    plan: ClusterPlan | None = getattr(cluster, "cluster_plan", None)
    if plan is not None:
        return summarize_plan(plan)
    if usage.get("plan"):  # another process has started it, perhaps of another version
        known = {name: usage["plan"].get(name) for name in PlanSummary.model_fields}
        return PlanSummary(**{name: each for name, each in known.items() if each is not None})
    workers = usage.get("workers", ())
    # Of nodes nothing is known: they are 0.
    return PlanSummary(
        framework="dask",
        nprocs=len(workers),
        nthreads=max((each["nthreads"] for each in workers), default=0),
        ram_per_proc=max((each["limit"] for each in workers), default=0),
    )


def _find_function_faults(function: Any) -> list[Fault]:
    if not callable(function):
        return [Fault("function", describe_value(function), "a function")]
    if isinstance(function, type):
        advice = "write @hyperplane.record above its methods"
        return [Fault("function", describe_value(function), "a function, not a class", advice)]
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


@check_call
def record(name: str, *, client: Client | None = None) -> BlockRecorder:
    """Record what a block of code takes on a Dask cluster, as the run of a cluster is recorded.

    Parameters
    ----------
    name : str
        Name of the block: up to 63 letters, digits and ``. _ -``. In another block it is
        ``outer/name``; of names with together more than 128 characters the outer ones are left out.
    client : distributed.Client, optional
        Client of the cluster; by default the one that Dask uses when the block begins. Clusters
        that this package has not started are recorded, too.

    Returns
    -------
    BlockRecorder
        A context manager and a decorator. After the block its ``run`` is the
        :class:`~hyperplane.history.RunRecord`, with the tasks, memory, spilled data and time of the
        cluster during the block, those of other clients included. Processes that are forked in the
        block write no record.

    Raises
    ------
    RequestError
        If the name is none; at the start of the block, if there is no running cluster, or if
        another block of the same recorder is open.

    Warns
    -----
    UserWarning
        If the scheduler does not answer within ten seconds at the start or the end of the block, or
        the record cannot be written. The block itself is not affected.

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
