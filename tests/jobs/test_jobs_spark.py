"""A step with a Spark cluster, which runs when the program starts and ends with the step."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from job_cases import run_job, wait_until
from spark_properties import PROPERTIES

from hyperplane.jobs import Step

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

#: Seconds within which a cluster starts and a program runs on a busy machine.
ENDED = 280
#: A plain program of Spark.
PROGRAM = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("master", spark.sparkContext.master)
print("sum", spark.range(100).selectExpr("sum(id)").first()[0])
"""


def find_processes(name: str) -> list[int]:
    """Return the processes of a cluster."""
    return [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {})
        .get("HYPERPLANE_LOCAL_CLUSTER", "")
        .startswith(f"{name} ")
    ]


def test_a_program_finds_the_cluster_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "count.py").write_text(PROGRAM)
    cluster = {
        "framework": "spark",
        "name": "spark-of-the-step",
        "num_workers": 1,
        "nprocs": 1,
        "nthreads": 1,
        "ram_gb_per_proc": 1,
        "local_fit": "exact",
        "engine_options": {"properties": PROPERTIES},
    }
    step = Step(name="count", kind="python", path="count.py", cluster=cluster)
    job = run_job(step, max_retries=0, wait=ENDED)
    log = job.logs()
    assert job.status == "done", log
    assert "master spark://127.0.0.1:" in log
    assert "sum 4950" in log
    # The cluster was in the environment of the step only.
    assert not {"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys()
    wait_until(lambda: find_processes("spark-of-the-step") == [])
