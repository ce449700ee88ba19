"""The schema of the record of a run: other versions, and what is derived from it."""

import json
from pathlib import Path

import pytest

from hyperplane.errors import RequestError
from hyperplane.history import (
    PlanSummary,
    RunRecord,
    RunTimeline,
    TaskGroupTimes,
    TaskUsage,
    WorkerTimeline,
    WorkerUsage,
)
from hyperplane.history.figures import add_usage, count_cause
from hyperplane.history.run_record import SCHEMA_VERSION, new_run_name, split_run_name
from hyperplane.history.run_texts import RunList

FULL = RunRecord(
    name="20261127-160314-flights",
    cluster="flights",
    started=100.0,
    ended=190.0,
    exit_reason="closed",
    plan=PlanSummary(engine="local", framework="dask", nodes=1, nprocs=2, nthreads=3),
    versions={"dask": "2026.8.0"},
    workers=(
        WorkerUsage(name="0", limit=1000, peak=400, spilled=5, paused_seconds=1, restarts=1),
        WorkerUsage(name="1", limit=1000, peak=900, spilled=7, causes={"other": 2}, restarts=2),
        WorkerUsage(name="2", limit=0, peak=9000, paused_seconds=2),
    ),
    tasks=(TaskUsage(name="sum", count=3, output=10),),
    timeline=RunTimeline(
        started=101.0,
        part_seconds=0.5,
        total=[5, 7],
        spilled=[0, 5],
        processes=[2, 3],
        workers=[WorkerTimeline("0", [3, 4], [(0.25, 0.5)], [(0.5, 1.0)], [0.75], [1.0])],
        groups=[TaskGroupTimes("sum", 0.25, 0.75, 3, 0, 0.4)],
    ),
)


def test_a_record_survives_writing_and_reading():
    assert RunRecord.from_json(FULL.to_json()) == FULL
    assert json.loads(FULL.to_json())["schema_version"] == SCHEMA_VERSION


def test_fields_of_later_versions_are_ignored():
    document = {**json.loads(FULL.to_json()), "schema_version": 99, "forecast": {"peak": 1}}
    document["workers"][0]["energy"] = 12
    document["plan"]["region"] = "eu"
    document["timeline"]["network"] = [1, 2]
    document["timeline"]["workers"][0]["gpu"] = [1]
    document["timeline"]["groups"][0]["color"] = "red"
    read = RunRecord.from_json(json.dumps(document))
    assert read == FULL.model_copy(update={"schema_version": 99})


def test_a_record_of_version_4_is_read():
    """The file was written by that version."""
    read = RunRecord.from_json(Path(__file__).with_name("record_v4.json").read_bytes())
    names = {"job": "3f0c", "pipeline": "nightly", "step": "load", "program": "load.py"}
    assert read == FULL.model_copy(update={**names, "schema_version": 4})
    assert (read.parameters, read.code, read.cost, read.run, read.written) == ({}, "", None, "", 0)


def test_a_record_with_the_first_fields_only_is_read():
    """Every field that is added later has a default; this is the least that a record has."""
    read = RunRecord.from_json('{"name": "r", "cluster": "c", "started": 1, "ended": 2}')
    assert (read.seconds, read.workers, read.peak_share, read.exit_reason) == (1, (), None, "")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"name": 3}', "\x00", "null", pytest.param("[" * 100_000, id="nested")),
        r'{"name": "\ud800", "cluster": "c", "started": 0, "ended": 1}',
    ],
)
def test_other_files_are_no_records(text):
    with pytest.raises(RequestError):
        RunRecord.from_json(text)


def test_figures_of_all_workers():
    assert (FULL.seconds, FULL.restarts, FULL.spilled, FULL.paused_seconds) == (90, 3, 12, 3)
    assert FULL.peak is not None
    assert (FULL.peak.name, FULL.peak_share) == ("1", 0.9)


def test_names_are_in_the_order_of_the_starts():
    names = [new_run_name("flights", 1_700_000_000 + step) for step in range(100)]
    assert sorted(names) == names
    assert {split_run_name(name)[1] for name in names} == {"flights"}


#: A record as version 1 of the schema wrote it.
VERSION_1 = {
    "name": "20261127-160314-flights",
    "cluster": "flights",
    "started": 1795795394.0,
    "ended": 1795795484.0,
    "exit_reason": "closed",
    "plan": {
        "engine": "local", "framework": "dask", "pool": "", "nodes": 1, "max_nodes": 1, "nprocs": 1,
        "nthreads": 2, "ram_per_proc": 2000000000, "tuning": "fast", "budget": "",
    },
    "versions": {"python": "3.11.9", "dask": "2026.7.0"},
    "workers": [{
        "name": "0", "nthreads": 2, "limit": 2000000000, "peak": 900000000, "demand": 900000000,
        "spilled": 0, "paused_seconds": 0.0, "spilling_seconds": 0.0, "restarts": 1,
        "causes": {"out of memory": 1},
    }],
    "tasks": [{
        "name": "sum", "count": 3, "failed": 0, "seconds": 1.5, "longest": 1.0, "output": 10,
        "largest_output": 5, "input": 0, "largest_input": 0, "memory": 900000000,
    }],
    "job": "",
    "schema_version": 1,
}  # fmt: skip


