"""End the calls of a client that wait for a scheduler which does not answer.

A scheduler process that is stopped (SIGSTOP), or waits for a disk that does not answer, keeps its
connections open, and a client of Dask waits for it forever. The watch of a client asks the
scheduler every few seconds. If there is no answer for a time, pending futures and calls end with a
``SchedulerUnreachable``. The client stays open, and works again when the scheduler answers.

The event loop of a scheduler that receives a large graph may be busy for minutes. Where the state
of its process can be read, a process that uses CPU time therefore has more time; where it cannot,
so does every scheduler.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from distributed.comm.core import CommClosedError
from tornado.ioloop import PeriodicCallback

from hyperplane.core.dask_internals import client_connections
from hyperplane.guard.scheduler_unreachable import SchedulerUnreachable

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

#: Most seconds between two checks, and most seconds for one answer.
INTERVAL, ANSWER_SECONDS = 5.0, 20.0
#: Seconds without an answer that a scheduler has besides ``stall_timeout``.
GRACE_SECONDS = 30.0
#: The same if the state of its process is unknown, and if the process uses CPU time.
UNKNOWN_SECONDS, BUSY_SECONDS = 300.0, 1800.0
#: Share of one core below which a process counts as waiting.
_IDLE_CPU = 0.03
#: State of a stopped process in ``/proc/PID/stat``, and the same for one that is traced.
_STOPPED_STATES = ("T", "t")

#: Returns the text of ``/proc/PID/stat`` of the scheduler; empty if it cannot be read.
ReadProcess = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class ProcessSample:
    """State of a process and the CPU time that it has used, in ticks of 10 ms."""

    state: str
    ticks: int

    @classmethod
    def parse(cls, text: str) -> ProcessSample | None:
        """Return the sample in the text of ``/proc/PID/stat``; None if there is none.

        Examples
        --------
        >>> ProcessSample.parse("41 (dask (sched)) T 1 1 1 0 -1 0 9 9 9 9 250 50 0 0")
        ProcessSample(state='T', ticks=300)
        """
        words = text.rpartition(")")[2].split()
        try:
            return cls(words[0], int(words[11]) + int(words[12]))
        except (IndexError, ValueError):
            return None


class SchedulerWatch:
    """Watch of one client and its scheduler.

    Parameters
    ----------
    client : Client
        A client that is connected.
    cluster : str
        Name of its cluster.
    timeout : float or None
        Seconds that the scheduler may be silent, besides :data:`GRACE_SECONDS`; None for any time.
    read_process : callable, optional
        Returns the state of the scheduler's process.
    """

    def __init__(
        self,
        client: Client,
        cluster: str,
        timeout: float | None,
        read_process: ReadProcess | None = None,
    ) -> None:
        self.cluster, self.timeout = cluster, timeout
        self._client = weakref.ref(client)
        self._calls = client_connections.replace_calls(client, self._watch_call)
        self._address: str = self._calls.address
        self._read_process = read_process
        self._silent = 0.0
        self._samples: list[tuple[float, ProcessSample]] = []
        self._is_silent = asyncio.Event()
        self._probe: asyncio.Task[bool] | None = None
        self._reading: asyncio.Task[None] | None = None
        client_connections.precede_reconnection(client, self._end_disconnected)
        self._interval = INTERVAL if timeout is None else min(INTERVAL, timeout / 4)
        if timeout is not None:
            self._checked = time.monotonic()
            check = PeriodicCallback(self.check, self._interval * 1000)
            client_connections.add_periodic_check(client, "hyperplane-scheduler-watch", check)

    async def check(self) -> None:
        """Count the time without an answer, and end what waits after too long a time."""
        now = time.monotonic()
        passed = now - self._checked
        self._checked = now
        client = self._client()
        if client is None or client.status != "running":  # Dask connects again, in limited time
            self._silent, self._samples = 0.0, []
            return
        probe = self._probe
        if passed > 2 * self._interval:
            # This program was stopped, or its event loop busy: an answer may have been here for
            # long, and the time limit of the probe has passed without a look at the connection.
            if probe is not None:
                probe.cancel()
            self._probe = asyncio.create_task(self._ask())
            return
        if probe is None or probe.done():
            if probe is not None and not probe.result():
                self._silent += passed
            self._probe = asyncio.create_task(self._ask())
        else:
            self._silent += passed
        if self._silent > 2 * self._interval:
            self._sample_process()
        if self._silent >= self._limit():
            self._end_silent(client)

    async def _ask(self) -> bool:
        """Return whether the scheduler answers, by another connection than the client's stream."""
        try:
            await asyncio.wait_for(self._calls.identity(n_workers=0), ANSWER_SECONDS)
        except (TimeoutError, OSError):
            return False
        except Exception as error:  # noqa: BLE001 - raised by the scheduler, which answers so
            logger.debug("the scheduler of cluster %s answers with %r", self.cluster, error)
        self._note_answer()
        return True

    def _note_answer(self) -> None:
        if self._is_silent.is_set():
            logger.warning("the scheduler of cluster %s answers again", self.cluster)
        self._silent, self._samples = 0.0, []
        self._is_silent.clear()

    def _sample_process(self) -> None:
        if self._read_process is not None and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_sample(self._read_process))

    async def _read_sample(self, read: ReadProcess) -> None:
        try:
            sample = ProcessSample.parse(await asyncio.wait_for(read(), ANSWER_SECONDS))
        except Exception:  # noqa: BLE001 - the state of the process is unknown
            sample = None
        if sample is not None:
            self._samples.append((time.monotonic(), sample))

    def _state(self) -> Literal["stopped", "idle", "busy", ""]:
        """Return the state of the scheduler's process since it is silent; empty if unknown."""
        if len(self._samples) < 2:
            return ""
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        if last.state in _STOPPED_STATES:
            return "stopped"
        used = (last.ticks - first.ticks) / 100
        return "busy" if used >= _IDLE_CPU * (ended - began) else "idle"

    def _limit(self) -> float:
        limit = (self.timeout or 0.0) + GRACE_SECONDS
        state = self._state()
        if state in ("stopped", "idle"):
            return limit
        return max(limit, BUSY_SECONDS if state == "busy" else UNKNOWN_SECONDS)

    def _end_silent(self, client: Client) -> None:
        if not self._is_silent.is_set():
            logger.error("calls end with SchedulerUnreachable: %s", self._silent_error())
        self._is_silent.set()
        client_connections.end_pending_futures(client, self._silent_error)

    def _silent_error(self, key: Any = "") -> SchedulerUnreachable:
        what = {
            "stopped": "its process is stopped (SIGSTOP). Continue it (kill -CONT)",
            "idle": "its process runs but uses no CPU time: it may wait for a disk or a network "
            "file system. Look at it",
            "busy": "its process is busy. Wait",
            "": "its process may be stopped, its machine suspended, or the network in between "
            "may have failed. Look at it",
        }[self._state()]
        return SchedulerUnreachable(
            f"the scheduler of cluster {self.cluster!r} ({self._address}) has not answered for "
            f"{self._silent:.0f} s, but the connection to it is open: {what}, and then run the "
            "computation again; or close the cluster and start a new one",
            "silent",
            self._silent,
            key,
        )

    def _end_disconnected(self) -> None:
        client = self._client()
        if client is not None:
            client_connections.cancel_futures(client, self._disconnected_error)

    def _disconnected_error(self, key: Any = "") -> SchedulerUnreachable:
        return SchedulerUnreachable(
            f"the connection to the scheduler of cluster {self.cluster!r} ({self._address}) was "
            "closed, and the scheduler has released the results of this client. If the scheduler "
            "still runs, the client connects again: run the computation again. Otherwise start a "
            "new cluster",
            "disconnected",
            key=key,
        )

    def _watch_call(
        self, call: client_connections.SchedulerCall
    ) -> client_connections.SchedulerCall:
        """Return a call to the scheduler that ends when the scheduler is silent for too long."""

        async def watched(**kwargs: Any) -> Any:
            task = asyncio.ensure_future(call(**kwargs))
            stream = self._stream()
            try:
                while not task.done():
                    await client_connections.wait_for_either(task, self._is_silent)
                    if not task.done():  # it may be answering again
                        await asyncio.wait({task}, timeout=self._interval)
                    if not task.done() and self._is_silent.is_set():
                        raise self._silent_error()
                result = task.result()
            except CommClosedError as error:
                if isinstance(error, SchedulerUnreachable) or await self._is_connected(stream):
                    raise
                raise self._disconnected_error() from error
            finally:
                task.cancel()
            self._note_answer()
            return result

        return watched

    def _stream(self) -> Any:
        client = self._client()
        return None if client is None else client.scheduler_comm

    async def _is_connected(self, stream: Any) -> bool:
        """Return whether the client still has the same stream, and the scheduler answers.

        Then it was the scheduler that raised the error of a closed connection, that to a worker.
        """
        asking = asyncio.create_task(self._ask())
        try:
            while self._has_stream(stream) and not asking.done():
                await asyncio.wait({asking}, timeout=0.1)
            # Its end may have been read before the answer.
            return self._has_stream(stream) and asking.result()
        finally:
            asking.cancel()

    def _has_stream(self, stream: Any) -> bool:
        client = self._client()
        if client is None or client.status != "running" or client.scheduler_comm is not stream:
            return False
        return stream is not None and not client.scheduler_comm.closed()
