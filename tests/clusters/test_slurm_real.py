"""The slurm engine on a separate Slurm: the contract, the main job and lost jobs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from contract import OneClusterContract, one_cluster, slow_square
from dask.distributed import wait
from services import until
from services_slurm import SMALL, queue, read_job_details, service, shared, start, surroundings

import hyperplane
from hyperplane.clusters.dask.slurm import cluster as slurm_cluster

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["one_cluster", "service", "shared", "surroundings"]  # fixtures


class TestContract(OneClusterContract):
    engine = "slurm"
    small = SMALL

    def check_terminate(self, cluster: Any, expected: float) -> None:
        def of_nanny() -> str:
            # Its worker cannot return it, so it is read from the command line.
            words = Path(f"/proc/{os.getppid()}/environ").read_text().split("\0")
            variables = dict(word.partition("=")[::2] for word in words)
            return variables["DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE"]

        with hyperplane.get_cluster(cluster.name).client as client:
            assert set(client.run(of_nanny).values()) == {str(expected)}


def test_a_job_has_the_resources_of_the_plan() -> None:
    client, cluster = start(num_workers=1, nprocs=2, nthreads=2, cores_per_worker=5.5)
    with cluster, client:
        [(number, _)] = queue("RUNNING").items()
        known = read_job_details(number)
        assert known["NumCPUs"] == "6"
        assert known["MinMemoryNode"] == "1193M"  # 1.25 GB
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert [(one["nthreads"], one["memory_limit"]) for one in workers] == [(2, 500_000_000)] * 2
        assert {one["name"] for one in workers} == {f"{cluster.name}-0-{i}" for i in range(2)}
        # The memory for which the margin is: the nannies and their children without the workers.
        pids = set(client.run(os.getpid).values())
        [top] = {psutil.Process(pid).parent() for pid in pids}
        assert top is not None
        beside = [one for one in (top, *top.children(recursive=True)) if one.pid not in pids]
        assert sum(one.memory_info().rss for one in beside) < 250e6


def test_jobs_of_two_processes_are_scaled_together() -> None:
    client, cluster = start(num_workers=1, nprocs=2, cores_per_worker=2)
    with cluster, client:
        cluster.scale(3)  # worker processes, as in Dask; a job has two
        client.wait_for_workers(4, timeout=120)
        assert len(queue("RUNNING")) == 2
        held = client.map(slow_square(), range(8))
        wait(held)
        ran = client.submit(os.getpid, pure=False)
        ran.result()
        cluster.scale(2)
        until(lambda: len(queue()) == 1)
        assert all(future.status == "finished" for future in held)
        assert client.gather(held) == [n * n for n in range(8)]
        cluster.scale(cores=4)
        client.wait_for_workers(4, timeout=120)
        cluster.scale(memory="1 GB")
        until(lambda: len(queue()) == 1)
        _, handle = other = hyperplane.get_cluster(cluster.name)
        handle.scale(4)
        client.wait_for_workers(4, timeout=120)
        handle.adapt(minimum=2, maximum=4)
        until(lambda: len(queue()) == 1)  # there is no work
        other.client.close()
        handle.detach()


def test_adapt_ends_whole_jobs_and_starts_them_again() -> None:
    client, cluster = start(num_workers=2, nprocs=2, cores_per_worker=2)
    with cluster, client:
        cluster.adapt(minimum=2, maximum=4, interval="200ms", wait_count=2)
        until(lambda: len(queue()) == 1)
        assert len(client.nthreads()) == 2
        futures = client.map(slow_square(), range(300), pure=False)
        until(lambda: len(queue()) == 2)
        assert client.gather(futures) == [n * n for n in range(300)]


def test_a_cancelled_job_in_mid_work_costs_no_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slurm_cluster, "POLL_SECONDS", 1.0)
    client, cluster = start()
    with cluster, client:
        futures = client.map(slow_square(), range(80), pure=False)
        until(lambda: sum(future.done() for future in futures) > 10)
        victim = cluster.jobs()[f"{cluster.name}-0"]
        subprocess.run(["scancel", victim], check=True)
        assert client.gather(futures) == [n * n for n in range(80)]
        until(lambda: f"job {victim} (worker {cluster.name}-0) was cancelled" in caplog.text)
        assert len(cluster.plan) == 1
        cluster.adapt(minimum_jobs=2, maximum_jobs=2)
        client.wait_for_workers(2, timeout=120)
        assert victim not in queue()
