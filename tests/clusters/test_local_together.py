"""Several clusters at once, and clusters of programs that use multiprocessing."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from scale import FULL, scaled

import hyperplane

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("few_imports")]

ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "timeout": 200,
}


def square(number: int) -> int:
    return number * number


@pytest.mark.slow
def test_clusters_started_from_several_threads_have_separate_folders() -> None:
    def begin(number: int) -> Any:
        return hyperplane.start(hyperplane.plan_cluster(**ONE, name=f"thread-{number}"))

    for turn in range(scaled(1, 4)):
        with ThreadPoolExecutor(3) as pool, ExitStack() as stack:
            starting = [pool.submit(begin, number) for number in range(3 * turn, 3 * turn + 3)]
            wait(starting)
            for each in starting:
                if each.exception() is None:
                    stack.enter_context(each.result().cluster)
                    stack.enter_context(each.result().client)
            for client, cluster in (each.result() for each in starting):
                [folder] = client.run(lambda dask_worker: dask_worker.local_directory).values()
                top = Path(tempfile.gettempdir()) / f"hyperplane-{os.getuid()}"
                scratch = Path(folder).parent.parent
                assert (scratch.name, scratch.parents[1]) == (cluster.name, top)
                assert cluster.scheduler.worker_ttl == 60
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_the_program_can_use_forkserver_beside_a_cluster() -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(square, 3).result(timeout=120) == 9
        assert client.submit(square, 4).result(timeout=120) == 16


MAIN_FUNCTIONS = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import hyperplane

def square(number):
    return number * number

def use_a_cluster():
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, ram_gb_per_proc=0.5, scheduler_deploy_mode="local"
    )
    with cluster, client:
        if sys.argv[1] == "forkserver beside it":
            context = multiprocessing.get_context("forkserver")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                assert pool.submit(square, 3).result(timeout=120) == 9
        assert client.submit(square, 4).result(timeout=120) == 16
    print("done")

if __name__ == "__main__":
    if sys.argv[1] == "in a spawned child":
        child = multiprocessing.get_context("spawn").Process(target=use_a_cluster)
        child.start()
        child.join()
        sys.exit(child.exitcode)
    use_a_cluster()
"""


@pytest.mark.skipif(not FULL, reason="test_local_like_plain.py has programs, too: at full scale")
@pytest.mark.parametrize("case", ["forkserver beside it", "in a spawned child"])
def test_functions_of_the_main_module_are_found(case: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN_FUNCTIONS)
    done = subprocess.run(
        [sys.executable, str(script), case],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"


@pytest.mark.parametrize("name", ["p-flights", "p-4000000", "json"])
def test_names_of_clusters_do_not_collide_with_internal_files(name: str) -> None:
    from hyperplane.clusters import records

    client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE, name=name))
    with cluster, client:
        assert [record.name for record in records.read_all()] == [name]
        assert client.submit(square, 4).result() == 16


def test_a_second_cluster_of_a_program_is_pointed_out() -> None:
    first = hyperplane.start(hyperplane.plan_cluster(**ONE, name="first"))
    with first.cluster, first.client:
        [line] = hyperplane.plan_cluster(**ONE).alerts
        assert "use cores and memory of this machine: first;" in line
        assert "replace=True" in line
