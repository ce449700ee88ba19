"""The report of a run: a well-formed page without scripts, whatever the record contains."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hyperplane.errors import RequestError
from hyperplane.history import (
    ComputationUsage,
    PlanSummary,
    RunRecord,
    RunTimeline,
    TaskGroupTimes,
    TaskUsage,
    WorkerTimeline,
    WorkerUsage,
)
from hyperplane.history.run_record import SCHEMA_VERSION
from hyperplane.history.store import write_run
from hyperplane.reports import render_report, save_report
from hyperplane.reports.gantt_chart import MOST_ROWS

GB = 10**9
SVG = "{http://www.w3.org/2000/svg}"
#: Names that would be code in a page, if one were not escaped.
ATTACKS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style><script>alert(1)</script>",
    "</title></svg><iframe src='javascript:alert(1)'/>",
    "x' onload='alert(1)",
    "--> ]]> <!-- & &lt;",
    "a\x00b\x1b[31m\ud800\uffff",
)


def make_record(name: str = "sum", **fields: object) -> RunRecord:
    """The record of a run of 100 seconds in which one worker lacked memory."""
    worker = WorkerUsage(
        name, 2, 2 * GB, int(1.7 * GB), int(2.7 * GB), GB, 12.0, 30.0, 1, {"out of memory": 1}
    )
    values = {
        "name": "20231114-221320-flights",
        "cluster": "flights",
        "started": 1_700_000_000.0,
        "ended": 1_700_000_100.0,
        "exit_reason": "closed",
        "plan": PlanSummary(
            engine="local", framework="dask", nodes=1, nprocs=2, nthreads=2, ram_per_proc=2 * GB,
            spill=0.7, pause=0.8, terminate=0.95,
        ),
        "versions": {"python": "3.11.9", "dask": "2026.8.0"},
        "workers": (worker, WorkerUsage("calm", 2, 2 * GB, GB // 2)),
        "tasks": (
            TaskUsage(name, 40, 1, 90.0, 9.0, 8 * GB, GB // 2, 9 * GB, GB, int(1.7 * GB)),
            TaskUsage("read", 10, 0, 5.0, 1.0, 9 * GB, GB, 0, 0, GB),
        ),
        "computations": (ComputationUsage(name, tasks=50, seconds=80.0, peak=GB),),
        "timeline": RunTimeline(
            started=1_700_000_000.0,
            part_seconds=0.5,
            total=[GB, 2 * GB] * 100,
            spilled=[0, GB] * 100,
            processes=[2] * 200,
            workers=[
                WorkerTimeline(
                    name, [GB] * 150, [(20.0, 32.0)], [(30.0, 60.0)], [60.0], [63.5]
                ),
                WorkerTimeline("calm", [GB // 2] * 200),
            ],
            groups=[
                TaskGroupTimes("read", 1.0, 6.0, 10, 0, 5.0),
                TaskGroupTimes(name, 6.0, 99.0, 40, 1, 90.0),
            ],
        ),
    }  # fmt: skip
    return RunRecord(**{**values, **fields})


def parse(text: str) -> ElementTree.Element:
    """Return the page, which is read as strictly as XML is."""
    head, _, body = text.partition("\n")
    assert head == "<!DOCTYPE html>"
    return ElementTree.fromstring(body)


def read_text(text: str) -> str:
    return " ".join(" ".join(parse(text).itertext()).split())


def test_the_page_has_what_a_run_took() -> None:
    text = read_text(render_report(make_record()))
    for shown in (
        "Run of flights",
        "1 min 40 s: 2023-11-14 22:13:20 UTC to 2023-11-14 22:15:00 UTC",
        "its program closed it",
        "1 node, each 2 x 2 threads x 2 GB",
        "1.7 GB of 2 GB in the fullest process, 85 %",
        "1, 1 of them for lack of memory",
        "at least ram_gb_per_proc=4.5",
        "sum: a process had 1.7 GB while it ran",
        "smaller by a factor of 5.0 would help: a task of sum has up to 1 GB of inputs",
        "worker sum: up to 1 GB of 2 GB; paused from 20 s on; results on disk from 30 s on; "
        "ended for lack of memory after 1 min 0 s; restarted after 1 min 4 s",
        "sum: 40 tasks, 1 failed, from 6.0 s to 1 min 39 s, 1 min 30 s of tasks",
        "1 out of memory",
        "2026.8.0",
        f"schema version {SCHEMA_VERSION}",
    ):
        assert shown in text
    assert "Not recorded" not in text


def test_pauses_ends_and_thresholds_are_drawn_at_their_times() -> None:
    memory, gantt = parse(render_report(make_record())).iter(f"{SVG}svg")
    classes = [each.get("class") for each in memory.iter() if each.get("class")]
    for style, number in (
        ("paused", 2),  # each has one example in the legend
        ("disk", 2),
        ("killed", 2),
        ("restart", 2),
        ("limit", 3),
        ("spill", 3),
        ("pause", 3),
    ):
        assert classes.count(style) == number, style
    width = 900 - 190 - 20
    (pause,) = (each for each in memory.iter(f"{SVG}rect") if each.get("height") == "46")
    assert float(pause.get("x", 0)) == pytest.approx(190 + 0.20 * width, abs=0.1)
    assert float(pause.get("width", 0)) == pytest.approx(0.12 * width, abs=0.1)
    bars = {each.get("class"): each for each in gantt.iter(f"{SVG}rect")}
    assert float(bars["failed"].get("width", 0)) == pytest.approx(0.93 * width, abs=0.1)
    assert float(bars["bar"].get("x", 0)) == pytest.approx(190 + 0.06 * width, abs=0.1)
    assert len(list(gantt.iter(f"{SVG}rect"))) == 3  # two bars, one of them underlined


def test_a_limit_far_above_the_memory_is_in_the_label_only() -> None:
    worker = WorkerUsage("sum", 2, 900 * GB, GB)
    text = render_report(make_record(workers=(worker, WorkerUsage("calm"))))
    memory = next(parse(text).iter(f"{SVG}svg"))
    classes = [each.get("class") for each in memory.iter() if each.get("class")]
    assert [classes.count(style) for style in ("limit", "spill", "pause")] == [1, 1, 1]  # legend
    assert "up to 1 GB of 900 GB" in text


@pytest.mark.parametrize("attack", ATTACKS)
def test_names_are_never_code(attack: str) -> None:
    record = make_record(attack)
    plan = PlanSummary(engine=attack, pool=attack, nodes=1, nprocs=1, ram_per_proc=GB)
    causes = {attack: 2}
    record = record.model_copy(
        update={
            "name": attack, "cluster": attack, "exit_reason": attack, "plan": plan, "job": attack,
            "program": attack, "pipeline": attack, "step": attack, "versions": {attack: attack},
            "workers": (WorkerUsage(attack, 1, GB, GB, causes=causes, restarts=2),),
        }
    )  # fmt: skip
    text = render_report(record)
    tree = parse(text)
    allowed = {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "section",
        "table", "thead", "tbody", "tr", "th", "td",
        *(f"{SVG}{name}" for name in ("svg", "title", "g", "path", "rect", "text")),
    }  # fmt: skip
    assert {each.tag for each in tree.iter()} <= allowed
    names = {name for each in tree.iter() for name in each.attrib}
    assert not [name for name in names if name.startswith("on") or name in ("src", "href", "style")]
    text.encode("utf-8")


def test_the_page_loads_nothing() -> None:
    text = render_report(make_record())
    assert "default-src &#x27;none&#x27;" in text
    assert not re.search(r"<(script|link|img|iframe|object|embed|base|form)\b", text)
    assert "url(" not in text
    assert "@import" not in text
    addresses = set(re.findall(r"[a-z]+://[^\"'\s<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name that browsers do not load


def test_a_record_without_figures_has_a_page() -> None:
    record = RunRecord(name="r", cluster="c", started=0, ended=9e10)
    text = read_text(render_report(record))
    assert "Run of c" in text
    assert "no reason is recorded" in text
    assert "an earlier version of hyperplane wrote this record" in text
    assert "Advice" not in text
    assert "Workers" not in text


@pytest.mark.parametrize(
    "timeline",
    [
        RunTimeline(),
        RunTimeline(part_seconds=0.0, total=[0, 0], workers=[WorkerTimeline("0")]),
        RunTimeline(part_seconds=1e9, total=[10**20] * 240, groups=[TaskGroupTimes("f", 5.0, 1.0)]),
        RunTimeline(
            part_seconds=1.0, total=[5], workers=[WorkerTimeline("0", [9] * 9000, [(9e9, 1.0)])]
        ),
    ],
)
def test_strange_timelines_have_a_well_formed_page(timeline: RunTimeline) -> None:
    assert "Run of flights" in read_text(render_report(make_record(timeline=timeline)))


def test_many_operations_are_left_out_with_their_number() -> None:
    timeline = make_record().timeline
    assert timeline is not None
    timeline.groups = [
        TaskGroupTimes(f"op-{number}", 1.0, 2.0, 1, 0, float(number)) for number in range(100)
    ]
    text = read_text(render_report(make_record(timeline=timeline)))
    assert f"The {MOST_ROWS} of 100 with the most time" in text
    assert "op-99: 1 task" in text
    assert "op-1: 1 task" not in text


def test_short_tasks_are_advised_to_be_larger() -> None:
    worker = WorkerUsage("0", 2, 2 * GB, GB)
    record = make_record(workers=(worker,), tasks=(TaskUsage("inc", 90_000, 0, 270.0),))
    text = read_text(render_report(record))
    assert "the 90,000 tasks of inc take 3 ms each on average" in text
    assert "ram_gb_per_proc=0.1 would do" in text


def test_the_largest_record_has_a_small_page() -> None:
    """A run of 100,000 tasks has a record that is no larger than this one."""
    timeline = RunTimeline(
        started=1.7e9,
        part_seconds=64.0,
        total=[10**12 - 1] * 240,
        spilled=[10**11] * 240,
        processes=[1000] * 240,
        workers=[
            WorkerTimeline(
                f"worker-{number}",
                [10**9 * (1 + (part * 7 + number) % 13) for part in range(240)],
                [(60.0 * spell, 60.0 * spell + 7.25) for spell in range(40)],
                [(61.0 * spell, 61.0 * spell + 7.25) for spell in range(40)],
                [100.0 * end for end in range(40)],
                [100.0 * end + 5 for end in range(40)],
            )
            for number in range(32)
        ],
        groups=[TaskGroupTimes("x" * 290 + str(n), n, n + 5.0, 500, 0, 9.0) for n in range(200)],
    )
    tasks = tuple(TaskUsage(f"operation-{number}", 100, 0, 9.0) for number in range(1001))
    workers = tuple(WorkerUsage(f"worker-{number}", 4, 16 * GB, GB) for number in range(1001))
    record = make_record(timeline=timeline, tasks=tasks, workers=workers, ended=1_700_020_000.0)
    record = RunRecord.from_json(record.to_json())
    began = time.process_time()
    text = render_report(record)
    assert time.process_time() - began < 2
    assert len(text) < 1_000_000
    parse(text)


def test_a_file_is_written_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.html"
    assert save_report(make_record(), file) == file
    assert file.read_text(encoding="utf-8") == render_report(make_record())
    file.chmod(0o640)
    link = tmp_path / "link.html"
    link.symlink_to(file)
    assert save_report(make_record("other"), link) == file
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert "other" in file.read_text(encoding="utf-8")

    def fail(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(RequestError, match="No space left on device"):
        save_report(make_record(), file)
    assert file.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.html", "run.html"]


def test_only_files_are_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file in (folder, pipe):
        with pytest.raises(RequestError, match="it exists and is no file"):
            save_report(make_record(), file)
    with pytest.raises(RequestError, match="No such file or directory"):
        save_report(make_record(), tmp_path / "missing" / "run.html")
    for wrong in (b"run.html", None, 3):
        with pytest.raises(RequestError, match="file"):
            save_report(make_record(), wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="run"):
        save_report(7, tmp_path / "run.html")  # type: ignore[arg-type]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "pipe"]


def test_a_run_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_run(make_record())
    assert render_report("flights") == render_report() == render_report(make_record())
    with pytest.raises(RequestError, match="hyperplane history list"):
        render_report("weather")


def test_records_of_version_1_have_a_report() -> None:
    document = {
        "name": "20261127-160314-flights", "cluster": "flights", "started": 1.0, "ended": 2.0,
        "workers": [{"name": "0", "limit": 2 * GB, "peak": GB}], "schema_version": 1,
        "tasks": [{"name": "sum", "count": 3, "seconds": 1.5}],
    }  # fmt: skip
    text = read_text(render_report(RunRecord.from_json(json.dumps(document))))
    assert "an earlier version of hyperplane wrote this record" in text
    assert "schema version 1" in text
