"""Artifacts in the job store, in SQLite and in PostgreSQL."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from hyperplane.jobs import Artifact
from hyperplane.jobs.store.artifact_records import LONGEST_NAME
from hyperplane.jobs.store.job_records import DONE
from hyperplane.jobs.store.job_store import JobStore


def record(job, name="a.csv", **fields):
    values = {"step": "one", "chunk": -1, "attempt": 1, "kind": "table", "url": f"/data/{name}"}
    return Artifact(job.id, name=name, **{**values, "created": 1.5, **fields})


def test_artifacts_are_read_as_they_were_saved(store, job):
    store.add(job)
    saved = [
        record(job, "ü '\"\n.csv", size=2**62, rows=0, files=3, identity="1:2:3:", is_folder=True),
        record(job, "é" * (LONGEST_NAME // 2), size=None, rows=None, files=None, created=2.5),
    ]
    store.save_artifacts(saved)
    store.save_artifacts([])
    assert store.artifacts(job.id) == saved
    assert store.artifacts(job.id, "one") == saved
    assert store.artifacts(job.id, "two") == store.artifacts("unknown") == []


def test_a_later_attempt_replaces_artifacts_of_the_same_name(store, job):
    store.add(job)
    store.save_artifacts([record(job, "a.csv"), record(job, "b.csv"), record(job, chunk=2)])
    store.save_artifacts([record(job, "a.csv", attempt=2, created=3.0)])
    found = {(each.name, each.chunk): each.attempt for each in store.artifacts(job.id)}
    assert found == {("a.csv", -1): 2, ("b.csv", -1): 1, ("a.csv", 2): 1}


def test_a_later_attempt_replaces_artifacts_of_the_same_address(store, job):
    store.add(job)
    value = record(job, "output", url="", kind="output")
    names = [f"{number:04}.csv" for number in range(1200)]
    masked = [record(job, name, url="s3://b/*******") for name in names]
    store.save_artifacts([record(job, "x.csv", url="/a/x.csv"), value, *masked])
    store.save_artifacts([record(job, "a/x.csv", url="/a/x.csv", attempt=2)])
    found = {each.name: each.attempt for each in store.artifacts(job.id)}
    assert found == {"a/x.csv": 2, "output": 1, **dict.fromkeys(names, 1)}
    store.save_artifacts([replace(value, name="value", attempt=2)])
    assert {"output", "value"} < {each.name for each in store.artifacts(job.id)}


def test_two_of_one_name_are_one(store, job):
    store.add(job)
    store.save_artifacts([record(job, size=1), record(job, size=2)])
    assert [each.size for each in store.artifacts(job.id)] == [2]


def test_the_shards_of_an_output_are_one_artifact(store, job):
    store.add(job)
    for chunk in range(3):
        fields = {"chunk": chunk, "shard": chunk, "size": 10, "rows": chunk, "created": 1.0 + chunk}
        store.save_artifacts([record(job, "all.parquet", **fields)])
    store.save_artifacts([record(job, "own.csv", chunk=1)])
    whole, own = sorted(store.artifacts(job.id), key=lambda each: each.chunk)
    assert (whole.name, whole.chunk, whole.size, whole.rows, whole.files) == (
        "all.parquet", -1, 30, 3, 3
    )  # fmt: skip
    assert (whole.created, whole.shard) == (3.0, None)
    assert own.chunk == 1
    unknown = record(job, "all.parquet", chunk=1, shard=1, size=None, rows=4)
    store.save_artifacts([unknown])
    assert [each.size for each in store.artifacts(job.id) if each.chunk < 0] == [None]


def test_a_thousand_artifacts_are_stored_and_read(store, job):
    store.add(job)
    saved = [record(job, f"{number:04}.csv", created=number) for number in range(1200)]
    store.save_artifacts(saved)
    assert store.artifacts(job.id) == saved


def test_artifacts_are_removed_with_their_job(store, job):
    other = replace(job, id=f"{job.id[:-4]}beef")
    for each in (job, other):
        store.add(replace(each, status=DONE))
        store.save_artifacts([record(each)])
    assert store.remove_ended(job.id, lambda: None)
    assert store.artifacts(job.id) == []
    assert len(store.artifacts(other.id)) == 1


def test_a_store_of_an_earlier_version_gets_the_table(tmp_path, job):
    url = f"sqlite:///{tmp_path}/jobs.db"
    first = JobStore(url)
    first.add(job)
    first.close()
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("DROP TABLE hyperplane_artifacts")
    connection.close()
    again = JobStore(url)
    again.save_artifacts([record(job)])
    assert (again.get(job.id), len(again.artifacts(job.id))) == (job, 1)
    again.close()


@pytest.mark.parametrize("name", ["a\udcff.csv"])
def test_a_name_that_is_no_text_is_refused(store, job, name):
    store.add(job)
    with pytest.raises(Exception, match="UTF-8"):
        store.save_artifacts([record(job, name)])
