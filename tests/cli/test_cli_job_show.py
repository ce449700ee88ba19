"""``hyperplane job show`` and ``hyperplane job compare``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from terminal import Run

from hyperplane.history import RunRecord, WorkerUsage
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE, FAILED, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store


@pytest.fixture(autouse=True)
def alone(tmp_path: Path) -> Iterator[None]:
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs")}):
        yield
        open_store().close()


def add(steps: dict[str, float], at: float, status: str = DONE, **parameters: str) -> Job:
    made = [
        Step(name=name, kind="command", argv=("sleep", str(seconds)))
        for name, seconds in steps.items()
    ]
    job = new_job(Pipeline.from_steps("nightly", made), parameters=parameters)
    job = replace(
        job, status=status, reason="" if status == DONE else "exit code 3",
        submitted=at, started=at, ended=at + sum(steps.values()),
    )  # fmt: skip
    open_store().add(job)
    for name, seconds in steps.items():
        attempt = Attempt(job.id, name, -1, 1, status, at, at + seconds, 0, "", "", "")
        open_store().save_attempt(attempt)
    return job


def test_a_job_is_shown_with_parameters_and_steps(run: Run) -> None:
    job = add({"read": 2.0, "tidy [all]": 61.0}, 1e9, region="Köln\nSüd [red]")
    out = run("job", "show", "nightly#1").out
    lines = [line.partition(" ") for line in out.splitlines() if line[:1].isalpha()]
    rows = {label: text.strip() for label, _, text in lines}
    assert rows["run"] == "nightly #1"
    assert rows["id"] == job.id
    assert rows["status"] == "done"
    assert rows["took"] == "1 min 3 s"
    assert rows["parameter"].startswith("region = Köln")
    assert rows["parameter"].endswith("Süd [red]")
    assert rows["read"].split() == ["done", "2.0", "s"]
    assert "tidy [all]" in out
    document = run("job", "show", job.id[:8], "--json").json
    assert document["run_name"] == "nightly #1"
    assert [step["seconds"] for step in document["steps"]] == [2.0, 61.0]


def test_differences_of_jobs_are_shown(run: Run) -> None:
    add({"read": 2.0, "old": 1.0}, 1e9, region="north", same="1")
    add({"read": 5.0, "new": 1.0}, 2e9, status=FAILED, region="south", same="1", extra="x")
    document = run("job", "compare", "nightly#1", "nightly#2", "--json").json
    found = {each["field"]: (each["first"], each["second"]) for each in document["differences"]}
    assert found["parameter region"] == ("north", "south")
    assert found["parameter extra"] == (None, "x")
    assert found["status"] == ("done", "failed")
    assert found["reason"] == ("", "exit code 3")
    assert found["step read argv"] == ("['sleep', '2.0']", "['sleep', '5.0']")
    assert found["step old kind"] == ("command", None)
    assert not {"parameter same", "step read kind", "runner", "machine"} & found.keys()
    steps = {each["step"]: each for each in document["steps"]}
    assert (steps["read"]["first_seconds"], steps["read"]["second_seconds"]) == (2.0, 5.0)
    assert (steps["old"]["second_status"], steps["old"]["second_seconds"]) == ("no such step", None)
    assert steps["new"]["first_status"] == "no such step"
    out = run("job", "compare", "nightly#1", "latest").out
    assert "parameter region" in out
    assert "+3.0 s" in out
    assert "nightly #1" in out


def add_record(job: Job, step: str, **fields: object) -> None:
    names = {"job": job.id, "pipeline": "nightly", "step": step}
    run = RunRecord(name=f"{job.id}-{step}", cluster="", started=1, ended=2, **names)
    open_store().save_run(run.model_copy(update=fields), job.machine)


def test_what_the_steps_took_is_shown(run: Run) -> None:
    job = add({"read": 2.0, "tidy": 1.0}, 1e9, region="north", api_token="hidden-text")
    worker = WorkerUsage("no pool", peak=3 * 10**9, cpu_seconds=61, read=2000, written=5000)
    add_record(job, "read", workers=(worker,), code="1234567890abcdef", cost=0.25, currency="EUR")
    out = run("job", "show", "nightly").out
    for shown in ("read 1234567890ab", "0.25 EUR", "region = north", "api_token = ******"):
        assert shown in out
    assert "hidden-text" not in out
    (row,) = (line for line in out.splitlines() if line.startswith("read "))
    for shown in ("3 GB", "1 min 1 s", "2 kB", "5 kB"):
        assert shown in row
    document = run("job", "show", "nightly", "--json").json
    assert document["parameters"] == {"region": "north", "api_token": "******"}
    usage = document["steps"][0]["usage"]
    assert (usage["peak"], usage["written"], usage["cost"]) == (3 * 10**9, 5000, 0.25)
    assert document["steps"][1]["usage"] == {}


def test_parameters_and_code_are_the_first_differences(run: Run) -> None:
    for number, code in enumerate(("1" * 64, "2" * 64), 1):
        job = add({"read": number}, 1e9 * number, region=f"r{number}", token=f"secret-{number}")
        add_record(job, "read", code=code, versions={"dask": f"2026.{number}.0", "numpy": "2"})
    document = run("job", "compare", "nightly#1", "nightly#2", "--json").json
    found = [(each["field"], each["first"], each["second"]) for each in document["differences"]]
    assert found[:4] == [
        ("parameter region", "r1", "r2"),
        ("parameter token", "******", "******"),
        ("step read code", "1" * 12, "2" * 12),
        ("step read version of dask", "2026.1.0", "2026.2.0"),
    ]
    assert "secret-" not in run("job", "compare", "nightly#1", "nightly#2").out
    assert document["first"]["parameters"]["token"] == "******"
    assert run("job", "list", "--json").json[0]["parameters"]["token"] == "******"


def test_what_the_steps_of_both_jobs_took_is_compared(run: Run) -> None:
    for number in (1, 2):
        job = add({"read": 2.0, "tidy": 1.0}, 1e9 * number)
        worker = WorkerUsage("no pool", peak=number * 10**9, cpu_seconds=60 + number)
        add_record(job, "read", workers=(worker,))
    out = run("job", "compare", "nightly#1", "nightly#2").out
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "read peak 1 GB 2 GB" in rows
    assert "read CPU 1 min 1 s 1 min 2 s" in rows
    assert not any(row.startswith("tidy peak") for row in rows)
    read, tidy = run("job", "compare", "nightly#1", "nightly#2", "--json").json["steps"]
    assert (read["first_usage"]["peak"], read["second_usage"]["peak"]) == (10**9, 2 * 10**9)
    assert tidy["first_usage"] == {}


def test_equal_jobs_have_no_differences(run: Run) -> None:
    for at in (1e9, 2e9):
        add({"read": 2.0}, at, region="north")
    assert run("job", "compare", "nightly#1", "nightly#2", "--json").json["differences"] == []
    out = run("job", "compare", "nightly#1", "nightly#2").out
    assert out.startswith("parameters, settings and outcome are the same\n")
    unknown = run("job", "compare", "nightly#1", "nightly#9")
    assert unknown.code == 1
    assert "the newest run is nightly #2" in unknown.err
