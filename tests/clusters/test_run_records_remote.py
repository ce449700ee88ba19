"""Records, adaptive sizes and budgets with workers, and a scheduler, on hosts of ssh."""

from __future__ import annotations

from pathlib import Path

import dask.config
import pytest
from services import until
from services_ssh import network, nothing_left, plan, surroundings

import hyperplane
from hyperplane.history import list_runs

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_the_record_has_the_figures_of_a_scheduler_anywhere(mode: str) -> None:
    client, cluster = hyperplane.start(plan(num_workers=1, scheduler_deploy_mode=mode))
    assert client.submit(sum, [1, 2], key="add-1").result() == 3
    cluster.close()
    client.close()
    (record,) = list_runs()
    assert (record.plan.engine, record.exit_reason) == ("ssh", "closed")
    assert record.workers
    assert all(worker.peak > 0 for worker in record.workers)
    assert [(task.name, task.count) for task in record.tasks] == [("add", 1)]


def test_nodes_follow_the_work() -> None:
    def wait(number: int) -> int:
        import time

        time.sleep(1)
        return number

    with dask.config.set({"distributed.adaptive.interval": "200ms"}):
        client, cluster = hyperplane.start(plan(num_workers=(1, 2), nprocs=2, cores_per_worker=2))
    with cluster, client:
        assert len(client.nthreads()) == 2
        futures = client.map(wait, range(80), pure=False)
        until(lambda: len(client.nthreads()) == 4)
        client.cancel(futures)
        until(lambda: len(client.nthreads()) == 2)


def test_a_remote_scheduler_closes_the_cluster_when_its_budget_is_used_up(
    recwarn: pytest.WarningsRecorder,
) -> None:
    # 36 s with one core: the rest of the start and the first task count too.
    client, cluster = hyperplane.start(
        plan(num_workers=1, budget=0.01, scheduler_deploy_mode="remote")
    )
    assert client.submit(sum, [1, 2], key="add-1").result() == 3
    until(lambda: cluster.status.name == "closed")
    assert any("budget of 0.01 core-hours is used up" in str(each.message) for each in recwarn)
    client.close()
    (record,) = list_runs()
    assert record.exit_reason == "its budget is used up"
    assert [(task.name, task.count) for task in record.tasks] == [("add", 1)]
    assert record.workers


def test_a_remote_scheduler_that_ends_after_its_idle_timeout_leaves_a_record_with_figures() -> None:
    client, cluster = hyperplane.start(
        plan(num_workers=1, idle_timeout=20, scheduler_deploy_mode="remote")
    )
    assert client.submit(sum, [1, 2], key="add-1").result() == 3
    until(lambda: cluster.status.name == "closed")
    client.close()
    (record,) = list_runs()
    assert record.exit_reason == "its idle timeout has passed"
    assert [(task.name, task.count) for task in record.tasks] == [("add", 1)]
    assert record.workers
