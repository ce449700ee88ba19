"""``hyperplane report``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import dask.config
import pytest
from terminal import Run

from hyperplane.history import RunRecord, TaskUsage, WorkerUsage
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import render_job_report, render_report


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RunRecord]]:
    """Two runs, the newest first, and a store without the jobs of other tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    home = str(tmp_path / "jobs")
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", home)
    found = [
        RunRecord(
            name=f"2023111{day}-221320-{cluster}",
            cluster=cluster,
            started=1_700_000_000.0 + day,
            ended=1_700_000_100.0,
            tasks=(TaskUsage("sum", 3),),
        )
        for day, cluster in ((5, "weather"), (4, "flights"))
    ]
    for record in found:
        write_run(record)
    with dask.config.set({"hyperplane.jobs.home": home, "hyperplane.jobs.linger": "0.5s"}):
        yield found
        open_store().close()


def add_job(pipeline: str, at: float) -> tuple[Job, RunRecord]:
    """Store a job, the record of its step, and one of the cluster of the step, which is newer."""
    job = new_job(Pipeline.from_steps(pipeline, [Step(name="load", kind="command", argv=("x",))]))
    job = replace(job, status=DONE, submitted=at, started=at, ended=at + 60)
    store = open_store()
    store.add(job)
    names = {"job": job.id, "pipeline": pipeline, "step": "load"}
    start = new_run_name(f"{pipeline}-load", at + 1)
    step = RunRecord(name=start, cluster="", started=at + 1, ended=at + 60, **names)
    store.save_run(step, job.machine)
    cluster = new_run_name("c-4f", at + 2)
    write_run(RunRecord(name=cluster, cluster="c-4f", started=at + 2, ended=at + 50, **names))
    return job, step


def test_the_newest_run_is_reported_by_default(
    run: Run, tmp_path: Path, records: list[RunRecord]
) -> None:
    answer = run("report")
    assert answer.code == 0
    file = tmp_path / "run.html"
    assert answer.text == f"wrote {file}, the report of {records[0].name}"
    assert file.read_text(encoding="utf-8") == render_report(records[0])


@pytest.mark.parametrize("name", ["flights", "20231114-221320", "20231114-221320-flights"])
def test_runs_are_named_as_for_history(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "a run.html"
    document = run("report", name, "-o", str(file), "--json").json
    assert document == {"run": "20231114-221320-flights", "file": str(file)}
    assert "Run of flights" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [None, "latest", "nightly", "nightly#1", "prefix"])
def test_the_name_of_a_job_gives_the_report_of_the_job(
    run: Run, tmp_path: Path, name: str | None
) -> None:
    job, _ = add_job("nightly", 1_800_000_000)
    names = {None: [], "prefix": [job.id[:8]]}.get(name, [str(name)])
    answer = run("report", *names)
    file = tmp_path / "run.html"
    assert answer.text == f"wrote {file}, the report of job nightly #1 ({job.id})"
    assert "Job nightly #1" in file.read_text(encoding="utf-8")


def test_a_record_of_a_job_offers_the_report_of_the_job(run: Run, tmp_path: Path) -> None:
    job, step = add_job("nightly", 1_800_000_000)
    for name in (step.name, "nightly/load"):
        lines = run("report", name).out.splitlines()
        assert lines[0] == f"wrote {tmp_path / 'run.html'}, the report of {step.name}"
        assert lines[1] == (
            f"it is a run of step nightly/load: 'hyperplane report {job.id[:8]}' writes the report "
            "of its job"
        )
    assert run("report", step.name, "--json").json["of_job"] == job.id


def test_the_newest_run_is_that_of_a_cluster_after_all_jobs(
    run: Run, records: list[RunRecord]
) -> None:
    job, _ = add_job("nightly", 1_600_000_000)
    assert run("report", "--json").json["run"] == records[0].name
    assert run("report", job.id, "--json").json["job"] == job.id


def test_a_cluster_named_as_a_pipeline_is_named_beside_the_job(
    run: Run, records: list[RunRecord]
) -> None:
    job, _ = add_job("flights", 1_600_000_000)
    answer = run("report", "flights")
    assert f"job flights #1 ({job.id})" in answer.text
    assert f"'hyperplane report {records[1].name}' writes its report" in answer.text
    assert run("report", records[1].name, "--json").json["run"] == records[1].name


def test_an_unknown_limit_is_no_limit_of_zero(run: Run) -> None:
    workers = (WorkerUsage("no pool", peak=10**9), WorkerUsage("16_16"))
    record = RunRecord(name="a", cluster="", started=1, ended=2, workers=workers)
    write_run(record.model_copy(update={"name": "20270101-000000-a", "cluster": "a"}))
    out = run("history", "show", "a").out
    assert "peak 1 GB, limit unknown" in out
    assert "peak unknown" in out
    assert "of 0 GB" not in out


def test_an_unknown_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    answer = run("report", "flight", "--json")
    assert answer.code == 2
    assert answer.json["faults"][0]["where"] == "name"
    assert "did you mean flights" in answer.text
    assert not (tmp_path / "run.html").exists()


def test_a_folder_is_not_replaced(run: Run, tmp_path: Path) -> None:
    answer = run("report", "flights", "--out", str(tmp_path), "--json")
    assert answer.code == 2
    assert answer.json["faults"][0]["where"] == "file"
    assert "it exists and is no file" in answer.text


@pytest.mark.process
def test_the_step_of_a_job_has_a_report(run: Run, tmp_path: Path) -> None:
    step = Step(name="hello", kind="command", argv=("true",))
    job = submit(Pipeline.from_steps("of-report", [step]))
    assert job.wait(170) == "done"
    assert run("report", "of-report/hello").code == 0
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert job.id in text
    assert "it succeeded" in text


@pytest.mark.process
def test_a_job_has_a_report_with_its_attempts_and_ends_of_logs(run: Run, tmp_path: Path) -> None:
    program = "import sys; print('<script>alert(1)</script>', 10 ** 3 + 1); sys.exit({})"
    steps = [
        Step(name="good", kind="command", argv=(sys.executable, "-c", program.format(0))),
        Step(
            name="bad",
            kind="command",
            argv=(sys.executable, "-c", program.format(3)),
            depends_on=("good",),
            retries=0,
        ),
    ]
    job = submit(Pipeline.from_steps("reported", steps))
    assert job.wait(170) == "failed"
    answer = run("report", job.id[:8], "-o", "job.html", "--json")
    assert answer.json == {"job": job.id, "file": str(tmp_path / "job.html")}
    text = (tmp_path / "job.html").read_text(encoding="utf-8")
    assert text == render_job_report(job.id)
    tree = ElementTree.fromstring(text.partition("\n")[2])
    words = " ".join(" ".join(tree.itertext()).split())
    for shown in (job.id, "failed", "good: 1 attempt, from 0.0 s", "bad: 1 attempt, 1 failed"):
        assert shown in words
    [log] = tree.iter("pre")  # that of the failed attempt only
    assert "<script>alert(1)</script> 1001" in "".join(log.itertext())
    assert not list(tree.iter("script"))
    headings = [heading.text for heading in tree.iter("h2")]
    assert {"Steps", "Attempts", "Ends of logs", "Step good", "Step bad"} <= set(headings)
    [graph] = tree.iterfind(".//{*}svg[@class='hp-steps']")
    assert {"good", "bad"} <= {each.text for each in graph.iter() if each.text}
    assert tree.find("body/main/h1").text == "Job reported #1"
