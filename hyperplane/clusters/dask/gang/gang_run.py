"""Run of a gang, in the client: reserve slots, start all ranks at once, restart them together."""

from __future__ import annotations

import math
import queue
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client, Future

from hyperplane.clusters.dask.gang.adaptive_minimum import raise_minimum, restore_minimum
from hyperplane.clusters.dask.gang.gang_data import (
    get_share,
    has_unfinished_partitions,
    submit_partitions,
)
from hyperplane.clusters.dask.gang.gang_failure import describe_failure, read_result
from hyperplane.clusters.dask.gang.gang_output import GangOutput
from hyperplane.clusters.dask.gang.rank_supervisor import (
    RankCall,
    RankOutcome,
    count_ranks,
    start_ranks,
    supervise_rank,
)
from hyperplane.clusters.dask.gang.slots import (
    Slot,
    SlotReport,
    release_slots,
    reserve_slots,
)
from hyperplane.clusters.rank_environment import RankAddress
from hyperplane.core.dask_internals.clients import get_adaptive, run_on_workers
from hyperplane.core.errors import Fault, GangFailed, GangTimeout, check
from hyperplane.core.permanent_errors import is_permanent
from hyperplane.core.units import plural

#: Seconds between two looks at the ranks, at their workers, and between two requests for slots
#: at first and later.
_INTERVAL = 0.05
_WORKER_INTERVAL = 0.5
_SLOT_INTERVALS = (0.1, 1.0)
#: Seconds in which other ranks may report an earlier failure than the one that was seen first.
_FAILURE_SECONDS = 0.3
#: Seconds to wait for the end of ranks, and for the workers that replace lost ones.
_END_SECONDS = 20.0
_REPLACEMENT_SECONDS = 120.0
#: Threads that get the outcomes of ranks.
_MOST_GATHERERS = 8
#: Ranks are started before other tasks that wait for the same threads.
_PRIORITY = 1000
#: Bytes of function and arguments above which they are sent to the workers once, not per rank.
_SCATTER_BYTES = 1_000_000


@dataclass(frozen=True)
class GangRequest:
    """Checked arguments of a gang; ``logs`` is True, False or a folder.

    ``count_argument`` is what determines n in the call of the user, for messages.
    """

    function: Callable[..., Any]
    n: int
    args: Sequence[Any] = ()
    data: Any = None
    checkpoints: str = ""
    max_retries: int = 0
    timeout: float | None = None
    logs: bool | Path = True
    environment: Mapping[str, str] = field(default_factory=dict)
    count_argument: str = "n"


def run_gang(client: Client, request: GangRequest) -> list[Any]:
    """Run a gang to its end; return the results in order of rank."""
    with ExitStack() as stack:
        return _GangRun(client, request, stack).run()


