"""The report of a job: graph of steps, what they took, attempts, and their clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import dask.config
import pytest

from hyperplane.history import (
    PlanSummary,
    RunRecord,
    RunTimeline,
    TaskGroupTimes,
    TaskUsage,
    WorkerTimeline,
    WorkerUsage,
)
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_html import MOST_STEPS
from hyperplane.jobs.store.job_records import DONE, FAILED, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import job_report, render_job_report

SVG = "{http://www.w3.org/2000/svg}"
GB = 10**9


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[None]:
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs")}):
        yield
        open_store().close()


def add_job(*steps: Step, **parameters: str) -> Job:
    job = new_job(Pipeline.from_steps("nightly", steps), parameters=parameters)
    job = replace(job, status=FAILED, submitted=1000.0, started=1000.0, ended=1100.0)
    open_store().add(job)
    return job


def command(name: str, *after: str) -> Step:
    return Step(name=name, kind="command", argv=("true",), depends_on=after)


def read(job: Job) -> ElementTree.Element:
    return ElementTree.fromstring(render_job_report(job.id).partition("\n")[2])


def text_of(root: ElementTree.Element) -> str:
    return " ".join(" ".join(root.itertext()).split())


def find_graph(root: ElementTree.Element) -> ElementTree.Element | None:
    return next((each for each in root.iter(f"{SVG}svg") if each.get("class") == "hp-steps"), None)


def test_the_graph_has_states_attempts_and_times() -> None:
    job = add_job(command("load"), command("fit", "load"), command("<b>", "load"), region="north")
    for step, number, status, ended in (
        ("load", 1, DONE, 1030.0), ("fit", 1, FAILED, 1040.0), ("fit", 2, FAILED, 1100.0),
    ):  # fmt: skip
        attempt = Attempt(job.id, step, -1, number, status, ended - 10, ended, reason="exit 3")
        open_store().save_attempt(attempt)
    root = read(job)
    graph = find_graph(root)
    assert graph is not None
    boxes = [" ".join(group.itertext()) for group in graph.iter(f"{SVG}g")]
    assert boxes == ["load done, 10 s", "fit failed, attempt 2, 20 s", "<b> not run"]
    styles = [group.get("class") for group in graph.iter(f"{SVG}g")]
    assert styles == ["hp-good", "hp-bad", "hp-idle"]
    (lines,) = graph.iter(f"{SVG}path")
    assert lines.get("d", "").count("M") == 2
    page = render_job_report(job.id)
    assert all(f".{style}{{--hp-c:" in page for style in styles)  # a color of each state
    assert "region = north" in text_of(root)


def test_steps_are_shown_with_what_they_took() -> None:
    job = add_job(command("load"), api_key="abc")
    names = {"job": job.id, "pipeline": "nightly", "step": "load"}
    worker = WorkerUsage("no pool", peak=3 * GB, cpu_seconds=61, read=2000, written=5000)
    record = RunRecord(
        name="a", cluster="", started=1000, ended=1050, workers=(worker,), code="ab" * 32,
        cost=0.25, currency="EUR", parameters={"api_key": "******"}, versions={"python": "3.12.4"},
        **names,
    )  # fmt: skip
    open_store().save_run(record, job.machine)
    text = text_of(read(job))
    for shown in ("abababababab", "3 GB", "1 min 1 s", "2 kB", "5 kB", "0.25 EUR", "3.12.4"):
        assert shown in text
    assert "3 GB, limit unknown" in text
    assert "api_key = ******" in text


def test_the_clusters_of_the_steps_have_their_memory_over_the_time() -> None:
    job = add_job(command("load"))
    timeline = RunTimeline(
        started=1000, part_seconds=1, total=[GB, 2 * GB], spilled=[0, GB], processes=[1, 1],
        workers=[WorkerTimeline("0", [GB, 2 * GB], paused=[(1, 2)], spilling=[(1, 2)])],
        groups=[TaskGroupTimes("sum", 0, 2, 3, 0, 4)],
    )  # fmt: skip
    worker = WorkerUsage("0", 1, 2 * GB, 2 * GB, 3 * GB, GB, 5, 9)
    record = RunRecord(
        name="20260101-000000-c", cluster="c", started=1000, ended=1002, timeline=timeline,
        plan=PlanSummary(engine="local", nodes=1, nprocs=1, nthreads=1, spill=0.7, pause=0.8),
        workers=(worker,), tasks=(TaskUsage("sum", 3, seconds=4, largest_output=GB),),
        job=job.id, pipeline="nightly", step="load",
    )  # fmt: skip
    open_store().save_run(record, job.machine)
    text = text_of(read(job))
    for shown in (
        "Cluster of step load", "results go to disk", "paused above", "Slowest operations",
        "Operations with the largest results", "Advice", "Operations over the time",
        "worker 0: up to 2 GB of 2 GB; paused from 1.0 s on; results on disk from 1.0 s on",
    ):  # fmt: skip
        assert shown in text


def test_a_job_of_very_many_steps_has_no_graph() -> None:
    steps = [command(f"step {number}") for number in range(MOST_STEPS + 5)]
    root = read(add_job(*steps))
    assert find_graph(root) is None
    assert "and 5 more steps, and no graph of so many" in text_of(root)


def test_of_many_attempts_the_failed_and_the_longest_are_shown() -> None:
    job = add_job(Step(name="load", kind="command", argv=("true",), chunks=300))
    for chunk in range(300):
        status = FAILED if chunk == 7 else DONE
        ended = 1001.0 + chunk
        open_store().save_attempt(Attempt(job.id, "load", chunk, 1, status, 1000.0, ended))
    root = read(job)
    (section,) = (each for each in root.iter("section") if each[0].text == "Attempts")
    rows = [[cell.text for cell in row] for row in section.iter("tr")][1:]
    assert len(rows) == 100
    assert {row[3] for row in rows} == {"7", *map(str, range(201, 300))}
    assert "200 more attempts, which did not fail, or took less time" in text_of(section)


def test_a_report_of_many_large_records_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_report, "_RECORD_LENGTH", 25_000)
    job = add_job(command("load"))
    names = {"job": job.id, "pipeline": "nightly", "step": "load"}
    tasks = tuple(TaskUsage("a" * 200 + str(number), 3, 0, 4) for number in range(30))
    for number in range(5):
        record = RunRecord(
            name=f"20260101-0000{number:02}-c", cluster="c", started=1000 + number, ended=2000,
            tasks=tasks if number < 4 else (), **names,
        )  # fmt: skip
        open_store().save_run(record, job.machine)
    page = render_job_report(job.id)
    assert len(page) < 45_000
    shown = page.count("<h2>Cluster of step load</h2>")
    assert 1 < shown < 5  # also the small one at the end
    assert f"{5 - shown} record" in page
    assert "left out" in page


def test_a_job_with_a_damaged_definition_has_a_report() -> None:
    job = add_job(command("load"))
    open_store().save_attempt(Attempt(job.id, "load", -1, 1, DONE, 1000.0, 1001.0))
    open_store().update(job.id, definition="{")
    assert "load done" in text_of(read(job))
