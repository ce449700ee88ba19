"""Chunks that save shards: committed shards are not repeated, and the result is complete."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from job_cases import LIMIT, bash, run_job
from scale import FULL, scaled

import hyperplane
from hyperplane.jobs import Step
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.storage import missing_shards

pytestmark = pytest.mark.process

SQUARE = """
import os, pathlib
import hyperplane, pandas

pathlib.Path("ran").mkdir(exist_ok=True)
pathlib.Path("ran", os.environ["CHUNK_ID"]).open("a").write("x")
index, count = hyperplane.shard()
size = 100 / count
share = SHARE
print("of the year", os.environ.get("YEAR"))
if os.environ["CHUNK_ID"] == "1" and not pathlib.Path("there").exists():
    raise ValueError("not yet")
hyperplane.save(share**2, "squares", shard=tuple(hyperplane.shard()))
"""
#: Two ways to read a share: that of most tests, and the documented one, whose import takes a
#: second more.
PLAIN = "pandas.read_parquet('numbers.parquet')[int(index * size) : int((index + 1) * size)]"
DOCUMENTED = "hyperplane.shard_rows('numbers.parquet')"


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"n": np.arange(100)}).to_parquet("numbers.parquet")
    (tmp_path / "square.py").write_text(SQUARE.replace("SHARE", PLAIN))


def step():
    return Step(name="square", kind="python", path="square.py", chunks=2, output="squares")


@pytest.mark.skipif(not FULL, reason="other tests run chunks again: at full scale")
def test_chunks_run_again_after_a_run_with_other_parameters(tmp_path):
    (tmp_path / "there").touch()
    first = bash("first", "true")
    for turn, year in (("x", 2013), ("x", 2013), ("xx", 2014), *scaled([], [("xxx", 2013)])):
        assert run_job(first, step(), parameters={"year": year}, max_retries=0).status == DONE
        assert (tmp_path / "ran" / "0").read_text() == turn
    assert hyperplane.load("squares").n.compute().to_list() == (np.arange(100) ** 2).tolist()


@pytest.mark.slow
def test_saved_shards_do_not_let_a_step_run_before_its_dependencies(tmp_path):
    (tmp_path / "there").touch()
    assert run_job(step()).status == DONE
    first = bash("first", "exit 64")
    job = run_job(first, step(), bash("last", "true"), max_retries=0)
    assert [(attempt.step, attempt.status) for attempt in job.attempts] == [("first", FAILED)]


@pytest.mark.slow
def test_another_job_runs_only_the_missing_chunks(tmp_path):
    (tmp_path / "square.py").write_text(SQUARE.replace("SHARE", DOCUMENTED))
    job = run_job(step(), max_retries=0)
    assert job.status == FAILED
    assert missing_shards("squares") == [1]
    (tmp_path / "there").touch()
    again = run_job(step(), max_retries=0)
    assert again.status == DONE, again.logs()
    assert {path.name: path.read_text() for path in (tmp_path / "ran").iterdir()} == {
        "0": "x", "1": "xx",
    }  # fmt: skip
    assert len(hyperplane.load("squares")) == 100


@pytest.mark.slow
def test_an_output_in_another_number_of_shards_is_reported_before_a_chunk_runs(tmp_path):
    (tmp_path / "there").touch()
    assert run_job(step()).status == DONE
    more = Step(name="square", kind="python", path="square.py", chunks=3, output="squares",
                max_parallel=2)  # fmt: skip
    job = run_job(more, max_retries=2)
    assert job.status == FAILED
    assert {path.name: path.read_text() for path in (tmp_path / "ran").iterdir()} == dict.fromkeys(
        "01", "x"
    )
    assert "squares already exists, saved in 2 shards, but the step saves 3" in job.job.reason
    assert "set the number of chunks to 2" in job.job.reason
    assert len(job.attempts) <= 2
    assert {(attempt.status, attempt.fault) for attempt in job.attempts} == {(FAILED, "input")}
    if not FULL:
        return
    shutil.rmtree("squares")
    assert job.resume().wait(LIMIT) == DONE, job.logs()
    assert len(hyperplane.load("squares")) == 100


def test_an_output_that_was_saved_whole_is_reported_too():
    hyperplane.save(pd.DataFrame({"n": [1]}), "squares", format="parquet")
    job = run_job(step())
    assert "squares already exists, saved as a whole, but the step saves 2" in job.job.reason


@pytest.mark.slow
def test_shards_of_another_count_do_not_count_as_saved(tmp_path):
    (tmp_path / "square.py").write_text("import os; os.makedirs('ran', exist_ok=True)")
    assert run_job(step()).status == DONE
    for index in range(3):  # of eight shards, whose save is in progress
        hyperplane.save(pd.DataFrame({"n": [index]}), "squares", shard=(index, 8))
    (tmp_path / "square.py").write_text(SQUARE.replace("SHARE", PLAIN))
    (tmp_path / "there").touch()
    job = run_job(step())
    assert job.status == DONE, job.logs()
    assert sorted(path.name for path in (tmp_path / "ran").iterdir()) == ["0", "1"]
    assert (hyperplane.load("squares").n.compute() == np.arange(100) ** 2).all()
