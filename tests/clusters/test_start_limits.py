"""A start whose parts hang ends at its time limit, says what it waited for, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config
import pytest
from contract import children
from distributed import Client, Scheduler
from distributed.client import _global_clients
from subprograms import wait_until
from test_guarded_cluster import create_cluster

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask import (
    failed_start,
    guarded_cluster,
    interruptible_start,
    local_process,
    wait_places,
)
from hyperplane.clusters.dask.guarded_cluster import GuardedCluster
from hyperplane.clusters.dask.local.cluster import GuardedNanny
from hyperplane.guard import memory_plugins

ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
}
DASK = "dask-scratch-space"
PAIR = {**ONE, "nprocs": 2}
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("few_imports")]


async def never(*args: object, **options: object) -> Any:
    await asyncio.sleep(10_000)


class Block:
    """A function that blocks the event loop until the test ends."""

    def __init__(self) -> None:
        self.called, self.may_end = threading.Event(), threading.Event()

    def __call__(self, *args: object, **options: object) -> Any:
        self.called.set()
        assert self.may_end.wait(300)
        return never()


@pytest.fixture
def block() -> Iterator[Block]:
    found, before = Block(), set(threading.enumerate())
    yield found
    found.may_end.set()

    def has_loop() -> bool:
        new = set(threading.enumerate()) - before
        return any("IO loop" in thread.name for thread in new)

    wait_until(lambda: not has_loop(), 120)


@pytest.fixture(autouse=True)
def leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that a start has left no process, file, port, setting or client."""
    monkeypatch.setattr(wait_places, "RESPONSE_SECONDS", 1.0)
    monkeypatch.setattr(local_process, "remaining", lambda plan, began: 2.0)
    ports = _record_ports(monkeypatch)
    before, scheduler = set(children()), dask.config.get("scheduler", default=None)
    yield
    assert set(children()) <= before
    assert records.read_all(starting=True) == []
    assert _find_files() == []
    assert ports
    assert [port for port in ports if _is_open(port)] == []
    assert [each for each in _global_clients.values() if each.status != "closed"] == []
    assert dask.config.get("scheduler", default=None) == scheduler
    with warnings.catch_warnings():
        # Coroutines and connections of an event loop that was ended in the middle of its work are
        # collected here: their warnings would fail a later test.
        warnings.simplefilter("ignore")
        gc.collect()


def _record_ports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the dashboard's port of each scheduler."""
    ports: list[int] = []
    start = Scheduler.start_http_server

    def start_http_server(scheduler: Scheduler, *args: Any, **options: Any) -> None:
        start(scheduler, *args, **options)
        ports.append(scheduler.http_server.port)

    monkeypatch.setattr(Scheduler, "start_http_server", start_http_server)
    return ports


def _find_files() -> list[Path]:
    """Return all files and folders, without Dask's parent of scratch folders and its locks."""
    found = Path(tempfile.gettempdir()).rglob("*")
    return [
        each for each in found if each.name != DASK and (DASK not in each.parts or each.is_dir())
    ]


def _is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def start(seconds: float, asked: dict[str, Any] = ONE) -> None:
    hyperplane.start(hyperplane.plan_cluster(**asked, timeout=seconds))


def limit_of(place: object) -> int:
    """Return the limit of a start; that of a client is two seconds, and all else may take long."""
    return 120 if place is Client else 5


#: Where a coroutine never returns, and what the error says.
HANGS = [
    pytest.param(Scheduler, "start_unsafe", "the scheduler did not start", id="scheduler"),
    pytest.param(
        Scheduler,
        "subscribe_worker_status",
        r"the scheduler at tcp://127.0.0.1:\d+ did not answer this process",
        id="answer of the scheduler",
    ),
    pytest.param(
        memory_plugins,
        "install",
        r"the plugins of the scheduler at tcp://127.0.0.1:\d+ did not start",
        id="plugins",
    ),
    pytest.param(GuardedNanny, "start_unsafe", r"0 of 1 worker process connected", id="nanny"),
    pytest.param(
        GuardedNanny, "instantiate", r"0 of 1 worker process connected", id="worker process"
    ),
    pytest.param(
        Client,
        "_ensure_connected",
        r"the client did not connect to tcp://127.0.0.1:\d+",
        id="client",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "text"), HANGS)
