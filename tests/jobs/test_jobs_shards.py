"""Chunks that save shards: what is committed is not made again, the whole is there at the end."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from job_cases import ran

import hyperplane
from hyperplane.jobs import Step
from hyperplane.jobs.states import DONE, FAILED
from hyperplane.storage import missing_shards

SQUARE = """
import os, pathlib
import hyperplane

pathlib.Path("ran").mkdir(exist_ok=True)
pathlib.Path("ran", os.environ["CHUNK_ID"]).open("a").write("x")
share = hyperplane.shard_rows("numbers.parquet")
if os.environ["CHUNK_ID"] == "2" and not pathlib.Path("there").exists():
    raise ValueError("not yet")
hyperplane.save(share**2, "squares", shard=tuple(hyperplane.shard()))
"""


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"n": np.arange(100)}).to_parquet("numbers.parquet")
    (tmp_path / "square.py").write_text(SQUARE)


def step():
    return Step(name="square", kind="python", path="square.py", chunks=4, output="squares")


def made(folder):
    return sorted(path.name for path in (folder / "ran").iterdir())


def test_a_shard_that_is_there_is_not_made_again(tmp_path):
    share = hyperplane.shard_rows("numbers.parquet", 4, 1)
    hyperplane.save(share**2, "squares", shard=(1, 4))
    (tmp_path / "there").touch()
    job = ran(step())
    assert job.status == DONE, job.logs()
    assert made(tmp_path) == ["0", "2", "3"]
    reasons = {one.chunk: one.reason for one in job.attempts}
    assert reasons == {0: "", 1: "its shard is there already", 2: "", 3: ""}
    assert hyperplane.load("squares").n.compute().to_list() == (np.arange(100) ** 2).tolist()


def test_another_job_does_only_what_is_missing(tmp_path):
    job = ran(step(), max_retries=0)
    assert job.status == FAILED
    assert missing_shards("squares") == [2]
    (tmp_path / "there").touch()
    again = ran(step(), max_retries=0)
    assert again.status == DONE, again.logs()
    assert {path.name: path.read_text() for path in (tmp_path / "ran").iterdir()} == {
        "0": "x", "1": "x", "2": "xx", "3": "x",
    }  # fmt: skip
    assert len(hyperplane.load("squares")) == 100
