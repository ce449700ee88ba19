"""Gangs on real worker processes: results, environment, data, output, slots."""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from gang_functions import fail, find_reserved, get_environment, hold_slots, pickled_by_value
from scale import FULL, scaled

import hyperplane
from hyperplane.errors import GangFailed, GangTimeout, RequestError
from hyperplane.ml import XShards, gang

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Client of two worker processes with two threads each."""
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(
            1, nprocs=2, nthreads=2, ram_gb_per_proc=0.5, engine="local", local_fit="exact"
        )
    )
    with cluster, client:
        yield client


@pytest.mark.slow
def test_ranks_have_the_variables_of_torchrun_and_tensorflow(client: Any) -> None:
    found = gang(
        client, pickled_by_value(get_environment), 4, checkpoints="gs://b/c", env={"A": "b"}
    )
    for rank, (variables, _, _) in enumerate(found):
        assert variables["RANK"] == variables["HYPERPLANE_RANK"] == str(rank)
        assert variables["LOCAL_RANK"] == str(rank)
        assert variables["WORLD_SIZE"] == variables["LOCAL_WORLD_SIZE"] == "4"
        assert variables["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert variables["HYPERPLANE_CHECKPOINTS"] == "gs://b/c"
        assert variables["GLOO_SOCKET_IFNAME"] == "lo"
        assert variables["A"] == "b"
        config = json.loads(variables["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": rank}
        assert len(set(config["cluster"]["worker"])) == 4
        assert config["cluster"] == json.loads(found[0][0]["TF_CONFIG"])["cluster"]
    assert len({variables["MASTER_PORT"] for variables, _, _ in found}) == 1
    assert len({pid for _, pid, _ in found}) == 4
    # Two ranks are on each of two workers.
    parents = [parent for _, _, parent in found]
    assert parents[0] == parents[1] != parents[2] == parents[3]


def test_two_ranks_are_on_two_workers(client: Any) -> None:
    two = [parent for _, _, parent in gang(client, pickled_by_value(get_environment), 2)]
    assert two[0] != two[1]


@pytest.mark.slow
def test_each_rank_gets_its_own_partitions(client: Any) -> None:
    def describe(parts: list[Any], offset: int) -> list[int]:
        return [int(np.asarray(part).sum()) + offset for part in parts]

    array = da.arange(10, chunks=2)
    assert gang(client, describe, 2, 100, data=array) == [[101, 105], [109, 113, 117]]
    frame = dd.from_pandas(pd.DataFrame({"a": range(4)}), npartitions=2)
    assert gang(client, describe, 1, 0, data=frame) == [[1, 5]]
    shards = XShards.partition(np.arange(6), num_shards=2)
    assert gang(client, describe, 1, 0, data=shards) == [[3, 12]]
    futures = client.scatter([np.ones(2), np.ones(3)])
    assert gang(client, describe, 2, 0, data=[*futures, delayed(np.ones)(4)]) == [[2], [3, 4]]


def test_large_data_is_passed(client: Any) -> None:
    big = client.submit(np.ones, 4_000_000)
    total = gang(
        client,
        lambda parts, more: float(parts[0].sum() + more.sum()),
        1,
        np.ones(300_000),
        data=[big],
    )
    assert total == [4_300_000.0]


def test_output_is_printed_with_the_rank_or_written_to_a_folder(
    client: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def speak() -> None:
        import os
        import sys

        print("one of", os.environ["RANK"])  # noqa: T201
        os.write(2, b"two\n")
        sys.stdout.write("no line break")

    assert gang(client, speak, 2) == [None, None]
    lines = capsys.readouterr().out.splitlines()
    for rank in range(2):
        expected = [f"rank {rank} | {text}" for text in (f"one of {rank}", "two", "no line break")]
        assert [line for line in lines if line.startswith(f"rank {rank}")] == expected
    gang(client, speak, 2, logs=tmp_path / "new")
    gang(client, speak, 1, logs=False)
    assert capsys.readouterr().out == ""
    assert (tmp_path / "new" / "rank-1.log").read_text() == "one of 1\ntwo\nno line break\n"


def test_an_exception_ends_all_and_is_the_cause(client: Any) -> None:
    with pytest.raises(
        GangFailed, match=r"rank 1 on worker tcp://.* raised KeyError: 'gone'"
    ) as caught:
        gang(client, pickled_by_value(fail), 3, 1, logs=False)
    error = caught.value
    assert (error.rank, error.exit_code, error.restarts) == (1, 1, 0)
    assert isinstance(error.__cause__, KeyError)
    assert "in fail" in error.traceback
    assert "before the error" in str(error)
    assert str(error).count("Traceback") == 1


def test_a_traceback_is_shown_once(client: Any, tmp_path: Path, capsys: Any) -> None:
    def fail_at_first() -> None:
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise KeyError("gone")

    with pytest.raises(GangFailed) as caught:
        gang(client, fail_at_first, 2)
    assert "KeyError: 'gone'" in capsys.readouterr().out
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__traceback__ is None
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("in fail_at_first") == 1
    gang(client, fail_at_first, 1, max_retries=1)
    assert "in fail_at_first" in capsys.readouterr().out, "no error has it"
    with pytest.raises(GangFailed):
        gang(client, fail_at_first, 1, logs=tmp_path)
    assert "in fail_at_first" in (tmp_path / "rank-0.log").read_text()


def test_an_exit_code_is_reported(client: Any) -> None:
    with pytest.raises(GangFailed, match="ended with exit code 7 before the function returned"):
        gang(client, lambda: os._exit(7), 2, logs=False)
    assert gang(client, lambda: exit(0), 1) == [None]


def test_all_faults_are_listed_at_once(client: Any) -> None:
    with pytest.raises(RequestError) as caught:
        gang(client, 3, 0, data=[1], max_retries=-1, timeout=0, logs=3, env={"a": 1}, checkpoints=2)  # type: ignore[arg-type]
    named = [fault.where for fault in caught.value.faults]
    assert named == [
        "n",
        "max_retries",
        "checkpoints",
        "timeout",
        "logs",
        "env['a']",
        "function",
        "data",
    ]
    with pytest.raises(RequestError, match="n = 5: expected at most 4, the threads of the cluster"):
        gang(client, len, 5)
    with pytest.raises(
        RequestError, match=r"data\.npartitions = 1: expected at least one partition"
    ):
        gang(client, len, 2, data=da.ones(2))
    with pytest.raises(RequestError, match="chunks of whole rows"):
        gang(client, len, 2, data=da.ones((4, 4), chunks=2))


@pytest.mark.slow
def test_gangs_that_start_at_once_run_one_after_the_other(client: Any, tmp_path: Path) -> None:
    for number in range(scaled(1, 10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        results: list[Any] = []

        def run(name: str, folder: Path = folder, results: list[Any] = results) -> None:
            results.append(gang(client, pickled_by_value(hold_slots), 3, str(folder), name))

        threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted(results) == [[False] * 3, [False] * 3]
    assert client.run_on_scheduler(find_reserved) == {}


@pytest.mark.skipif(not FULL, reason="test_gang_faults.py has timeouts: at full scale")
def test_a_gang_that_cannot_start_in_time_raises(client: Any, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def wait_for_file(path: str) -> None:
        import pathlib
        import time

        while not pathlib.Path(path).exists():
            time.sleep(0.05)

    thread = threading.Thread(target=gang, args=(client, wait_for_file, 4, str(flag)))
    thread.start()
    try:
        while not client.run_on_scheduler(find_reserved):
            time.sleep(0.05)
        with pytest.raises(GangTimeout, match="within the timeout of 1 s: other gangs"):
            gang(client, len, 1, timeout=1)
    finally:
        flag.touch()
        thread.join(120)
    assert gang(client, lambda: 5, 1, timeout=60) == [5]
    assert client.run_on_scheduler(find_reserved) == {}


@pytest.mark.slow
def test_running_tasks_delay_a_gang(client: Any) -> None:
    tasks = client.map(time.sleep, [1.0] * 4, pure=False)
    assert gang(client, lambda: 1, 4) == [1] * 4
    assert all(task.done() for task in tasks)


def test_an_adaptive_cluster_grows_for_a_gang() -> None:
    plan = hyperplane.plan_cluster(
        1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, engine="local", local_fit="exact"
    )
    client, cluster = hyperplane.start(plan)
    with cluster, client:
        adaptive = cluster.adapt(minimum=1, maximum=2, interval="200ms")
        with pytest.raises(RequestError, match="n = 3: expected at most 2"):
            gang(client, lambda: 1, 3)
        assert gang(client, lambda: 1, 2, timeout=120) == [1, 1]
        assert adaptive.minimum == 1