def test_a_start_ends_wherever_it_hangs(
    place: Any, name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, never)
    seconds = limit_of(place)
    with pytest.raises(
        hyperplane.StartTimeout,
        match=text + rf" within {seconds} s \(timeout\); everything was closed again",
    ) as caught:
        start(seconds)
    waited = "When it ended, the start waited in " in str(caught.value)
    assert waited == (place in (Scheduler, memory_plugins))


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "text"), HANGS)
def test_ctrl_c_ends_a_start_wherever_it_hangs(
    place: Any, name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()

    async def never_again(*args: object, **options: object) -> Any:
        hangs.set()
        await never()

    def interrupt() -> None:
        assert hangs.wait(120)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    monkeypatch.setattr(place, name, never_again)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        start(60)
    thread.join()


#: Functions that block the event loop, and what the error says.
BLOCKS = [
    pytest.param(Scheduler, "start_unsafe", "the scheduler did not start", id="scheduler"),
    pytest.param(memory_plugins, "install", "the plugins of the scheduler", id="plugins"),
    pytest.param(GuardedNanny, "instantiate", "0 of 2 worker processes connected", id="nanny"),
    pytest.param(Client, "_ensure_connected", "the client did not connect to", id="client"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "text"), BLOCKS)
def test_a_start_ends_while_its_event_loop_is_blocked(
    place: Any, name: str, text: str, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, block)
    seconds = limit_of(place)
    with pytest.raises(hyperplane.StartTimeout, match=text + f".* within {seconds} s") as caught:
        start(seconds, PAIR)
    assert block.called.is_set()
    assert "the event loop of this process " in str(caught.value)
    assert "blocked in wait (" in str(caught.value)


async def wait_in_thread(block: Block) -> None:
    await asyncio.to_thread(block.may_end.wait, 300)


async def ignore_cancels(block: Block) -> None:
    while not block.may_end.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("wait", [wait_in_thread, ignore_cancels])
def test_an_event_loop_that_does_not_end_leaves_the_reason(
    wait: Callable[[Block], Awaitable[None]], block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruptible_start, "INTERRUPTED_STEP_SECONDS", 10.0)
    monkeypatch.setattr(Scheduler, "start_unsafe", lambda scheduler: wait(block))
    with pytest.raises(hyperplane.StartTimeout, match="the scheduler did not start within 5 s"):
        start(5)


@pytest.mark.slow
def test_an_event_loop_that_does_not_end_leaves_the_error_of_a_worker(block: Block) -> None:
    class Fails(GuardedCluster):
        async def _correct_state(self) -> None:
            asyncio.get_running_loop().run_in_executor(None, block.may_end.wait, 300)
            raise ValueError("no worker today")

    with pytest.raises(ValueError, match="no worker today"):
        create_cluster(Fails)


@pytest.mark.slow
def test_worker_processes_are_killed_while_the_event_loop_is_blocked(
    block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    instantiate, begun = GuardedNanny.instantiate, []

    async def block_second(nanny: GuardedNanny) -> Any:
        begun.append(nanny)
        if len(begun) == 1:
            return await instantiate(nanny)
        while begun[0].pid is None:
            await asyncio.sleep(0.01)
        return block()

    monkeypatch.setattr(GuardedNanny, "instantiate", block_second)
    with pytest.raises(hyperplane.StartTimeout, match="of 2 worker processes connected"):
        start(15, PAIR)
    assert block.called.is_set()


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended_at_the_time_limit(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import time\ndef dask_setup(worker):\n    time.sleep(600)\n")
    with (
        dask.config.set({"distributed.worker.preload": [str(hangs)]}),
        pytest.raises(hyperplane.StartTimeout, match="0 of 2 worker processes connected within"),
    ):
        start(4, PAIR)


def test_a_failed_start_ends_although_its_cluster_does_not_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*args: object, **options: object) -> None:
        raise ValueError("no plugin today")

    monkeypatch.setattr(interruptible_start, "CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(guarded_cluster, "CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(failed_start, "CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(failed_start, "STEP_SECONDS", 0.5)
    monkeypatch.setattr(memory_plugins, "install", fail)
    monkeypatch.setattr(Scheduler, "close", never)
    with pytest.raises(ValueError, match="no plugin today"):
        create_cluster()


@pytest.mark.slow
def test_several_ctrl_c_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(memory_plugins, "install", never)
    processes, threads = set(children()), set(threading.enumerate())

    def is_closed() -> bool:
        new = {thread.name for thread in set(threading.enumerate()) - threads}
        loops = [name for name in new if "IO loop" in name or name.startswith("hyperplane-")]
        return set(children()) <= processes and not loops

    with monkeypatch.context() as patch:
        wait = failed_start._wait
        calls: list[object] = []

        def wait_at_last(*args: Any) -> None:
            calls.append(args)
            (interrupted if len(calls) == 1 else wait)(*args)

        patch.setattr(failed_start, "_wait", wait_at_last)
        with pytest.raises(KeyboardInterrupt):
            start(2)
        # In another thread, after the call has returned.
        wait_until(is_closed, 120)
    assert len(calls) == 2


def test_a_scheduler_is_closed_if_its_plugins_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask closes a cluster if its scheduler or a worker fails, but not after other errors."""
    closed: list[Scheduler] = []
    close = Scheduler.close

    async def recorded(scheduler: Scheduler, *args: Any, **options: Any) -> None:
        await close(scheduler, *args, **options)
        closed.append(scheduler)

    async def fail(*args: object, **options: object) -> None:
        raise ValueError("no plugin today")

    monkeypatch.setattr(Scheduler, "close", recorded)
    monkeypatch.setattr(memory_plugins, "install", fail)
    with pytest.raises(ValueError, match="no plugin today"):
        create_cluster()
    assert closed


class _Alarm(TimeoutError):
    """The error of a program that limits the time of a call by itself."""


@pytest.mark.slow
def test_a_time_limit_of_the_program_is_not_taken_for_that_of_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(self: Any) -> Any:
        await asyncio.sleep(1000)

    def alarm(number: int, frame: Any) -> None:
        raise _Alarm

    monkeypatch.setattr(GuardedNanny, "start_unsafe", never)
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 3)
        with pytest.raises(_Alarm):
            hyperplane.initialize_cluster(num_workers=1, nprocs=1, ram_gb_per_proc=0.5)
        assert signal.getsignal(signal.SIGALRM) is alarm
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
