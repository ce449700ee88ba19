"""Gangs whose ranks, workers or clients end: all ranks end, restart, and leave no process."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Future
from gang_functions import count_up, find_reserved, pickled_by_value
from scale import FULL, scaled
from subprograms import START, Run, dead, wait_until

from hyperplane.clusters.dask.gang import gang_run
from hyperplane.errors import GangFailed
from hyperplane.ml import gang

pytestmark = pytest.mark.cluster
SECONDS = 120.0


def read_pid(file: Path) -> int:
    def has_text() -> bool:
        return file.exists() and bool(file.read_text())

    wait_until(has_text, SECONDS)
    return int(file.read_text())


def start_count(
    client: Any, folders: tuple[Path, Path], end: int, **options: Any
) -> tuple[threading.Thread, list[Any]]:
    """Start a gang of two that counts, in a thread; return it and the list of its outcome."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(
                gang(
                    client,
                    pickled_by_value(count_up),
                    2,
                    end,
                    str(folders[1]),
                    checkpoints=folders[0],
                    logs=False,
                    **options,
                )
            )
        except GangFailed as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_a_killed_rank_ends_all_and_the_error_names_it(
    client: Any, folders: tuple[Path, Path]
) -> None:
    thread, outcome = start_count(client, folders, 10_000)
    ranks = [psutil.Process(read_pid(folders[1] / f"{rank}-0")) for rank in range(2)]
    ranks[1].kill()
    thread.join(SECONDS)
    [error] = outcome
    assert isinstance(error, GangFailed)
    assert (error.rank, error.exit_code) == (1, -signal.SIGKILL)
    assert error.worker in client.nthreads()
    assert "was killed by signal SIGKILL" in str(error)
    assert all(map(dead, ranks))
    assert client.run_on_scheduler(find_reserved) == {}


# test_gang_faults.py kills a worker, too.
@pytest.mark.slow
@pytest.mark.parametrize("victim", scaled(["rank"], ["rank", "worker"]))
def test_all_ranks_restart_from_their_checkpoints(
    client: Any, folders: tuple[Path, Path], victim: str
) -> None:
    client.wait_for_workers(2, timeout=SECONDS)
    thread, outcome = start_count(client, folders, 30, max_retries=1)
    ranks = [psutil.Process(read_pid(folders[1] / f"{rank}-0")) for rank in range(2)]
    for rank in range(2):
        wait_until((folders[0] / str(rank)).exists, SECONDS)
    (ranks[0] if victim == "rank" else psutil.Process(ranks[0].ppid())).kill()
    thread.join(2 * SECONDS)
    [results] = outcome
    assert [(end, restarts) for _, end, restarts in results] == [(30, "1")] * 2
    assert all(began > 0 for began, _, _ in results)
    assert all(map(dead, ranks))


@pytest.mark.skipif(not FULL, reason="stops a worker at a rare moment: at full scale")
def test_a_stopped_worker_does_not_keep_a_gang_that_has_failed(
    client: Any, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.wait_for_workers(2, timeout=SECONDS)
    monkeypatch.setattr(gang_run, "_END_SECONDS", 1.0)
    thread, outcome = start_count(client, folders, 10_000)
    ranks = [psutil.Process(read_pid(folders[1] / f"{rank}-0")) for rank in range(2)]
    worker = psutil.Process(ranks[1].ppid())
    worker.suspend()
    try:
        ranks[0].kill()
        thread.join(SECONDS)
        assert [error.rank for error in outcome] == [0]
    finally:
        worker.resume()
    wait_until(lambda: dead(ranks[1]), SECONDS)


def test_a_cancelled_gang_ends_its_processes(client: Any, folders: tuple[Path, Path]) -> None:
    client.wait_for_workers(2, timeout=SECONDS)
    thread, outcome = start_count(client, folders, 10_000)
    ranks = [psutil.Process(read_pid(folders[1] / f"{rank}-0")) for rank in range(2)]
    keys = [key for key in client.futures if str(key).startswith("rank-")]
    assert len(keys) == 2
    client.cancel([Future(key, client) for key in keys], force=True)
    thread.join(SECONDS)
    assert "was cancelled" in str(outcome[0])
    assert all(map(dead, ranks))


def test_a_rank_above_the_memory_of_its_worker_is_ended(client: Any) -> None:
    def grow() -> None:
        import os
        import time

        if os.environ["RANK"] == "1":
            blocks = [b"x" * 100_000_000 for _ in range(5)]
            time.sleep(600)
            del blocks
        time.sleep(600)

    client.wait_for_workers(2, timeout=SECONDS)
    with pytest.raises(GangFailed, match=r"rank 1 .* was ended: it used .* of the worker's limit"):
        gang(client, grow, 2, logs=False)
    assert len(client.nthreads()) == 2


PROGRAM = """
from hyperplane.ml import gang

def wait(folder):
    import os, pathlib, subprocess, time
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(folder, os.environ["RANK"]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)

try:
    gang(client, wait, 2, FOLDER)
except KeyboardInterrupt:
    print("interrupted", flush=True)
client.close()
cluster.close()
"""


@pytest.mark.parametrize("number", scaled([signal.SIGKILL], [signal.SIGINT, signal.SIGKILL]))
def test_all_ranks_end_with_the_client(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    program = run(
        PROGRAM.replace("FOLDER", repr(str(tmp_path))),
        start=START.replace("num_workers", "engine='local', num_workers"),
    )
    files = [tmp_path / str(rank) for rank in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files), 2 * SECONDS)
    ranks = [psutil.Process(int(file.read_text().split()[0])) for file in files]
    children = [psutil.Process(int(file.read_text().split()[1])) for file in files]
    began = time.monotonic()
    os.kill(program.process.pid, number)
    if number == signal.SIGINT:
        assert program.line("interrupted") == ""
        assert all(map(dead, [*ranks, *children]))
        program.finish()
        assert program.process.returncode == 0
    wait_until(lambda: all(map(dead, [*ranks, *children])), SECONDS)
    assert time.monotonic() - began < SECONDS
