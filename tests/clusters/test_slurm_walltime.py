"""Jobs of a real Slurm that reach their time limit, or retire before it."""

from __future__ import annotations

import os
import time

import pytest
from services import until, worker_ids
from services_slurm import service, shared, start

from hyperplane.clusters.dask.slurm import cluster as slurm_cluster

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["service", "shared"]  # fixtures


def test_the_time_limit_of_a_partition_is_explained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slurm_cluster, "POLL_SECONDS", 1.0)
    client, cluster = start(num_workers=1, engine_options={"partition": "short"})
    with cluster, client:
        until(lambda: "was ended by Slurm at its time limit of 1:00" in caplog.text, 150)
        assert "hyperplane.engines.slurm.walltime is not set" in caplog.text
        assert cluster.plan == set()


def test_results_move_to_others_before_the_walltime_ends_a_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slurm_cluster, "POLL_SECONDS", 1.0)
    early = {"walltime": "3:00", "leave_before": "75s"}
    client, cluster = start(num_workers=1, engine_options=early)
    with cluster, client:
        first = worker_ids(client)
        future = client.submit(lambda: os.getpid(), pure=False)
        pid = future.result()
        time.sleep(10)
        cluster.scale(2)
        client.wait_for_workers(2, timeout=85)  # before the first one retires
        until(lambda: not first & worker_ids(client), 150)
        assert future.result() == pid, "computed again"
        until(lambda: "retired 105 seconds after its start" in caplog.text, 90)