def test_records_of_version_1_are_read():
    read = RunRecord.from_json(json.dumps(VERSION_1))
    assert (read.schema_version, read.peak_share, read.killed) == (1, 0.45, 1)
    assert (read.program, read.computations, read.cpu_seconds) == ("", (), 0)
    assert (read.workers[0].empty, read.label) == (0, "flights")


#: A record as version 2 of the schema wrote it: with a program, computations and more of workers.
VERSION_2 = {
    **VERSION_1,
    "workers": [{
        **VERSION_1["workers"][0], "empty": 90000000, "cpu_seconds": 4.5, "read": 1000,
        "busy_cores": 0.0,
    }],
    "program": "etl.py", "pipeline": "", "step": "",
    "computations": [{
        "name": "sum", "structure": "1f2e", "count": 2, "tasks": 3, "sources": 1, "input": 1000,
        "processes": 1, "threads": 2, "started": 1795795395.0, "seconds": 1.5, "cpu_seconds": 1.4,
        "peak": 900000000, "total": 900000000, "empty": 90000000, "held": 0, "read": 1000,
        "spilled": 0, "failed": 0, "shared": False, "disturbed": True,
    }],
    "schema_version": 2,
}  # fmt: skip


def test_records_of_version_2_are_read():
    read = RunRecord.from_json(json.dumps(VERSION_2))
    assert (read.schema_version, read.timeline, read.plan.spill) == (2, None, 0)
    assert (read.program, read.cpu_seconds, read.computations[0].count) == ("etl.py", 4.5, 2)


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        ("workers", {"name": "0", "peak": -1}),
        ("workers", {"name": "0", "cpu_seconds": float("nan")}),
        ("workers", {"name": "0", "causes": {"other": -2}}),
        ("tasks", {"name": "sum", "count": "many"}),
        ("computations", {"name": "sum", "seconds": float("inf")}),
        ("computations", {"name": "sum", "seconds": 1e308}),
    ],
)
def test_figures_of_parts_that_are_no_amounts_are_refused(part, figures):
    with pytest.raises(RequestError, match=part):
        RunRecord(name="r", cluster="c", started=0, ended=1, **{part: [figures]})


@pytest.mark.parametrize(
    "figures",
    [
        {"total": [5, -1]},
        {"part_seconds": float("nan")},
        {"part_seconds": 1e308},
        {"started": 1e18},
        {"total": "many"},
        {"groups": [{"name": "sum", "ended": float("inf")}]},
        {"workers": [{"name": "0", "memory": [-3]}]},
        {"workers": [{"name": "0", "paused": [[0.5, -1]]}]},
        {"workers": [{"name": "0", "paused": [[0.5]]}]},
    ],
)
def test_timelines_that_are_no_amounts_are_refused(figures):
    with pytest.raises(RequestError, match="timeline"):
        RunRecord(name="r", cluster="c", started=0, ended=1, timeline=figures)


def test_figures_of_workers_that_have_left_are_added():
    first = WorkerUsage("0", peak=5, cpu_seconds=1, read=3, causes={"other": 1}, restarts=1)
    second = WorkerUsage("1", peak=9, cpu_seconds=2, read=4, causes={"client": 1, "other": 1})
    add_usage(first, second)
    assert (first.peak, first.cpu_seconds, first.read) == (9, 3, 7)
    assert first.causes == {"other": 2, "client": 1}
    count_cause(first, "other", -2)
    assert first.causes == {"client": 1}


def test_a_record_prints_as_a_table_and_has_a_short_repr():
    assert repr(FULL) == "<RunRecord 20261127-160314-flights: closed, 1 min 30 s>"
    rows = [line.split(maxsplit=1) for line in str(FULL).splitlines()]
    assert ["run", FULL.name] in rows
    assert ["tasks", "sum: 3, 0 s"] in rows
    [memory] = [row[1] for row in rows if row[0] == "memory"]
    assert memory.startswith("peak 900 B of 1 kB in the largest of 3 worker processes, up to 12 B")
    assert "<th>ended</th><td>closed, after 1 min 30 s</td>" in FULL._repr_html_()


def test_a_record_without_figures_prints():
    text = str(RunRecord(name="20261127-160314-flights", cluster="", started=1, ended=1))
    assert "ended    unknown, after 0 s" in text
    assert "memory" not in text


def test_records_print_as_a_table():
    block = RunRecord(
        name="20261127-160320-a.<b>", cluster="flights", started=1, ended=3, exit_reason="done",
        block="a/<b>",
    )  # fmt: skip
    lines = str(RunList([block, FULL])).splitlines()
    assert " ".join(lines[0].split()) == "run of ended time CPU peak on disk restarts"
    assert lines[1].split() == ["20261127-160320", "a/<b>", "done", "2", "s", "0", "s"]
    assert lines[2].split()[:3] == ["20261127-160314", "flights", "closed"]
    assert lines[2].endswith("900 B of 1 kB  12 B     3")
    assert repr(RunList()) == "no runs"
    same = FULL.model_copy(update={"name": "20261127-160314-other", "cluster": "other"})
    runs = [line.split()[0] for line in repr(RunList([FULL, same])).splitlines()]
    assert runs == ["run", FULL.name, same.name]
    assert "a/&lt;b&gt;" in RunList([block])._repr_html_()
