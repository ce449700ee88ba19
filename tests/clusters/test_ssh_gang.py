"""Gangs on ssh hosts whose ranks, or whose node's processes, are killed."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from gang_functions import count_together, find_reserved, pickled_by_value
from scale import scaled
from services import until
from services_ssh import HostNetwork, network, nothing_left, plan, surroundings

import hyperplane
from hyperplane.errors import GangFailed
from hyperplane.ml import gang

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures

END = 40


def run_in_thread(client: Any, folder: Path, **options: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(
                gang(
                    client,
                    pickled_by_value(count_together),
                    2,
                    END,
                    checkpoints=folder,
                    logs=folder / "logs",
                    **options,
                )
            )
        except GangFailed as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def wait_for_ranks(folder: Path) -> list[int]:
    """Return the ids of the processes of both ranks, after their first checkpoint."""
    files = [folder / f"pid-{rank}-0" for rank in range(2)]
    until(lambda: all(file.exists() for file in files) and (folder / "state").exists())
    return [int(file.read_text()) for file in files]


def find_host(network: HostNetwork, process: int) -> int:
    return next(host for host in range(1, 4) if process in network.processes(host))


def read_numbers(folder: Path, rank: int) -> list[int]:
    text = (folder / "logs" / f"rank-{rank}.log").read_text()
    return [int(number) for number in re.findall(r"^number (\d+) on", text, re.MULTILINE)]


@pytest.mark.parametrize("rank", scaled([1], [0, 1]))
def test_a_killed_rank_restarts_all_from_the_last_checkpoint(
    network: HostNetwork, tmp_path: Path, rank: int
) -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        thread, outcome = run_in_thread(client, tmp_path, max_retries=1)
        processes = wait_for_ranks(tmp_path)
        assert {find_host(network, each) for each in processes} == {1, 2}
        # The log of each rank arrives while the ranks run.
        until(lambda: all(read_numbers(tmp_path, each) for each in range(2)), 60)
        os.kill(processes[rank], signal.SIGKILL)
        thread.join(120)
        [results] = outcome
        assert [each["restarts"] for each in results] == ["1", "1"]
        assert results[0]["began"] == results[1]["began"] > 0
        assert {each["host"] for each in results} == {network.address(1), network.address(2)}
        for each in range(2):
            numbers = read_numbers(tmp_path, each)
            assert set(numbers) >= set(range(results[0]["began"], END))
            assert f"rank {rank} on worker" in (tmp_path / "logs" / f"rank-{each}.log").read_text()
        assert len(client.nthreads()) == 2
        assert client.run_on_scheduler(find_reserved) == {}


def test_a_killed_rank_without_restarts_ends_the_other(
    network: HostNetwork, tmp_path: Path
) -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        before = network.processes()
        thread, outcome = run_in_thread(client, tmp_path)
        processes = wait_for_ranks(tmp_path)
        os.kill(processes[1], signal.SIGKILL)
        thread.join(120)
        [error] = outcome
        assert (error.rank, error.exit_code) == (1, -signal.SIGKILL)
        assert "killed by signal SIGKILL" in str(error)
        assert re.search(r"number \d+ on 10\.77", error.log_tail)
        until(lambda: network.processes() <= before, 30)


@pytest.mark.parametrize("kill", scaled(["all"], ["worker", "all"]))
def test_ranks_move_to_another_host_when_a_node_is_killed(
    network: HostNetwork, tmp_path: Path, kill: str
) -> None:
    client, cluster = hyperplane.start(plan(num_workers=3))
    with cluster, client:
        thread, outcome = run_in_thread(client, tmp_path, max_retries=1)
        processes = wait_for_ranks(tmp_path)
        host = find_host(network, processes[1])
        if kill == "all":
            victims = network.processes(host)
        else:
            victims = set(client.run(os.getpid).values()) & network.processes(host)
        began = time.monotonic()
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        thread.join(150)
        [results] = outcome
        assert [each["restarts"] for each in results] == ["1", "1"]
        assert results[0]["began"] == results[1]["began"] > 0
        if kill == "all":
            assert network.address(host) not in {each["host"] for each in results}
        assert time.monotonic() - began < 120
