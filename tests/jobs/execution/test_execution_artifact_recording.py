"""What is recorded of an attempt: reports, the executed notebook, and the output folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest
from artifact_cases import notebook
from job_cases import bash

import hyperplane
from hyperplane.core.artifact_reports import REPORTS_FOLDER, report_artifact
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.artifact_files import open_artifact
from hyperplane.jobs.artifacts import choose_artifact
from hyperplane.jobs.execution import artifact_recording
from hyperplane.jobs.execution.artifact_recording import (
    OUTPUTS_SUFFIX,
    REPORTS_SUFFIX,
    collect_artifacts,
)
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import Attempt
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store


class Attempted:
    """An attempt at a step whose files exist."""

    def __init__(self, folder, step, patch, chunk=-1):
        job = new_job(Pipeline.from_steps("p", [step], root=str(folder)))
        self.folder, self.step, self.chunk = folder, step, chunk
        self.job = replace(job, folder=str(folder / "home" / "jobs" / job.id))
        prefix = self.job.folder_path / "steps" / "000-one" / "attempt-1"
        self.command = AttemptCommand((), {}, str(folder), prefix)
        self.outputs = self.command.file(OUTPUTS_SUFFIX)
        self.outputs.mkdir(parents=True)
        self.reports = self.command.file(REPORTS_SUFFIX)
        patch.setenv(REPORTS_FOLDER, str(self.reports))
        self.attempt = Attempt(self.job.id, step.name, chunk, 1, started=time.time() - 5)

    def collect(self, *secrets, **options):
        found, self.note = collect_artifacts(
            self.job, self.step, self.attempt, self.command, secrets, **options
        )
        return {each.name: each for each in found}

    def write_report(self, text):
        self.reports.mkdir(exist_ok=True)
        (self.reports / "1-a.jsonl").write_text(text)


@pytest.fixture
def attempted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Attempted(tmp_path, bash("one", "true"), monkeypatch)


def test_what_is_saved_is_recorded_with_its_kind(attempted, tmp_path):
    frame = pd.DataFrame({"day": [1, 2, 3]})
    hyperplane.save(frame, "out/delays.parquet")
    hyperplane.save({"a": 1}, tmp_path / "facts.json")
    hyperplane.save(b"x" * 5, tmp_path.parent / f"{tmp_path.name}-elsewhere" / "blob.bin")
    found = attempted.collect()
    assert {name: each.kind for name, each in found.items()} == {
        "out/delays.parquet": "table",
        "facts.json": "text",
        "blob.bin": "file",
    }
    table = found["out/delays.parquet"]
    assert (table.rows, table.files, table.format, table.attempt) == (3, 1, "parquet", 1)
    assert table.url == str(tmp_path / "out" / "delays.parquet")
    assert table.size == Path(table.url).stat().st_size
    assert abs(table.created - time.time()) < 60
    with open_artifact(found["blob.bin"]) as opened:
        assert opened.read() == b"xxxxx"


def test_a_folder_of_parts_is_one_artifact(attempted, tmp_path):
    frame = dd.from_pandas(pd.DataFrame({"day": range(10)}), npartitions=3)
    hyperplane.save(frame, attempted.outputs / "days.parquet")
    found = attempted.collect()
    assert list(found) == ["days.parquet"]
    days = found["days.parquet"]
    assert (days.kind, days.files, days.rows, days.is_folder) == ("table", 3, 10, True)
    with open_artifact(days) as opened:
        assert opened.read(4) == b"PAR1"


def test_a_folder_of_one_part_or_file_is_a_folder(attempted, tmp_path):
    frame = dd.from_pandas(pd.DataFrame({"day": range(10)}), npartitions=1)
    hyperplane.save(frame, tmp_path / "days")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.txt").write_text("x")
    hyperplane.save(tmp_path / "own", tmp_path / "copies")
    hyperplane.save(tmp_path / "own" / "a.txt", tmp_path / "copy.txt")
    attempted.write_report(
        '{"kind": "dataframe", "created": 1, "url": "s3://b/far", "files": 1, "folder": true}\n'
    )
    found = attempted.collect()
    assert {name: (each.kind, each.is_folder, each.files) for name, each in found.items()} == {
        "far": ("table", True, 1),
        "days": ("table", True, 1),
        "copies": ("folder", True, 1),
        "copy.txt": ("text", False, 1),
    }


def test_the_same_output_saved_twice_is_recorded_once(attempted):
    for text in ("a", "bb"):
        hyperplane.save(text.encode(), "x.bin", mode="overwrite")
    assert [each.size for each in attempted.collect().values()] == [2]


def test_equal_names_in_several_folders_differ(attempted, tmp_path):
    other = tmp_path.parent / f"{tmp_path.name}-other"
    for number, folder in enumerate(("a", "b")):
        hyperplane.save(b"x" * (number + 1), other / folder / "x.bin")
    found = attempted.collect()
    assert [(name, each.size) for name, each in found.items()] == [("x.bin", 1), ("b/x.bin", 2)]


def test_names_do_not_depend_on_the_order_of_saves(attempted, tmp_path):
    folder = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    names = []
    for order in ("ab", "ba"):
        for each in order:
            hyperplane.save(each, folder / each / "x.txt", mode="overwrite")
        names.append({name: artifact.url for name, artifact in attempted.collect().items()})
        open_store().save_artifacts([*attempted.collect().values()])
        shutil.rmtree(attempted.reports)
    assert names[0] == names[1]
    urls = [each.url for each in open_store().artifacts(attempted.job.id)]
    assert sorted(urls) == [str(folder / each / "x.txt") for each in "ab"]


def test_files_of_the_output_folder_are_recorded_without_links_and_hidden_ones(attempted, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    figures = attempted.outputs / "figures"
    figures.mkdir()
    (figures / "delay.PNG").write_bytes(b"\x89PNG")
    (attempted.outputs / "notes.md").write_text("fine")
    (attempted.outputs / ".hidden").write_text("x")
    (attempted.outputs / ".checkpoints").mkdir()
    (attempted.outputs / ".checkpoints" / "x.txt").write_text("x")
    (attempted.outputs / "link.txt").symlink_to(secret)
    (attempted.outputs / "folder").symlink_to(tmp_path)
    os.mkfifo(attempted.outputs / "pipe")
    found = attempted.collect()
    assert {name: each.kind for name, each in found.items()} == {
        "figures/delay.PNG": "picture",
        "notes.md": "text",
    }
    assert attempted.note == ""


def test_an_output_folder_that_is_a_link_is_left_out(attempted, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    attempted.outputs.rmdir()
    attempted.outputs.symlink_to(tmp_path)
    assert attempted.collect() == {}


def test_files_of_jobs_are_never_artifacts(attempted):
    own = attempted.job.folder_path
    log = attempted.command.file(".log")
    others = own.parent / "other" / "steps" / "attempt-1.log"
    others.parent.mkdir(parents=True)
    names = "submission.json", "call.pickle", "call-sources.json"
    for path in (log, others, *(own / name for name in names), own.parent / "x.db"):
        path.write_text("TOKEN=hunter2")
        report_artifact("bytes", url=str(path), size=1, files=1, local=True)
    database = jobs_folder() / "jobs.db"
    report_artifact("bytes", url=str(database), size=1, files=1, local=True)
    (own / "result.txt").write_text("fine")
    report_artifact("bytes", url=str(own / "result.txt"), size=4, files=1, local=True)
    linked = attempted.folder / "linked"
    linked.symlink_to(log.parent)
    report_artifact("bytes", url=str(linked / log.name), size=1, files=1, local=True)
    assert [each.url for each in attempted.collect().values()] == [str(own / "result.txt")]


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[" * 100_000,
        "[]",
        "null",
        '{"kind": "bytes"}',
        '{"kind": "bytes", "created": NaN, "url": "/a"}',
        '{"kind": "bytes", "created": 1, "url": ["/a"]}',
        '{"kind": "bytes", "created": 1, "url": "/a", "size": -1}',
        '{"kind": "bytes", "created": 1, "url": "/a", "size": 1e400}',
        '{"kind": "bytes", "created": 1, "url": "/a", "rows": 99999999999999999999}',
        '{"kind": "bytes", "created": 1, "url": "s3://b/a\\u0000.csv"}',
        '{"kind": "bytes", "created": 1, "url": "s3://b/a\\udcff.csv"}',
        json.dumps({"kind": "bytes", "created": 1, "url": "s3://b/" + "x" * 5000}),
        json.dumps({"kind": "bytes", "created": 1, "url": "s3://b/" + "x" * 600}),
        '{"kind": "bytes", "created": 1, "url": "relative.csv", "local": true}',
        '{"kind": "bytes", "created": 1, "url": "/a\\u0000b", "local": true}',
        '{"kind": "bytes", "created": 1, "url": "http://[/a.csv"}',
        '{"kind": "bytes", "created": %s, "url": "s3://b/a.csv"}' % ("9" * 400),
        '{"kind": "bytes", "created": 1, "url": "s3://b/a", "format": "\\ud800"}',
        '{"kind": "bytes", "created": 1, "url": "s3://b/a", "format": "\\u0000"}',
        '{"kind": "bytes", "created": 1, "url": "file:///etc/passwd"}',
        '{"kind": "bytes", "created": 1, "url": "FILE:///etc/passwd"}',
        '{"kind": "bytes", "created": 1, "url": "file:/etc/passwd"}',
        '{"kind": "bytes", "created": 1, "url": "local:///etc/passwd"}',
        '{"kind": "bytes", "created": 1, "url": "/etc/passwd"}',
        '{"kind": "bytes", "created": 1, "url": "../passwd"}',
        '{"kind": "bytes", "created": 1, "url": "simplecache::file:///etc/passwd"}',
        '{"kind": "bytes", "created": 1, "url": "s3://b/a::file:///etc/passwd"}',
    ],
)
def test_a_report_that_is_none_is_left_out(attempted, line):
    good = '{"kind": "bytes", "created": 2, "url": "s3://bucket/good.csv", "size": 7}'
    attempted.write_report(f"{line}\n{good}\n")
    assert list(attempted.collect()) == ["good.csv"]


def test_sums_that_databases_cannot_store_are_unknown(attempted):
    line = '{"kind": "bytes", "created": 1, "url": "s3://b/a", "size": %d, "rows": 3, "shard": %d}'
    attempted.write_report("\n".join(line % (2**63 - 1, shard) for shard in range(2)))
    found = attempted.collect()["a"]
    assert (found.size, found.rows) == (None, 6)
    open_store().save_artifacts([found])


def test_a_file_named_as_the_output_of_the_job_is_kept(attempted, tmp_path):
    hyperplane.save(pd.DataFrame({"day": [1]}), "output", format="parquet")
    report_artifact("output", size=2, digest="ab")
    (attempted.outputs / "output").write_text("other")
    found = attempted.collect()
    assert {name: each.kind for name, each in found.items()} == {
        "./output": "table",
        "output": "output",
        "attempt-1.outputs/output": "file",
    }
    assert found["./output"].url == str(tmp_path / "output")
    job = attempted.job
    assert choose_artifact(job, list(found.values()), "output").kind == "output"
    assert choose_artifact(job, list(found.values()), "./output").kind == "table"


def test_files_with_reports_that_are_links_are_not_read(attempted, tmp_path):
    (tmp_path / "x").write_text('{"kind": "bytes", "created": 2, "url": "s3://bucket/x.csv"}\n')
    attempted.reports.mkdir()
    (attempted.reports / "1.jsonl").symlink_to(tmp_path / "x")
    os.mkfifo(attempted.reports / "2.jsonl")
    assert attempted.collect() == {}


def test_addresses_have_no_secrets(attempted):
    lines = [
        {"kind": "bytes", "created": 1, "url": "https://me:hunter2@host/a.csv?sig=hunter3"},
        {"kind": "bytes", "created": 2, "url": "s3://bucket/token-hunter4/b.csv"},
    ]
    attempted.write_report("".join(f"{json.dumps(line)}\n" for line in lines))
    for name in ("hunter4.txt", "a.hunter4", "b.HunteR5", f"c.hunter6{'x' * 30}"):
        (attempted.outputs / name).write_text("x")
    days = attempted.folder / "days.parquet"
    days.mkdir()
    (days / "hunter4.parquet").write_text("x")
    report_artifact("table", url=str(days), folder=True, local=True, format="parquet")
    secrets = ("hunter4", "HunteR5", f"hunter6{'x' * 30}")
    found = attempted.collect(*secrets)
    text = repr([vars(each) for each in found.values()])
    assert "hunter" not in text.lower()
    assert len(found) == 7
    assert "s3://bucket/token-*******/b.csv" in text


def test_names_that_are_equal_when_masked_are_numbered(attempted):
    for name in ("hunter4.txt", "HunteR5.txt", "hunter6.txt", "hunter4.csv", "*******-3.txt"):
        (attempted.outputs / name).write_text(name)
    long = [f"{'x' * 503}{secret}" for secret in ("hunter4", "hunter6")]
    lines = [{"kind": "bytes", "created": 1, "url": f"s3://b/{name}"} for name in long]
    attempted.write_report("".join(f"{json.dumps(line)}\n" for line in lines))
    found = attempted.collect("hunter4", "HunteR5", "hunter6")
    x = "x" * 503
    assert {*found} == {
        "*******.txt", "*******-2.txt", "*******-3.txt", "*******-4.txt", "*******.csv",
        f"{x}*******", f"{x}*******-2",
    }  # fmt: skip
    assert max(len(name) for name in found) == 512
    assert found["*******-3.txt"].identity
    open_store().save_artifacts([*found.values()])
    assert len(open_store().artifacts(attempted.job.id)) == 7


def test_what_exists_only_in_the_process_is_not_recorded(attempted):
    hyperplane.save(b"x", "memory://artifacts/x.bin")
    assert attempted.collect() == {}


def test_outside_of_a_job_nothing_is_reported(attempted, monkeypatch):
    monkeypatch.delenv(REPORTS_FOLDER)
    hyperplane.save(b"x", "x.bin")
    assert attempted.collect() == {}
    assert not attempted.reports.exists()


def test_a_report_that_cannot_be_written_does_not_fail_the_save(attempted, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(REPORTS_FOLDER, str(tmp_path / "file" / "reports"))
    assert hyperplane.save(b"x", "x.bin").changed


def test_names_that_are_no_text_and_too_many_files_are_counted(attempted, monkeypatch):
    monkeypatch.setattr(artifact_recording, "MOST_ARTIFACTS", 3)
    for number in range(5):
        (attempted.outputs / f"{number}.txt").write_text("x")
    Path(os.fsdecode(os.fsencode(attempted.outputs) + b"/\xff.txt")).write_text("x")
    assert len(attempted.collect()) == 3
    assert "3 saved files not recorded" in attempted.note


@pytest.mark.slow
def test_all_files_that_are_left_out_are_counted(attempted):
    for number in range(20_000):
        (attempted.outputs / f"{number}").touch()
    assert len(attempted.collect()) == 2000
    assert "18000 saved files not recorded" in attempted.note


def test_an_executed_notebook_is_recorded_if_this_attempt_has_written_it(tmp_path, monkeypatch):
    (tmp_path / "a.ipynb").write_bytes(notebook())
    step = Step(name="one", kind="notebook", path="a.ipynb", output_path="done/a.ipynb")
    attempted = Attempted(tmp_path, step, monkeypatch)
    assert attempted.collect() == {}
    executed = tmp_path / "done" / "a.ipynb"
    executed.parent.mkdir()
    executed.write_text("{}")
    found = attempted.collect()["a.ipynb"]
    assert (found.kind, found.url) == ("notebook", str(executed))
    os.utime(executed, (1, 1))
    assert attempted.collect() == {}


def test_shards_are_those_of_one_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = bash("one", "true", chunks=2, output="all.parquet")
    first = Attempted(tmp_path, step, monkeypatch, chunk=0)
    hyperplane.save(pd.DataFrame({"a": [1]}), "all.parquet", shard=(0, 2))
    found = first.collect()
    assert list(found) == ["all.parquet"]
    shard = found["all.parquet"]
    assert (shard.shard, shard.rows, shard.chunk, shard.is_folder) == (0, 1, 0, True)


def test_shards_that_one_process_saves_are_counted_together(attempted):
    for shard in range(3):
        frame = pd.DataFrame({"a": range(shard + 1)})
        hyperplane.save(frame, "all.parquet", shard=(shard, 3))
    assert [(each.rows, each.files) for each in attempted.collect().values()] == [(6, 3)]


def test_an_output_whose_process_reports_nothing_is_known_by_the_step(tmp_path, monkeypatch):
    step = bash("one", "true", chunks=2, output="gs://bucket/all.parquet")
    attempted = Attempted(tmp_path, step, monkeypatch, chunk=1)
    assert attempted.collect(succeeded=False) == {}
    found = attempted.collect()["all.parquet"]
    assert (found.url, found.shard, found.size) == ("gs://bucket/all.parquet", 1, None)
