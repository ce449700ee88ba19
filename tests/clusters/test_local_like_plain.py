"""Programs for Dask's LocalCluster and Nanny also work with the local engine."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import distributed.scheduler
import psutil
import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import Environ, NannyPlugin
from scale import FULL, scaled
from services import restart

import hyperplane
from hyperplane.clusters.engine import StartedCluster
from hyperplane.guard import busy

pytestmark = [
    pytest.mark.usefixtures("few_imports"),
    pytest.mark.cluster,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks are for Linux"),
]

ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "timeout": 200,
}


@pytest.fixture
def started() -> Iterator[StartedCluster]:
    one = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with one.cluster, one.client:
        yield one


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def variable_of_workers(client: Client, name: str) -> set[str | None]:
    return set(client.run(lambda: os.environ.get(name)).values())


class NameOfPlugin(NannyPlugin):
    """Nanny plugin that changes variables and settings, without a restart."""

    name = "name-of-plugin"

    def setup(self, nanny: Any) -> None:
        nanny.env["OF_PLUGIN"] = "2"
        dask.config.set({"of_plugin.value": 3}, config=nanny.config)


@pytest.mark.skipif(not FULL, reason="starts workers three times: at full scale")
def test_plugins_of_nannies_reach_running_later_and_restarted_workers(
    started: StartedCluster,
) -> None:
    client, cluster = started
    client.register_plugin(Environ({"OF_ENVIRON": "1"}))
    client.wait_for_workers(1, timeout=120)
    assert variable_of_workers(client, "OF_ENVIRON") == {"1"}
    client.register_plugin(NameOfPlugin())
    cluster.scale(2)
    client.wait_for_workers(2, timeout=120)
    assert variable_of_workers(client, "OF_ENVIRON") == {"1"}
    assert variable_of_workers(client, "OF_PLUGIN") == {None, "2"}
    restart(client)
    assert variable_of_workers(client, "OF_ENVIRON") == {"1"}
    assert variable_of_workers(client, "OF_PLUGIN") == {"2"}
    seen = client.run(lambda: dask.config.get("of_plugin.value", default=None))
    assert 3 in seen.values()


def inherited() -> dict[str, Any]:
    """Return the state that a process inherits from its parent."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "set": os.environ.get("SET_BY_THE_PROGRAM"),
        "deleted": os.environ.get("DELETED_BY_THE_PROGRAM"),
        "zone": time.tzname,
        "umask": umask,
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "ignored": signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN,
        "processors": os.sched_getaffinity(0),
        "old setting": dask.config.get("array.chunk-size"),
        "new setting": dask.config.get("of.the.program", default=None),
    }


@pytest.fixture
def changed_process() -> Iterator[Callable[[], None]]:
    """Change the state that processes inherit, and restore it after the test."""
    umask = os.umask(0)
    os.umask(umask)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    processors = os.sched_getaffinity(0)
    handler = signal.getsignal(signal.SIGUSR1)
    with pytest.MonkeyPatch.context() as patch, dask.config.set({"array.chunk-size": "128MiB"}):
        patch.setenv("DELETED_BY_THE_PROGRAM", "still there")

        def change() -> None:
            patch.setenv("SET_BY_THE_PROGRAM", "yes")
            patch.delenv("DELETED_BY_THE_PROGRAM")
            patch.setenv("TZ", "Asia/Tokyo")
            time.tzset()
            os.umask(0o077)
            resource.setrlimit(resource.RLIMIT_CORE, (soft - 1 if soft > 0 else 0, hard))
            os.sched_setaffinity(0, {min(processors)})
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            dask.config.set({"array.chunk-size": "1MiB", "of.the.program": 5})

        yield change
    dask.config.config.pop("of", None)
    time.tzset()
    os.umask(umask)
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    os.sched_setaffinity(0, processors)
    signal.signal(signal.SIGUSR1, handler)


def test_workers_inherit_what_the_program_has_changed_since_the_first_start(
    changed_process: Callable[[], None],
) -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        changed_process()
        expected = inherited()
        assert expected["zone"] == ("JST", "JST")
        restart(client)
        assert list(client.run(inherited).values()) == [expected]
        second = hyperplane.start(hyperplane.plan_cluster(**ONE))
        with second.cluster, second.client:
            assert list(second.client.run(inherited).values()) == [expected]


