"""The record of a cluster that a gateway ends by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from services import until
from services_gateway import SMALL, Server, gateway, nothing_left, surroundings

import hyperplane
from hyperplane.history import list_runs

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["gateway", "nothing_left", "surroundings"]  # fixtures


def test_a_used_budget_leaves_a_record_with_figures(
    gateway: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # 36 s with one core: the rest of the start and the first task count too.
    request = {**SMALL, "nprocs": 1, "cores_per_worker": 1, "budget": 0.01}
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(engine="gateway", engine_options=gateway.settings(), **request)
    )
    assert client.submit(sum, [1, 2], key="add-1").result() == 3
    until(lambda: cluster.status == "closed")
    assert any("budget of 0.01 core-hours is used up" in str(each.message) for each in recwarn)
    (record,) = list_runs()
    assert record.exit_reason == "its budget is used up"
    assert [(task.name, task.count) for task in record.tasks] == [("add", 1)]
    assert record.workers
