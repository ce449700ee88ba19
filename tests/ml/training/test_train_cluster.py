"""A training program on the workers of a Dask cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from gang_cases import train
from scale import scaled

from hyperplane.errors import RequestError
from hyperplane.ml import train_program

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(0)  # writes the program, of which four processes begin
    return tmp_path


@pytest.fixture(scope="module")
def client():
    import hyperplane

    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=4, ram_gb_per_proc=1, engine="local", local_fit="exact"
    )
    client, cluster = hyperplane.start(plan)
    yield client
    client.close()
    cluster.close()


@pytest.mark.slow
@pytest.mark.parametrize("code", scaled([7], [0, 7]))
def test_the_code_is_that_of_the_primary_and_all_others_end(client, capfd, code):
    began = time.monotonic()
    returned = train_program(
        "trainer.task", [code], package_path="trainer", job_dir="out", distributed=True,
        worker_count=1, parameter_server_count=1, evaluator_count=1, client=client,
    )  # fmt: skip
    assert returned == code
    assert time.monotonic() - began < 60
    records = {file.stem: json.loads(file.read_text()) for file in Path("out").glob("*.json")}
    assert sorted(records) == ["chief-0", "evaluator-0", "ps-0", "worker-0"]
    assert sorted(records["ps-0"]["config"]["cluster"]) == ["chief", "ps", "worker"]
    assert records["worker-0"]["rank"] == "1"
    assert records["ps-0"]["rank"] is None
    sizes = {name: record["size"] for name, record in records.items()}
    assert sizes == {"chief-0": "2", "worker-0": "2", "ps-0": None, "evaluator-0": None}
    printed = "".join(capfd.readouterr())
    assert f"rank 0 | chief-0 ended the run with return code {code}\n" in printed
    assert "Traceback" not in printed


def test_the_code_of_a_primary_whose_child_keeps_printing(client):
    script = "import subprocess, sys\nsubprocess.Popen(['yes'])\nsys.exit(5)"
    (Path("trainer") / "task.py").write_text(script)
    assert train_program("trainer.task", package_path="trainer", client=client) == 5


def test_fail_fast_returns_the_code_of_the_process_that_failed(client):
    script = "import os, sys, time\nif os.environ.get('RANK') == '1': sys.exit(9)\ntime.sleep(600)"
    (Path("trainer") / "task.py").write_text(script)
    returned = train_program(
        "trainer.task", package_path="trainer", distributed=True, worker_count=1,
        parameter_server_count=0, fail_fast=True, client=client,
    )  # fmt: skip
    assert returned == 9


def test_all_faults_are_reported_at_once(client):
    with pytest.raises(RequestError) as caught:
        train_program(
            "trainer.other", package_path="trainer", distributed=True, worker_count=-1,
            start_port=3000, client=client,
        )  # fmt: skip
    assert {fault.where for fault in caught.value.faults} == {
        "module_name", "worker_count", "start_port",
    }  # fmt: skip
    with pytest.raises(RequestError, match=r"\+ worker_count .* = 12: expected at most 4, the thr"):
        train_program(
            "trainer.task", package_path="trainer", distributed=True, worker_count=9, client=client,
        )  # fmt: skip
