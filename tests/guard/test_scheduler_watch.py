"""A scheduler that does not answer, or whose connection is closed, ends the calls of its client."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, WorkerPlugin, as_completed, wait
from distributed.client import FuturesCancelledError
from distributed.comm.core import CommClosedError
from subprograms import wait_until

from hyperplane.clusters.dask import versions, wait_for_workers
from hyperplane.errors import SchedulerUnreachable, StartFailed
from hyperplane.guard import scheduler_watch
from hyperplane.guard.scheduler_watch import ProcessSample, SchedulerWatch
from hyperplane.spec.settings import RemoteSettings

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of Linux"),
    # Dask's client does not close the socket of an attempt to connect again that it gives up.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SOON = 120.0
#: A scheduler with one worker in separate processes, which have not this package.
SCHEDULER = """
import asyncio, os, sys
sys.modules["hyperplane"] = None  # cannot be imported
from distributed import Nanny, Scheduler

async def main():
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    async with Scheduler(port=0, **local) as scheduler:
        async with Nanny(scheduler.address, nthreads=20, memory_limit=0, **local):
            print(scheduler.address, flush=True)
            await asyncio.to_thread(sys.stdin.read)

if __name__ == "__main__":
    asyncio.run(main())
"""


class SchedulerProgram:
    """A scheduler process that can be stopped."""

    def __init__(self, folder: Path) -> None:
        program = folder / "program.py"
        program.write_text(SCHEDULER)
        self.process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    async def read(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text()

    def close(self) -> None:
        self.go_on()
        self.process.communicate("", timeout=SOON)


@pytest.fixture(autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect such sockets before the next file, which does not ignore the warning."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProgram]:
    started = SchedulerProgram(tmp_path_factory.mktemp("scheduler"))
    yield started
    started.close()


@pytest.fixture
def scheduler(program: SchedulerProgram) -> Iterator[SchedulerProgram]:
    yield program
    program.go_on()


@pytest.fixture
def client(scheduler: SchedulerProgram) -> Iterator[Client]:
    with Client(scheduler.address, set_as_default=False) as connected:
        yield connected
        scheduler.go_on()


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 1.0)


def watch(client: Client, scheduler: SchedulerProgram, timeout: float = 2.0) -> SchedulerWatch:
    return SchedulerWatch(client, "flights", timeout, scheduler.read)


@pytest.mark.slow
def test_a_stopped_scheduler_ends_what_waits_and_the_client_works_when_it_continues(
    client: Client,
    scheduler: SchedulerProgram,
    short_limits: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = watch(client, scheduler)
    kept = client.submit(sum, [1, 2], pure=False)
    assert kept.result(SOON) == 3
    running = client.submit(time.sleep, 1000, pure=False)
    later = as_completed([client.submit(time.sleep, 1001, pure=False)], loop=client.loop)
    scheduler.stop()
    with pytest.raises(SchedulerUnreachable, match="process is stopped") as caught:
        running.result(SOON)
    assert caught.value.cause == "silent"
    assert caught.value.seconds >= 3
    assert "'flights'" in str(caught.value)
    assert next(later).status == "error"
    with pytest.raises(SchedulerUnreachable):
        client.gather([kept])
    with pytest.raises(SchedulerUnreachable):
        client.submit(sum, [3, 4], pure=False).result(SOON)
    with pytest.raises(SchedulerUnreachable):
        client.run_on_scheduler(int)
    monkeypatch.undo()  # the scheduler of a busy machine may have needed the longer time
    scheduler.go_on()
    wait_until(lambda: not watching._is_silent.is_set(), SOON)
    assert client.gather([kept], errors="raise") == [3], "the result is still there"
    assert client.submit(sum, [1, 4], pure=False).result(SOON) == 5


@pytest.mark.slow
def test_a_stopped_scheduler_ends_a_start(
    client: Client, scheduler: SchedulerProgram, short_limits: None
) -> None:
    """While it waits for workers, and while it compares versions."""
    request: Any = SimpleNamespace(timeout=1000.0)
    plan: Any = SimpleNamespace(request=request, dask_workers=2)
    settings = RemoteSettings()
    versions.check(client, "ssh", settings, SOON)
    scheduler.stop()
    with pytest.raises(StartFailed, match="or a worker that it asks, did not answer within 1 s"):
        versions.check(client, "ssh", settings, 1.0)
    watch(client, scheduler)
    with pytest.raises(SchedulerUnreachable, match="process is stopped"):
        versions.check(client, "ssh", settings, 1000.0)
    with pytest.raises(SchedulerUnreachable, match="process is stopped"):
        wait_for_workers._wait_for_workers(client, plan, time.monotonic(), lambda: "")


@pytest.mark.slow
def test_a_scheduler_that_continues_in_time_loses_nothing(
    client: Client, scheduler: SchedulerProgram
) -> None:
    watching = watch(client, scheduler)
    futures = client.map(lambda number: time.sleep(0.2) or number, range(10), pure=False)
    scheduler.stop()
    wait_until(lambda: watching._silent > 2, SOON)
    scheduler.go_on()
    assert client.gather(futures) == list(range(10))


@pytest.mark.slow
def test_a_busy_scheduler_has_more_time(
    client: Client, scheduler: SchedulerProgram, short_limits: None
) -> None:
    def compute() -> int:
        until = time.monotonic() + 12
        while time.monotonic() < until:
            pass
        return 7

    watching = watch(client, scheduler)
    longest = 0.0
    done = threading.Event()

    def follow() -> None:
        nonlocal longest
        while not done.wait(0.05):
            longest = max(longest, watching._silent)

    following = threading.Thread(target=follow)
    following.start()
    try:
        assert client.run_on_scheduler(compute) == 7
    finally:
        done.set()
        following.join()
    assert longest > 3, "longer than a stopped scheduler has"


@pytest.mark.slow
def test_a_scheduler_whose_process_cannot_be_read_has_more_time(
    client: Client, scheduler: SchedulerProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(scheduler_watch, "UNKNOWN_SECONDS", 6.0)
    SchedulerWatch(client, "flights", 1.0)
    future = client.submit(time.sleep, 1000, pure=False)
    scheduler.stop()
    with pytest.raises(SchedulerUnreachable, match="machine suspended") as caught:
        future.result(SOON)
    assert caught.value.seconds >= 6


def test_a_stopped_program_does_not_count_the_time(
    client: Client, scheduler: SchedulerProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = watch(client, scheduler)
    wait_until(lambda: watching._probe is not None, SOON)

    async def check_later() -> bool:
        async def never() -> bool:
            await asyncio.sleep(1000)
            return False

        before = watching._silent
        watching._probe = asyncio.create_task(never())
        watching._checked -= 1000
        await watching.check()
        assert watching._silent == before
        return await watching._probe

    assert client.sync(check_later, callback_timeout=SOON), "another probe has an answer"


@pytest.mark.slow
def test_a_busy_client_does_not_count_the_time(
    client: Client, scheduler: SchedulerProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(scheduler_watch, "UNKNOWN_SECONDS", 0.0)
    monkeypatch.setattr(scheduler_watch, "ANSWER_SECONDS", 0.5)
    watching = SchedulerWatch(client, "flights", 2.0)
    future = client.submit(time.sleep, 1000, pure=False)
    wait_until(lambda: watching._probe is not None, SOON)

    async def block() -> None:
        for _ in range(4):
            checked = watching._checked
            time.sleep(1.5)  # longer than the checks are apart; it blocks the event loop
            while watching._checked == checked:
                await asyncio.sleep(0)

    client.sync(block)
    assert future.status == "pending"
    future.cancel()


def test_each_answer_ends_the_silence(client: Client, scheduler: SchedulerProgram) -> None:
    watching = SchedulerWatch(client, "flights", None)  # which does not check by itself

    async def fail() -> dict[str, Any]:
        raise ValueError("not this time")

    async def refuse() -> dict[str, Any]:
        raise CommClosedError("reset")

    async def ask() -> list[float]:
        silences = []
        for identity in (watching._calls.identity, lambda **_: fail(), lambda **_: refuse()):
            watching._silent = 7.0
            monkey = SimpleNamespace(identity=identity)
            calls, watching._calls = watching._calls, monkey
            await watching._ask()
            watching._calls = calls
            silences.append(watching._silent)
        return silences

    assert client.sync(ask) == [0.0, 0.0, 7.0]
    watching._silent = 7.0
    assert client.run_on_scheduler(int) == 0
    assert watching._silent == 0.0


def test_a_closed_client_is_not_watched(scheduler: SchedulerProgram) -> None:
    with Client(scheduler.address, set_as_default=False) as connected:
        watching = watch(connected, scheduler)
        wait_until(lambda: watching._probe is not None, SOON)
    assert connected.status == "closed"
    with Client(scheduler.address, set_as_default=False) as other:
        assert other.submit(sum, [1, 2]).result(SOON) == 3


@pytest.mark.parametrize("text", ["", "cat: no such file", "12 (x) T 1"])
def test_a_process_without_a_readable_state_is_unknown(text: str) -> None:
    assert ProcessSample.parse(text) is None


class CutProxy:
    """A proxy through which a client connects; it resets or holds its connections."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("tcp://").split(":")
        self._target = host, int(port)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing, self._accepts = asyncio.Event(), True
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(SOON)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._flowing.set()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        server.close()
        open_writers = list(self._writers)
        self._reset()
        # Otherwise the loop may end before it closes the sockets.
        closing = (writer.wait_closed() for writer in open_writers)
        await asyncio.gather(*closing, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepts:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        mine = {writer, far_writer}
        self._writers |= mine
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        except OSError:
            pass
        finally:
            for each in mine:
                each.transport.abort()
            self._writers -= mine

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(2**16):
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()
        writer.transport.abort()

    def _reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def reset(self, accepts: bool = True) -> None:
        """Reset all connections, and accept or refuse further ones."""

        def change() -> None:
            self._accepts = accepts
            self._reset()

        self._loop.call_soon_threadsafe(change)

    def hold(self) -> None:
        """Deliver nothing any more; connections stay open."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.set)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SOON)


@pytest.fixture
def proxy(scheduler: SchedulerProgram) -> Iterator[CutProxy]:
    started = CutProxy(scheduler.address)
    yield started
    started.close()


@pytest.fixture
def distant(proxy: CutProxy) -> Iterator[Client]:
    """A client that connects through the proxy."""
    with Client(proxy.address, set_as_default=False, timeout=5) as connected:
        yield connected


def test_a_reset_connection_is_explained_and_the_client_connects_again(
    distant: Client, proxy: CutProxy, scheduler: SchedulerProgram
) -> None:
    watch(distant, scheduler)
    futures: list[Any] = [distant.submit(time.sleep, 5, pure=False) for _ in range(2)]
    proxy.reset()
    with pytest.raises(SchedulerUnreachable, match="run the computation again") as caught:
        distant.gather(futures)
    assert caught.value.cause == "disconnected"
    assert isinstance(caught.value, CancelledError), "as Dask's error is"
    with pytest.raises(FuturesCancelledError) as listed, distant.as_current():
        wait(futures)
    assert all(future.key in str(listed.value) for future in futures)
    del futures
    wait_until(lambda: distant.status == "running", SOON)
    assert distant.submit(sum, [1, 2], pure=False).result(SOON) == 3


def test_a_call_in_progress_ends_with_its_connection(
    distant: Client, proxy: CutProxy, scheduler: SchedulerProgram, tmp_path: Path
) -> None:
    watch(distant, scheduler)
    began = tmp_path / "began"

    async def work() -> None:
        began.touch()
        await asyncio.sleep(1000)

    def reset() -> None:
        wait_until(began.exists, SOON)
        proxy.reset()

    resetting = threading.Thread(target=reset)
    resetting.start()
    with pytest.raises(SchedulerUnreachable, match="was closed"):
        distant.run_on_scheduler(work)
    resetting.join()


def test_the_connection_of_the_scheduler_to_a_worker_is_not_that_of_the_client(
    client: Client, scheduler: SchedulerProgram, tmp_path: Path
) -> None:
    watch(client, scheduler)
    began = tmp_path / "began"

    class EndOnce(WorkerPlugin):
        def setup(self, worker: object) -> None:
            if not began.exists():
                began.touch()
                os._exit(1)

    future = client.submit(time.sleep, 1000, pure=False)
    with pytest.raises(CommClosedError) as caught:
        client.register_plugin(EndOnce(), name="end-once")
    assert not isinstance(caught.value, SchedulerUnreachable)
    assert client.status == "running"
    assert future.status == "pending"
    client.unregister_worker_plugin("end-once")


@pytest.mark.slow
def test_a_client_that_cannot_connect_again_ends_its_futures(
    distant: Client, proxy: CutProxy, scheduler: SchedulerProgram
) -> None:
    watch(distant, scheduler)
    first = distant.submit(time.sleep, 1000, pure=False)
    proxy.reset(accepts=False)
    with pytest.raises(SchedulerUnreachable):
        first.result(SOON)
    wait_until(lambda: distant.status in ("connecting", "closed"), SOON)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - see below
        distant.submit(int, pure=False).result(SOON)
    if not isinstance(caught.value, SchedulerUnreachable):
        assert distant.status == "closed"
        assert not isinstance(caught.value, TimeoutError)
    wait_until(lambda: distant.status == "closed", SOON)


@pytest.mark.slow
def test_a_connection_that_delivers_nothing_ends_what_waits(
    distant: Client,
    proxy: CutProxy,
    scheduler: SchedulerProgram,
    short_limits: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_watch, "UNKNOWN_SECONDS", 4.0)
    SchedulerWatch(distant, "flights", 2.0)
    future = distant.submit(time.sleep, 1000, pure=False)
    proxy.hold()
    with pytest.raises(SchedulerUnreachable) as caught:
        future.result(SOON)
    assert caught.value.cause == "silent"
