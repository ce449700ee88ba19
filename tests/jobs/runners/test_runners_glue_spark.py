"""The script of Glue jobs as the program of a Spark driver, whose child has the same session."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from glue_script import run_script

from hyperplane.jobs.runners.container_program import read_task_program

pytestmark = [pytest.mark.spark, pytest.mark.process]

STEP = b"""
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print(spark.sparkContext.appName, os.environ["CHUNK_ID"])
print("sum", spark.range(100).selectExpr("sum(id)").first()[0])
print("squares", spark.sparkContext.parallelize(range(4)).map(lambda each: each * each).sum())
"""


def test_a_step_has_the_session_of_its_job(tmp_path: Path) -> None:
    bucket = tmp_path / "flights"
    bucket.mkdir()
    program = read_task_program().content
    name = hashlib.sha256(program).hexdigest()
    (bucket / name).write_bytes(program)
    (bucket / "step.py").write_bytes(STEP)
    file = {
        "key": "step.py",
        "sha256": hashlib.sha256(STEP).hexdigest(),
        "path": "step.py",
        "archive": False,
        "importable": False,
    }
    manifest = {
        "folder": ".",
        "paths": [1],
        "files": [file],
        "variables": {"CHUNK_ID": "3"},
        "tasks": [{"variables": {}, "argv": ["python", "step.py"]}],
    }
    (bucket / "manifest").write_text(json.dumps(manifest))
    submit = Path(sys.executable).with_name("spark-submit")
    python = f"spark.pyspark.python={sys.executable}"
    words = [str(submit), "--master", "local[1]", "--name", "of-the-job", "--conf", python]
    done = run_script(words, tmp_path, name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["of-the-job 3", "sum 4950", "squares 14"]
    assert (bucket / "outcome").read_text() == "0"
