"""``hyperplane report``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import dask.config
import pytest
from terminal import Run

from hyperplane.history import RunRecord, TaskUsage
from hyperplane.history.store import write_run
from hyperplane.jobs import Pipeline, Step, submit
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
    assert {"Attempts", "Ends of logs", "Step good", "Step bad"} <= set(headings)