class _GangRun:
    def __init__(self, client: Client, request: GangRequest, stack: ExitStack) -> None:
        self._client, self._request = client, request
        self._gang = f"gang-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ready: dict[tuple[int, int], RankAddress] = {}
        self._repeated: set[tuple[int, int]] = set()
        self._deadline = math.inf
        self._adaptive: Any = None
        self._output = stack.enter_context(GangOutput(request.logs, request.n))
        self._gatherers = ThreadPoolExecutor(min(request.n, _MOST_GATHERERS))
        client.subscribe_topic(self._gang, lambda event: self._events.put(event[1]))
        stack.callback(self._close)

    def run(self) -> list[Any]:
        request = self._request
        partitions = submit_partitions(self._client, request.data)
        program = (cloudpickle.dumps(request.function), cloudpickle.dumps(tuple(request.args)))
        error: GangFailed | None = None
        cause: BaseException | None = None
        for attempt in range(request.max_retries + 1):
            if request.timeout is not None:
                self._deadline = time.monotonic() + request.timeout
            try:
                slots = self._reserve(attempt)
                while has_unfinished_partitions(self._client, partitions):
                    self._check_deadline("its partitions are computed")
                    time.sleep(_INTERVAL)
                outcomes = self._run_attempt(attempt, slots, program, partitions)
            except GangTimeout as refusal:
                if error is None:
                    raise
                error.add_note(f"the ranks did not start again: {refusal}")
                raise error from cause
            failures = [outcome for outcome in outcomes if not outcome.is_success]
            if not failures:
                return [
                    read_result(outcome, slot.worker, attempt)
                    for outcome, slot in zip(outcomes, slots, strict=True)
                ]
            first = min(failures, key=lambda outcome: outcome.ended)
            error, cause = describe_failure(first, slots[first.rank].worker, attempt)
            if is_permanent(error):
                break
            if attempt < request.max_retries:
                notice = f"{str(error).splitlines()[0]}; all ranks start again"
                self._output.write_notice(notice)
        assert error is not None  # noqa: S101 - for mypy
        raise error from cause

    def _reserve(self, attempt: int) -> tuple[Slot, ...]:
        began, interval = time.monotonic(), _SLOT_INTERVALS[0]
        while True:
            report: SlotReport = self._client.run_on_scheduler(
                reserve_slots, self._gang, self._client.id, self._request.n
            )
            if report.slots:
                return report.slots
            if report.threads < self._request.n:
                self._scale(report, attempt, time.monotonic() - began)
            self._check_deadline(report.reason)
            time.sleep(interval)
            interval = min(1.5 * interval, _SLOT_INTERVALS[1])

    def _scale(self, report: SlotReport, attempt: int, waited: float) -> None:
        """Let an adaptive cluster grow; raise an error if there will never be enough threads."""
        n, adaptive = self._request.n, get_adaptive(self._client.cluster)
        most = report.threads
        if adaptive is not None:
            # The first worker of a cluster shows how many threads each has.
            threads = max(self._client.nthreads().values(), default=n)
            workers = math.ceil(n / threads)
            if workers <= adaptive.maximum:
                self._adaptive = adaptive
                raise_minimum(adaptive, self._gang, workers)
                return
            most = max(most, adaptive.maximum * threads)
        if attempt:
            if waited < _REPLACEMENT_SECONDS:
                return  # the worker that was lost is being replaced
            raise GangTimeout(
                f"the cluster has had {plural(report.threads, 'thread')} of the {n} needed for "
                f"{waited:.0f} s"
            )
        advice = "start a cluster with more workers or threads, or use fewer processes"
        allowed = f"at most {most}, the threads of the cluster: each process needs one"
        check([Fault(self._request.count_argument, str(n), allowed, advice)])

    def _run_attempt(
        self,
        attempt: int,
        slots: tuple[Slot, ...],
        program: Any,
        partitions: list[Future[Any]] | None,
    ) -> list[RankOutcome]:
        if sum(map(len, program)) > _SCATTER_BYTES:
            program = self._client.scatter(program, hash=False)
        futures = [
            self._client.submit(
                supervise_rank,
                RankCall(
                    self._gang,
                    attempt,
                    rank,
                    slot.host,
                    self._request.checkpoints,
                    self._request.environment,
                    is_printed=self._request.logs is True,
                    is_last=attempt == self._request.max_retries,
                ),
                program,
                get_share(partitions, rank, self._request.n),
                workers=[slot.worker],
                pure=False,
                retries=0,
                priority=_PRIORITY,
                key=f"rank-{rank}-{self._gang}-{attempt}",
            )
            for rank, slot in enumerate(slots)
        ]
        try:
            return self._wait(attempt, slots, futures)
        finally:
            self._end_ranks(slots, futures)

    def _wait(
        self, attempt: int, slots: tuple[Slot, ...], futures: list[Future[Any]]
    ) -> list[RankOutcome]:
        """Return the outcomes of all ranks, or after a failure of those that have ended."""
        started, checked, failed = False, time.monotonic(), math.inf
        outcomes: dict[int, RankOutcome] = {}
        # In threads: Dask waits without end for an outcome that was lost with its worker.
        gathered: dict[int, ThreadFuture[RankOutcome]] = {}
        while len(outcomes) < len(futures) and time.monotonic() < failed:
            self._read_events(_INTERVAL)
            addresses = [self._ready.get((attempt, rank)) for rank in range(len(slots))]
            if not started and None not in addresses:
                started = True
                self._start(attempt, slots, [address for address in addresses if address])
            elif not started:
                self._check_deadline("the threads of its workers run other tasks")
            for rank, future in enumerate(futures):
                if rank not in gathered and future.done():
                    gathered[rank] = self._gatherers.submit(self._read_outcome, rank, future)
            wait(gathered.values(), _INTERVAL)
            for rank, outcome in gathered.items():
                if rank not in outcomes and outcome.done():
                    outcomes[rank] = outcome.result()
            if time.monotonic() - checked > _WORKER_INTERVAL:
                checked = time.monotonic()
                present = self._client.nthreads()
                for rank, slot in enumerate(slots):
                    is_lost = slot.worker not in present or (attempt, rank) in self._repeated
                    if is_lost and rank not in outcomes:
                        reason = "its worker was lost"
                        outcomes[rank] = RankOutcome(rank, time.time(), reason=reason)
            if not all(outcome.is_success for outcome in outcomes.values()):
                failed = min(failed, time.monotonic() + _FAILURE_SECONDS)
        self._read_events(0)
        return [outcomes[rank] for rank in sorted(outcomes)]

    def _read_outcome(self, rank: int, future: Future[Any]) -> RankOutcome:
        if future.cancelled():
            text = f"rank {rank} was cancelled, or the client was closed"
            if self._request.data is not None:
                text += ", or data of client.scatter was lost with its worker"
            raise GangFailed(text, rank=rank)
        error = future.exception()
        if error is None:
            outcome: RankOutcome = future.result()
            return outcome
        summary = f"the worker could not start it: {type(error).__name__}: {error}"
        return RankOutcome(rank, time.time(), reason=summary)

    def _start(self, attempt: int, slots: tuple[Slot, ...], addresses: list[RankAddress]) -> None:
        workers = list({slot.worker for slot in slots})
        # A worker that is lost meanwhile is found by the next check of the workers.
        self._client.run(
            start_ranks, self._gang, attempt, addresses, workers=workers, on_error="ignore"
        )

    def _end_ranks(self, slots: tuple[Slot, ...], futures: list[Future[Any]]) -> None:
        """End the ranks that still run, and wait until their processes have ended."""
        if all(future.status == "finished" for future in futures):
            return
        with suppress(Exception):  # the client or the cluster is closed, which ends them, too
            self._client.cancel(futures, force=True)
            deadline = time.monotonic() + _END_SECONDS
            workers = {slot.worker for slot in slots}
            while time.monotonic() < deadline:
                present = list(workers & self._client.nthreads().keys())
                # A worker that a signal has stopped does not answer.
                left = max(_WORKER_INTERVAL, deadline - time.monotonic())
                counts = run_on_workers(
                    self._client, count_ranks, self._gang, workers=present, seconds=left
                )
                if not any(counts.values()):
                    return
                self._read_events(_INTERVAL)

    def _close(self) -> None:
        self._gatherers.shutdown(wait=False, cancel_futures=True)
        if self._adaptive is not None:
            restore_minimum(self._adaptive, self._gang)
        with suppress(Exception):  # the client is closed: the scheduler has removed all
            self._client.run_on_scheduler(release_slots, self._gang)
            self._client.unsubscribe_topic(self._gang)

    def _check_deadline(self, reason: str) -> None:
        if time.monotonic() > self._deadline:
            raise GangTimeout(
                f"the {self._request.n} processes could not start within the timeout of "
                f"{self._request.timeout:g} s: {reason}"
            )

    def _read_events(self, seconds: float) -> None:
        """Handle the events that arrive within some seconds."""
        deadline = time.monotonic() + seconds
        with suppress(queue.Empty):
            while True:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
                rank, content = event["rank"], event["content"]
                if event["kind"] == "ready":
                    name = (event["attempt"], rank)
                    if name in self._ready:
                        # Dask has repeated the task: another worker has the address of a lost one.
                        self._repeated.add(name)
                    self._ready[name] = RankAddress(*content)
                else:
                    self._output.write_lines(rank, content)
