"""``hyperplane job list``: filters, and columns on narrow terminals; names in other commands."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from terminal import Run

from hyperplane.jobs import Pipeline, Step, list_jobs
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_list import shorten_reason
from hyperplane.jobs.store.job_records import DONE, FAILED, Job
from hyperplane.jobs.store.jobs_home import open_store

FINAL = "; not retried, because it would fail again"
LONG = "nightly_of_the_northern_region_with_a_long_name"


def add(pipeline: str, age: float = 0.0, **more: object) -> Job:
    step = Step(name="one", kind="command", argv=("true",))
    job = new_job(Pipeline.from_steps(pipeline, [step]), parameters={"region": "Köln"})
    at = time.time() - age
    values = {"status": DONE, "submitted": at, "started": at, "ended": at + 1, **more}
    job = replace(job, **values)  # type: ignore[arg-type]
    open_store().add(job)
    return job


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store with only the jobs of the test."""
    home = str(tmp_path / "jobs")
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", home)
    with dask.config.set({"hyperplane.jobs.home": home, "hyperplane.jobs.linger": "0.5s"}):
        yield
        open_store().close()


def list_ids(run: Run, *options: str) -> list[str]:
    return [job["id"] for job in run("job", "list", "--json", *options).json]


def test_jobs_are_filtered(run: Run) -> None:
    old = add("nightly", 8 * 86_400)
    failed = add("nightly", 3600, status=FAILED, reason="step 'Prüfung' failed")
    other = add("tidy", 60, name="of.ada")
    assert list_ids(run, "--pipeline", "nightly") == [failed.id, old.id]
    assert list_ids(run, "--state", "failed") == list_ids(run, "--status=failed") == [failed.id]
    assert list_ids(run, "--since", "7d") == [other.id, failed.id]
    assert list_ids(run, "--since", "2h", "--pipeline", "nightly") == [failed.id]
    assert list_ids(run, "--since", "2001-01-01", "--limit", "1") == [other.id]
    assert list_ids(run, "--text", "PRÜFUNG") == [failed.id]
    assert list_ids(run, "--text", "of.ada") == [other.id]
    assert list_ids(run, "--text", "köln", "--limit", "2") == [other.id, failed.id]
    assert list_ids(run, "--text", "nightly #1") == [old.id]
    assert run("job", "list", "--text", "unknown").out == "no job matches\n"
    (document,) = run("job", "list", "--json", "--text", "of.ada").json
    assert (document["run_name"], document["number"]) == ("tidy #1", 1)
    wrong = run("job", "list", "--since", "yesterdey")
    assert wrong.code == 2
    assert "since = 'yesterdey'" in wrong.err


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (f"step 'p' failed: exit code 1: ValueError: no{FINAL}", "ValueError: no"),
        ("step 'p' [3] failed: exit code 1: ValueError: a: b", "p [3]: ValueError: a: b"),
        ("step \"it's\" failed: signal 9", "it's: signal 9"),
        ("step 'p' failed: exit code 64", "exit code 64"),
        ("cancelled by ada@laptop", "cancelled by ada@laptop"),
    ],
)  # fmt: skip
def test_the_reason_in_a_list_begins_with_the_error(run: Run, reason: str, shown: str) -> None:
    job = add("p", status=FAILED, reason=reason)
    assert shorten_reason(job) == shown
    assert str(list_jobs()).splitlines()[-1].endswith(f" s  {shown}")
    # In a terminal of 80 columns the beginning of the reason is shown.
    line = run("job", "list").out.splitlines()[-1]
    assert f"  {shown[:10]}" in line


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_width_cuts_what_tells_runs_apart(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    jobs = [add(f"{LONG}_{end}", name=f"job.{end}." + "x" * 50) for end in "ab"]
    jobs.append(add("夜間バッチ処理の長い名前のパイプライン"))
    monkeypatch.setenv("COLUMNS", str(width))
    out = run("job", "list").out
    lines = out.splitlines()[2:]
    runs, names = "", ""
    columns = out.splitlines()[0]
    if width < 200:
        assert "…" not in out
    for job in jobs:
        assert job.id[:8] in out
    assert out.count(time.strftime("%Y-")) == 3
    begin, middle, end = (columns.index(title) for title in ("run", "name", "status"))
    for line in lines:
        if line.isascii():
            runs += line[begin:middle].strip()
            names += line[middle:end].strip()
    for job in jobs[:2]:
        assert f"{job.pipeline_name}#1" in runs.replace(" ", "")
        assert job.name in names


def test_generated_names_are_not_shown_but_chosen_ones_of_the_same_form_are(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    first = add("p", id="0123" + str(uuid.uuid4())[4:], name="calm_otter_0123")
    assert "name" not in run("job", "list").out.splitlines()[0]
    add("p", id="4567" + str(uuid.uuid4())[4:], name="calm_otter_0123")
    lines = run("job", "list").out.splitlines()
    assert "name" in lines[0]
    assert [line for line in lines if "calm_otter_0123" in line] == [lines[2]]
    assert first.id[:8] in lines[3]


def test_commands_accept_names_and_numbers(run: Run) -> None:
    first, second = add("nightly", 60), add("nightly", 30)
    for reference, job in {"nightly#1": first, "nightly": second, "latest": second}.items():
        answer = run("job", "cancel", reference)
        number = 1 if job is first else 2
        assert answer.out == f"nightly #{number} ({job.id[:8]}) had already ended: done\n"
    assert run("job", "watch", "nightly #1", "--json").json["id"] == first.id
    unknown = run("job", "logs", "nihgtly")
    assert unknown.code == 1
    assert "did you mean nightly?" in unknown.err
    assert "this job is done" in run("job", "resume", "latest").err


@pytest.mark.slow
@pytest.mark.process
def test_the_next_command_is_printed_after_a_submission(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "say.sh"
    script.write_text("echo said\n")
    answer = run("job", "submit", str(script))
    id_ = answer.out.split()[1]
    assert answer.err == f"say #1 is submitted; next: hyperplane job watch {id_[:8]}\n"
    assert run("job", "watch", "say").code == 0
    assert run("job", "logs", "say#1").out == "said\n"
    quiet = run("job", "submit", str(script), "--json")
    assert quiet.err == ""
    assert run("job", "watch", quiet.json["id"]).code == 0