@pytest.fixture
def short_lives(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time-to-live of one second, with heartbeats to match."""
    monkeypatch.setattr(distributed.scheduler, "heartbeat_interval", lambda workers: 0.1)
    monkeypatch.setattr(busy, "ANSWER_LIMIT", 60.0)  # all nannies are local and answer
    with dask.config.set({"hyperplane.engines.local.worker_ttl": "1s"}):
        yield


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    """A named pipe for which a task waits while it holds the GIL."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR)
    yield path
    os.write(number, b"x")  # a task that is left after a failure
    os.close(number)


def hold_the_lock(fifo: Path) -> int:
    """Wait in C code for a byte in a pipe while holding the GIL."""
    import ctypes

    number = os.open(fifo, os.O_RDWR)  # does not wait for a reader
    ctypes.PyDLL(None).read(number, ctypes.create_string_buffer(1), 1)
    os.close(number)
    return os.getpid()


def compute_with_the_lock(seconds: float) -> int:
    """Use CPU time in C code while holding the GIL."""
    began = time.thread_time()
    sum(range(10**6))
    sum(range(int(10**6 * seconds / (time.thread_time() - began))))
    return os.getpid()


def guard_of(cluster: Any) -> busy.BusyWorkerGuard:
    guard = cluster.scheduler.plugins[busy.BusyWorkerGuard.name]
    assert isinstance(guard, busy.BusyWorkerGuard)
    return guard


@pytest.mark.skipif(not FULL, reason="test_busy_remote.py holds it, too: at full scale")
@pytest.mark.usefixtures("short_lives")
def test_a_task_that_holds_the_interpreters_lock_for_long_ends(
    started: StartedCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fifo: Path,
) -> None:
    def said() -> list[str]:
        # Possibly during setup: on a busy machine the first heartbeats are late.
        return [one.getMessage() for one in [*caplog.get_records("setup"), *caplog.records]]

    client, cluster = started
    [pid] = client.run(os.getpid).values()
    held = client.scatter([1, 2], broadcast=True)
    guard, at_work = guard_of(cluster), []
    future = client.submit(hold_the_lock, fifo)
    wait_until(lambda: guard._silent and any("holds the interpreter's" in one for one in said()))
    time.sleep(2.5)  # more than twice the time-to-live
    fifo.write_bytes(b"x")
    assert future.result(timeout=120) == pid
    renew = guard._renew_if_busy

    def noted(worker: Any, *activity: Any) -> None:
        renew(worker, *activity)
        silence = guard._silent[worker.address]
        at_work.append(silence.idle_since == silence.checked)

    monkeypatch.setattr(guard, "_renew_if_busy", noted)
    while not any(at_work):  # without a check during the computation if this process is delayed
        assert client.submit(compute_with_the_lock, 2, pure=False).result(timeout=240) == pid
    assert client.gather(held) == [1, 2]


class Clock:
    """Replacement of the module ``time`` with a time that the test sets."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(("share", "spared"), [(0.1, True), (0.01, False)])
def test_a_busy_worker_is_renewed_for_longer_than_a_waiting_one(
    share: float, spared: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, guard = Clock(), busy.BusyWorkerGuard()
    monkeypatch.setattr(busy, "time", clock)
    worker: Any = SimpleNamespace(address="tcp://x:1", last_seen=clock.now)
    with caplog.at_level(logging.WARNING, busy.logger.name):
        for seconds in range(20, 2000, 15):
            clock.now = 1000.0 + seconds
            guard._renew_if_busy(worker, 17, share * seconds)
    assert (worker.last_seen == clock.now) is spared
    assert spared or worker.last_seen == pytest.approx(1000 + busy.WAITING_LIMIT, abs=15)
    [said] = caplog.messages  # once, for any number of checks
    assert "has sent no heartbeat for 20 s, but its process 17 runs" in said


@pytest.mark.slow
@pytest.mark.usefixtures("short_lives")
def test_workers_survive_a_pause_of_the_scheduler(
    started: StartedCluster,
) -> None:
    client, cluster = started
    [pid] = client.run(os.getpid).values()
    held = client.submit(sum, [1, 2])
    assert held.result() == 3
    check = cluster.scheduler.periodic_callbacks["worker-ttl"]
    of_dask, checks, ended = check.callback, [], []

    async def noted() -> None:
        began = time.monotonic()
        await of_dask()
        checks.append(began)

    def stand_still() -> None:
        time.sleep(2)
        ended.append(time.monotonic())

    check.callback = noted
    guard_of(cluster)._watch.stop()  # Dask's check comes first, as it can after such a time
    cluster.loop.add_callback(stand_still)
    wait_until(lambda: ended and any(began >= ended[0] for began in checks))
    assert list(client.run(os.getpid).values()) == [pid]
    assert held.result() == 3


@pytest.mark.slow
@pytest.mark.usefixtures("short_lives", "short_grace_period")
@pytest.mark.parametrize("how", ["stopped", "waits for longer than the limit"])
def test_a_stopped_or_deadlocked_process_is_replaced(
    how: str, started: StartedCluster, monkeypatch: pytest.MonkeyPatch, fifo: Path
) -> None:
    client, _ = started
    [pid] = client.run(os.getpid).values()
    if how == "stopped":
        psutil.Process(pid).suspend()
    else:
        monkeypatch.setattr(busy, "WAITING_LIMIT", 1.5)
        future = client.submit(hold_the_lock, fifo)
    wait_until(lambda: not psutil.pid_exists(pid))
    if how != "stopped":
        future.cancel(force=True)
    client.wait_for_workers(1, timeout=120)


def test_a_time_to_live_that_the_user_chose_is_kept_exactly() -> None:
    with dask.config.set({"distributed.scheduler.worker-ttl": "45s"}):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
        with cluster, client:
            assert busy.BusyWorkerGuard.name not in cluster.scheduler.plugins


def test_what_a_scheduler_says_of_itself_before_any_page_is_opened(started: StartedCluster) -> None:
    plain = LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0")
    with plain, Client(plain, set_as_default=False) as of_plain:
        expected, found = (
            json.load(urllib.request.urlopen(link.replace("status", "individual-plots.json")))
            for link in (of_plain.dashboard_link, started.client.dashboard_link)
        )
        assert found == expected
        assert expected
        ours = started.client.scheduler_info()
        assert ours["type"] == of_plain.scheduler_info()["type"] == "Scheduler"
        assert ours.keys() == of_plain.scheduler_info().keys()


MAIN = """
import dataclasses, enum, os, pickle, sys
import numpy as np
import pandas as pd
import hyperplane

class Color(enum.Enum):
    RED = 1

@dataclasses.dataclass(frozen=True)
class Point:
    x: int

@pd.api.extensions.register_series_accessor("twice")
class Twice:
    def __init__(self, series):
        self.series = series

    def sum(self):
        return int(2 * self.series.sum())

{outside}

def use():
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
    )
    with cluster, client:
        for turn in range(2):
            if turn:
                client.restart()
            frame = pd.DataFrame({{"c": [Color.RED] * 500, "p": [Point(i) for i in range(500)]}})
            points = client.submit(lambda f: f["p"].map(lambda p: p.x).sum(), client.scatter(frame))
            array = np.array([Point(i) for i in range(2000)], dtype=object)
            objects = client.submit(lambda a: sum(p.x for p in a), client.scatter(array))
            loaded = client.submit(lambda b: pickle.loads(b), pickle.dumps([Point(3), Color.RED]))
            twice = client.submit(lambda f: f["p"].map(lambda p: p.x).twice.sum(), frame)
            print(points.result(), objects.result(), loaded.result(), twice.result())
