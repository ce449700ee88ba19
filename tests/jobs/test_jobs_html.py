"""Jobs and lists of jobs as HTML."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from html_pages import read_page
from job_cases import bash, run_job

import hyperplane
from hyperplane.jobs import Pipeline, Step, attempt_logs, job_html
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_html import (
    LOG_LINES,
    MOST_JOBS,
    MOST_LOGS,
    MOST_STEPS,
    render_job,
    render_jobs,
)
from hyperplane.jobs.job_list import JobList
from hyperplane.jobs.job_progress import step_progress
from hyperplane.jobs.step_graph import MOST_LINES, Node, draw_steps
from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    LOST,
    TIMED_OUT,
    Attempt,
)

NASTY = "<script>alert('1')</script>&\"><b onload=x>"
NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def make_job(tmp_path):
    def make(*steps, **fields):
        for step in steps:
            if step.kind == "notebook":
                (tmp_path / step.path).write_text(json.dumps(NOTEBOOK))
        job = new_job(Pipeline.from_steps("nightly", steps, root=str(tmp_path)), name="report")
        (tmp_path / "job").mkdir(exist_ok=True)
        times = {"submitted": 1000.0, "started": 1001.0}
        return replace(job, folder=str(tmp_path / "job"), **{**times, **fields})

    return make


def make_attempt(job, step, number=1, status=DONE, **fields):
    times = {"started": 1001.0 + number, "ended": 0.0 if status == IN_PROGRESS else 1003.0 + number}
    return Attempt(job.id, step, fields.pop("chunk", -1), number, status, **{**times, **fields})


def write_log(job, name, text):
    (job.folder_path / name).write_text(text)
    return name


@pytest.mark.parametrize("definition", ["", "[]", "{", '{"name": "nightly"}', '{"steps": 3}'])
def test_a_job_with_a_damaged_definition_shows_the_steps_that_have_begun(make_job, definition):
    job = replace(
        make_job(bash("load", "x"), bash("fit", "x"), status=FAILED), definition=definition
    )
    attempts = [make_attempt(job, "load"), make_attempt(job, "fit", status=FAILED, reason="exit 3")]
    page = read_page(render_job(job, attempts))
    for text in ("damaged", "load", "fit", "exit 3"):
        assert text in page.text
    assert [each.name for each in step_progress(job, attempts, 2000.0)] == ["load", "fit"]
    assert "nothing" not in read_page(render_job(job, [])).text


def test_of_a_line_as_long_as_a_log_only_its_end_is_read(make_job, monkeypatch):
    monkeypatch.setattr(attempt_logs, "_BYTES", 100_000)
    job = make_job(bash("load", "x"), status=FAILED)
    log = write_log(job, "load.log", "first\n" + 400_000 * "x" + "y" * 200_000)
    attempt = make_attempt(job, "load", status=FAILED, log=log)
    text = read_page(render_job(job, [attempt])).text
    assert "yyy" in text
    assert "xy" not in text
    assert "first" not in text


@pytest.mark.process
def test_a_job_that_ran_shows_all_facts_of_its_text_and_its_log():
    job = run_job(bash("load", "echo loaded"), bash("fit <1>", "echo 'no <memory>'; exit 3"))
    page = read_page(job._repr_html_())
    for label, text in job.as_rows():
        assert label in page.text
        assert text in page.text
    assert "no <memory>" in page.text
    assert "loaded" not in page.text, "logs of steps that are done are links only"
    assert len([name for name in page.links if name.endswith(".log")]) == 2
    listed = hyperplane.jobs.list_jobs(limit=1)
    assert isinstance(listed, list)
    assert job.id[:8] in read_page(listed._repr_html_()).text


def test_steps_are_in_columns_in_their_order_with_state_attempts_and_time(make_job):
    job = make_job(
        bash("a", "true", depends_on=()),
        bash("b", "true", depends_on=("a",)),
        bash("c", "true", depends_on=("a",)),
        bash("d", "true", depends_on=("b", "c")),
        status=FAILED, reason="step c failed", ended=1010.0,
    )  # fmt: skip
    attempts = [
        make_attempt(job, "a"),
        make_attempt(job, "b", status=TIMED_OUT, reason="exceeded 2 s"),
        make_attempt(job, "c", 1, FAILED, reason="exit 1"),
        make_attempt(job, "c", 2, FAILED, reason="exit 2"),
    ]
    source = render_job(job, attempts)
    page = read_page(source)
    picture = ET.fromstring(source).find(f".//{SVG}svg")
    groups = {each.findall(f"{SVG}text")[0].text: each for each in picture.findall(f"{SVG}g")}
    texts = {name: each.findall(f"{SVG}text")[1].text for name, each in groups.items()}
    assert texts == {
        "a": "done, 2.0 s",
        "b": "timed out, 2.0 s",
        "c": "failed, attempt 2, 3.0 s",
        "d": "not run",
    }
    columns = {name: each.get("transform").split()[0] for name, each in groups.items()}
    assert columns["b"] == columns["c"]
    assert len(set(columns.values())) == 3
    styles = {name: each.get("class") for name, each in groups.items()}
    assert styles == {"a": "hp-good", "b": "hp-bad", "c": "hp-bad", "d": "hp-idle"}
    assert picture.find(f"{SVG}path").get("d").count("M") == 4
    at = page.cells.index("c")
    assert page.cells[at + 1 : at + 3] == ["failedexit 2", "2"]
    assert page.cells[at + 4] == "3.0 s"
    assert page.rows["status"] == "failed, 9.0 s"
    assert page.rows["steps"] == "1 of 4 done"
    assert "exceeded 2 s" in page.text


def test_last_lines_of_failed_and_running_steps_are_shown_without_colors(make_job):
    job = make_job(bash("a", "true"), bash("b", "true"), status=IN_PROGRESS)
    lines = [f"line {number}" for number in range(100)]
    log = write_log(job, "a.log", "\n".join(lines) + "\n\x1b[31mred\x1b[0m\n 99%\n")
    attempts = [
        make_attempt(job, "a", status=IN_PROGRESS, log=log),
        make_attempt(job, "b", status=LOST, log="missing.log"),
    ]
    source = render_job(job, attempts)
    shown = [each.text for each in ET.fromstring(source).iter("pre")]
    assert shown[1].split("\n") == [*lines[-LOG_LINES + 2 :], "red", " 99%"]
    assert shown[0] == "its log cannot be read (No such file or directory)"
    titles = [each.text for each in ET.fromstring(source).iter("summary")]
    assert titles[1] == "a, attempt 1, in progress: last lines of its log"


def test_the_log_of_a_running_step_with_secrets_is_not_shown(make_job, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    job = make_job(bash("a", "true", secrets=("TOKEN",)), status=IN_PROGRESS)
    log = write_log(job, "a.log", "hunter2-hunter2")
    running = make_attempt(job, "a", status=IN_PROGRESS, log=log)
    assert "hunter2" not in render_job(job, [running])
    assert "only then its secrets are masked" in render_job(job, [running])
    assert "hunter2" in render_job(job, [replace(running, status=FAILED)])


def test_executed_notebooks_and_outputs_are_links(make_job, tmp_path):
    notebook = Step(name="plot", kind="notebook", path="in.ipynb", output_path="out<1>.ipynb")
    saving = bash("save", "true", output="data/out.parquet", chunks=2, depends_on=())
    remote = bash("copy", "true", output="s3://bucket/out", chunks=2, depends_on=())
    job = make_job(notebook, saving, remote, status=DONE, ended=1010.0)
    attempts = [make_attempt(job, step.name) for step in job.pipeline.steps]
    assert str(tmp_path / "out<1>.ipynb") not in read_page(render_job(job, attempts)).links
    (tmp_path / "out<1>.ipynb").write_text("{}")
    page = read_page(render_job(job, attempts))
    assert page.links[str(tmp_path / "out<1>.ipynb")] == f"file://{tmp_path}/out%3C1%3E.ipynb"
    assert page.links[str(tmp_path / "data/out.parquet")] == f"file://{tmp_path}/data/out.parquet"
    assert "s3://bucket/out" in page.cells


def test_chunks_have_their_counts_and_reasons(make_job):
    job = make_job(bash("a", "true", chunks=20), status=FAILED, ended=1010.0)
    attempts = [make_attempt(job, "a", chunk=number) for number in range(12)]
    attempts += [
        make_attempt(job, "a", chunk=number, status=FAILED, reason=f"lost {number}")
        for number in range(12, 20)
    ]
    page = read_page(render_job(job, attempts))
    at = page.cells.index("a")
    assert "12 of 20 done, 8 failed" in page.cells[at + 1]
    assert "[16] lost 16" in page.cells[at + 1]
    assert page.cells[at + 1].endswith("and 3 more")


def test_names_reasons_logs_and_paths_are_escaped(make_job, tmp_path):
    file = f"{NASTY[:8]}.ipynb"
    steps = [
        Step(name=NASTY, kind="notebook", path="a.ipynb", output_path=file),
        bash("b", "true", chunks=2, output=NASTY),
    ]
    job = make_job(
        *steps, name=NASTY, reason=NASTY, status=FAILED, ended=1010.0, output=NASTY, machine=NASTY,
        dashboard=f"javascript:{NASTY}",
    )  # fmt: skip
    log = write_log(job, "<b>.log", f"{NASTY}\n\x1b]0;title\x07\x00\udcff".encode(
        errors="surrogateescape").decode(errors="replace"))  # fmt: skip
    (tmp_path / file).write_text("{}")
    attempts = [make_attempt(job, NASTY, status=FAILED, reason=NASTY, log=log)]
    for source in (render_job(job, attempts), render_jobs([job])):
        page = read_page(source)
        assert not {"script", "b"} & set(page.tags)
        assert NASTY in page.text
        assert all(address.startswith("file:///") for address in page.links.values())
        assert "javascript:" not in " ".join(page.links.values())


def test_a_job_of_a_hundred_steps_is_small_and_reads_few_logs(make_job, monkeypatch):
    steps = [
        bash(f"step {number}", "true", depends_on=[f"step {number - 1}"] if number % 10 else [])
        for number in range(100)
    ]
    job = make_job(*steps, status=IN_PROGRESS)
    attempts = [
        make_attempt(job, step.name, status=DONE if number < 90 else IN_PROGRESS,
                     log=f"steps/{number:03d}-step/attempt-1.log")
        for number, step in enumerate(steps)
    ]  # fmt: skip
    read = []
    monkeypatch.setattr(
        job_html, "read_log_end", lambda job, attempt, *_: read.append(attempt) or "line"
    )
    source = render_job(job, attempts)
    assert len(read) == MOST_LOGS
    assert len(source) < 100_000
    page = read_page(source)
    assert page.tags.count("rect") == 200
    assert page.tags.count("pre") == 5
    assert "and logs of 5 more attempts" in page.text


def test_of_more_steps_the_failed_ones_are_shown_and_the_others_are_counted(make_job):
    steps = [bash(f"s{number}", "true", depends_on=()) for number in range(1000)]
    job = make_job(*steps, status=FAILED, ended=1010.0)
    attempts = [make_attempt(job, step.name) for step in steps[:900]]
    attempts.append(make_attempt(job, "s990", status=FAILED, reason="the cause"))
    source = render_job(job, attempts)
    page = read_page(source)
    assert "svg" not in page.tags
    assert page.tags.count("tr") - page.tags.count("table") > MOST_STEPS
    assert "the cause" in page.text
    assert f"and {900 - MOST_STEPS + 1} done, 99 not run" in page.text
    assert len(source) < 100_000


def test_lines_between_many_steps_share_a_point_and_are_limited(make_job):
    first, last = [f"a{n}" for n in range(50)], [f"b{n}" for n in range(50)]

    def draw(nodes):
        steps = [bash(node.name, "true", depends_on=list(node.depends_on)) for node in nodes]
        states = {state.name: state for state in step_progress(make_job(*steps), [], 0.0)}
        return draw_steps(nodes, states)

    before = [Node(name, ()) for name in first]
    assert draw(before + [Node(name, tuple(first)) for name in last]).count("M") == 100
    text = draw(before + [Node(name, tuple(first[number:])) for number, name in enumerate(last)])
    assert text.count("M") == MOST_LINES
    assert f"{50 * 51 // 2 - MOST_LINES} more lines are not drawn" in text


def test_long_names_are_cut_in_the_middle_and_whole_in_a_title(make_job):
    names = ["nightly_of_the_northern_region_with_a_long_name_" + end for end in "ab"]
    names += ["W" * 20, "夜間バッチ処理の長い名前のパイプライン", "short"]
    job = make_job(*(bash(name, "true", depends_on=()) for name in names))
    source = render_job(job, [])
    shown = re.findall(r'"hp-n"[^>]*>([^<>]+)</text>', source)
    page = read_page(source)
    cut = [text for text in shown if "…" in text]
    assert len(cut) == 4
    assert len({*cut}) == 4
    assert [text[-6:] for text in cut[:2]] == ["name_a", "name_b"]
    for name in names[:4]:
        assert f"{name}: " in page.text
    assert "short" in shown


def test_the_installation_of_requirements_is_the_first_step_of_the_graph(make_job, tmp_path):
    job = make_job(bash("a", "true"))
    pipeline = job.pipeline.model_copy(update={"requirements": "requirements.txt"})
    job = replace(job, definition=pipeline.to_json())
    page = read_page(render_job(job, []))
    assert page.cells.count("(pip install)") == 1
    assert page.tags.count("rect") == 4
    assert page.tags.count("path") == 1


def test_lists_show_every_job_with_times_reason_and_links(make_job):
    jobs = JobList([
        make_job(bash("a", "true"), status=IN_PROGRESS, dashboard="http://host:8787/status"),
        make_job(bash("a", "true"), status=CANCELLED, reason="cancelled by me", ended=1062.0),
    ])  # fmt: skip
    page = read_page(jobs._repr_html_())
    at = page.cells.index(jobs[1].id[:8])
    # Run, name and pipeline; jobs that are not in a store have no number.
    assert page.cells[at + 1 : at + 5] == ["report", "report", "nightly", "cancelled"]
    assert page.cells[at + 6 : at + 8] == ["1 min 1 s", "cancelled by me"]
    assert page.links["dashboard"] == "http://host:8787/status"
    assert "1 of 2 jobs have ended: 1 in progress, 1 cancelled" in page.text
    assert isinstance(jobs, list)
    assert read_page(JobList()._repr_html_()).text == "no jobs"


def test_names_that_tell_runs_apart_are_listed(make_job):
    named = make_job(bash("a", "true"), number=12)
    generated = replace(make_job(bash("a", "true"), number=13), name="calm_fox_1234", id="1234-5")
    page = read_page(render_jobs([named, generated]))
    for job, name in ((named, "report"), (generated, "")):
        at = page.cells.index(job.id[:8])
        assert page.cells[at + 1 : at + 3] == [f"nightly #{job.number}", name]
    assert "name" not in read_page(render_jobs([generated])).cells[:8]


def test_long_lists_are_cut(make_job):
    jobs = [make_job(bash("a", "true"), status=DONE, ended=1002.0)] * (MOST_JOBS + 7)
    page = read_page(render_jobs(jobs))
    assert page.tags.count("tr") == MOST_JOBS + 1
    assert "and 7 more jobs" in page.text


def test_only_logs_in_the_folder_of_the_job_are_shown(make_job, tmp_path):
    (tmp_path / "other.txt").write_text("of another program")
    for log in (str(tmp_path / "other.txt"), "../other.txt"):
        job = make_job(bash("a", "true"))
        source = render_job(job, [make_attempt(job, "a", status=LOST, log=log)])
        assert "of another program" not in source
        assert "not a file in the folder of the job" in source
