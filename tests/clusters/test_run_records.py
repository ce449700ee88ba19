"""The record that a local cluster leaves when it closes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from dask_notices import without_notices
from subprograms import SOON, wait_until

import hyperplane
from hyperplane.guard import pressure_warnings, usage
from hyperplane.guard.memory_report import TOPIC
from hyperplane.history import RunRecord, list_runs

pytestmark = pytest.mark.cluster

SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "engine": "local",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def only_run() -> RunRecord:
    (record,) = list_runs()
    return record


def test_a_run_leaves_a_record_and_a_short_one_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL, name="flights"))
    futures = client.map(lambda number: b"1" * number, range(1000, 1010), key="build")
    sizes = client.map(len, futures, key="measure")
    assert sum(client.gather(sizes)) == sum(range(1000, 1010))
    cluster.close()
    client.close()
    record = only_run()
    assert (record.cluster, record.exit_reason) == ("flights", "closed")
    assert {worker.name for worker in record.workers} == {"0", "1"}
    assert all(50e6 < worker.peak <= worker.limit == 5e8 for worker in record.workers)
    assert (record.restarts, record.paused_seconds, record.spilled) == (0, 0, 0)
    figures = {task.name: task for task in record.tasks}
    assert figures["build"].count == figures["measure"].count == 10
    assert 1009 <= figures["build"].largest_output < 1200
    assert figures["measure"].input == figures["build"].output
    assert figures["measure"].largest_input == figures["build"].largest_output
    assert without_notices(capfd.readouterr().err) == ""


def test_a_killed_worker_is_a_restart_with_the_cause_that_its_nanny_reports() -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL))
    pids = {nanny.name: nanny.pid for nanny in cluster.workers.values()}
    for name, cause in ((0, "other"), (1, "terminate")):
        if cause == "terminate":
            report = {"name": name, "peak": 490_000_000, "spilled": 0, "running": ()}
            client.log_event(TOPIC, report)
        os.kill(pids[name], signal.SIGKILL)
        wait_until(lambda name=name: cluster.workers[name].pid not in (None, pids[name]), SOON)
    client.wait_for_workers(2)
    wait_until(lambda: len(cluster.scheduler.workers) == 2, SOON)
    cluster.close()
    client.close()
    causes = {worker.name: worker.causes for worker in only_run().workers}
    assert causes == {"0": {"other": 1}, "1": {"out of memory": 1}}


def test_the_reason_of_the_end_is_recorded() -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL, idle_timeout=0.5))
    wait_until(lambda: cluster.status.name == "closed", SOON)
    client.close()
    assert only_run().exit_reason == "its idle timeout has passed"
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL, name="mine"))
    other, handle = hyperplane.get_cluster("mine")
    other.close()
    handle.close()
    wait_until(lambda: cluster.status.name == "closed", SOON)
    client.close()
    assert [record.exit_reason for record in list_runs()][:1] == ["closed by another program"]


def test_a_start_that_fails_leaves_no_record() -> None:
    with pytest.raises(hyperplane.EngineError):
        hyperplane.start(hyperplane.plan_cluster(**SMALL, timeout=0.01))
    assert list_runs() == []


@pytest.mark.slow
@pytest.mark.usefixtures("short_grace_period")
def test_a_lasting_lack_of_memory_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The scheduler is in this process.
    monkeypatch.setattr(usage, "INTERVAL", 0.5)
    monkeypatch.setattr(pressure_warnings, "PAUSED_SECONDS", 1.5)

    def fill(seconds: float) -> int:
        import time

        block = b"1" * 300_000_000
        time.sleep(seconds)
        return len(block)

    memory = {"target": 0.5, "spill": 0.6, "pause": 0.7, "terminate": False}
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL, memory=memory))
    future = client.submit(fill, 20, key="fill-1")
    wait_until(lambda: "'fill' is running" in caplog.text, SOON)
    assert "is paused for" in caplog.text
    # The scheduler learns of the pause at once, and of the memory with the next heartbeat.
    workers = cluster.scheduler.workers.values()
    wait_until(lambda: max(each.metrics["memory"] for each in workers) > 0.7 * 5e8, SOON)
    future.cancel()
    cluster.close()
    client.close()
    record = only_run()
    assert record.paused_seconds > 1
    assert record.peak_share is not None
    assert record.peak_share > 0.7