"""
EXPECTED = ["124750 1999000 [Point(x=3), <Color.RED: 1>] 249500"] * 2
GUARD = '\nif __name__ == "__main__":\n    use()\n'


def run_script(folder: Path, text: str, *how: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, *(how or ("script.py",))],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=folder,
    )


# Most other tests run scripts.
@pytest.mark.slow
@pytest.mark.parametrize("how", scaled([("-m", "script")], [("script.py",), ("-m", "script")]))
def test_definitions_of_the_main_module_are_in_workers(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    outside = "print('defined in', 'program' if __name__ == '__main__' else 'worker', flush=True)"
    done = run_script(tmp_path, MAIN.format(outside=outside) + GUARD, *how)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("1247")] == EXPECTED
    assert lines.count("defined in program") == 1
    assert lines.count("defined in worker") == 2  # at the start, and after the restart


@pytest.mark.skipif(not FULL, reason="starts a cluster for a rare program: at full scale")
def test_a_main_module_that_a_worker_cannot_run_is_pointed_out(tmp_path: Path) -> None:
    outside = "if __name__ != '__main__':\n    sys.exit('not here')"
    program = """
if __name__ == "__main__":
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
    )
    with cluster, client:
        print("by value", client.submit(lambda c: c.value, Color.RED).result())
"""
    done = run_script(tmp_path, MAIN.format(outside=outside) + program)
    assert done.returncode == 0, done.stderr
    assert "by value 1" in done.stdout
    assert "the main module's definitions are not in this worker" in done.stderr


OUTSIDE_A_GUARD = 'use_small()\nif __name__ == "__main__":\n    print("guarded")'


@pytest.mark.skipif(not FULL, reason="the programs of tests/programs have no guard: at full scale")
@pytest.mark.parametrize("program", ["use_small()", OUTSIDE_A_GUARD])
def test_a_main_module_without_a_guard_around_the_cluster_is_not_run_again(
    program: str, tmp_path: Path
) -> None:
    small = """
print("run")

def use_small():
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
    )
    with cluster, client:
        print("name", client.submit(lambda c: c.name, Color.RED).result())

"""
    done = run_script(tmp_path, MAIN.format(outside=small) + program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("run") == 1
    assert "name RED" in done.stdout
