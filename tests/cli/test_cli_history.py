"""``hyperplane history``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from terminal import Run

from hyperplane.history import (
    ComputationUsage,
    PlanSummary,
    RunRecord,
    TaskUsage,
    WorkerUsage,
)
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.reports import render_report

GB = 10**9
LONG_NAME = "dask-cluster-9f8b7a66-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RunRecord]]:
    """Two runs, the newest first, and a store without the jobs of other tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    home = str(tmp_path / "jobs")
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", home)
    worker = WorkerUsage(
        name="0",
        limit=2 * GB,
        peak=int(1.7 * GB),
        demand=int(2.7 * GB),
        spilled=GB,
        paused_seconds=90,
        spilling_seconds=30,
        restarts=2,
        causes={"out of memory": 2},
    )
    tasks = [TaskUsage(name=f"step-{number}", count=3, seconds=5) for number in range(20)]
    runs = [
        RunRecord(
            name=new_run_name(LONG_NAME, 1_700_000_000 + number),
            cluster=LONG_NAME,
            started=1_700_000_000 + number,
            ended=1_700_000_000 + 4000 * number,
            exit_reason="closed",
            plan=PlanSummary(engine="local", nodes=2, max_nodes=10, nprocs=1, nthreads=3),
            versions={"dask": "2026.8.0"},
            workers=(worker,) * number,
            tasks=tasks * number,
        )
        for number in (0, 1)
    ]
    for record in runs:
        write_run(record)
    with dask.config.set({"hyperplane.jobs.home": home, "hyperplane.jobs.linger": "0.5s"}):
        yield runs[::-1]


def test_runs_are_listed_newest_first(run: Run) -> None:
    answer = run("history", "list")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    first, second = (line for line in lines if line.startswith("20231114-"))
    assert first.split()[0] == "20231114-221321"
    assert "1.7 of 2 GB" in first
    assert second.split()[0] == "20231114-221320"


@pytest.mark.parametrize("width", [20, 80, 110, 250])
def test_no_width_cuts_what_tells_runs_apart(
    run: Run, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    reason = "the scheduler was killed\x1b[2J by signal 9"
    same = [new_run_name(f"{LONG_NAME[:-1]}{end}", 1_700_000_000) for end in "ab"]
    for name in same:
        update = {"name": name, "cluster": name[16:], "exit_reason": reason}
        write_run(records[0].model_copy(update={**update, "started": 1_700_000_000}))
    names = [each["name"] for each in run("history", "list", "--text", "signal 9", "--json").json]
    assert len(names) == 2
    monkeypatch.setenv("COLUMNS", str(width))
    out = run("history", "list").out
    assert "…" not in out
    assert "\x1b" not in out
    title, _, *lines = out.splitlines()
    assert len(title) <= max(87, width)
    edges = [0, *(title.index(name) for name in ("of", "ended", "time"))]
    begin, middle = edges[1], edges[2]
    runs = "".join(line[:begin].strip() for line in lines)
    labels = "".join(line[begin:middle].strip() for line in lines)
    for name in names:
        assert name in runs
    for name in same:
        assert name[16:] in labels
    ends = " ".join(line[middle : edges[3]].strip() for line in lines)
    assert ends.replace(" ", "").count("bysignal9") == 2
    numbers = [line[edges[3] - 1 :].split() for line in lines if line.startswith("20231114-221321")]
    assert numbers == [["1.1", "h", "1.7", "of", "2", "GB", "1.5", "min", "1", "GB", "2"]]


def test_columns_of_which_all_figures_are_zero_are_left_out(run: Run) -> None:
    title = run("history", "list").out.splitlines()[0]
    assert title.split()[5:] == ["paused", "on", "disk", "restarts"]
    title = run("history", "list", "--until", "2023-11-14T22:13:20+00:00").out.splitlines()[0]
    assert title.split() == ["run", "of", "ended", "time", "peak"]


def test_runs_are_listed_without_a_command(run: Run) -> None:
    assert run("history").out == run("history", "list").out


def test_the_documents_are_those_of_the_library(run: Run, records: list[RunRecord]) -> None:
    listed = run("history", "list", "--json").json
    assert [RunRecord.model_validate(each) for each in listed] == records
    shown = run("history", "show", LONG_NAME, "--json").json
    assert RunRecord.model_validate(shown) == records[0]


def test_a_run_is_shown_with_its_workers_and_longest_operations(run: Run) -> None:
    answer = run("history", "show", LONG_NAME)
    assert answer.code == 0
    text = " ".join(answer.out.split())
    for shown in (
        "1.1 h",
        "2 to 10 nodes, each 1 x 3 threads",
        "peak 1.7 of 2 GB, paused 1.5 min, up to 1 GB on disk, 30 s, 2 restarts (2 out of memory)",
        "at least ram_gb_per_proc=4.5, or what the error of a failed task proposes",
        "step-0",
        "and 8 operations more; --json has all",
    ):
        assert shown in text
    assert "step-12" not in text
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_width_cuts_the_figures_of_a_run(
    run: Run, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    long = "read_parquet-fused-to_datetime-dropna-assign-" + "x" * 40
    figures = {"count": 123_456, "seconds": 98_765.0, "longest": 1_234.5, "memory": 12 * GB}
    task = TaskUsage(name=long, output=12_345 * GB, largest_output=GB, **figures)
    computation = ComputationUsage(
        name=long, count=3, tasks=123_456, input=12_345 * GB, seconds=98_765.0, peak=12 * GB
    )
    write_run(records[0].model_copy(update={"tasks": (task,), "computations": (computation,)}))
    monkeypatch.setenv("COLUMNS", str(width))
    _, _, tables = run("history", "show", "latest").out.partition("computation ")
    assert "…" not in tables
    assert tables.count("123456") == 2
    assert tables.count("27.4 h") == 2
    names = "".join(re.findall(r"^[\w-]+", tables, re.MULTILINE))
    assert long in names


def test_a_run_without_figures_is_shown(run: Run, records: list[RunRecord]) -> None:
    answer = run("history", "show", records[1].name)
    assert answer.code == 0
    assert "worker" not in answer.out


def test_an_unknown_run_is_an_error(run: Run) -> None:
    answer = run("history", "show", "flights", "--json")
    assert answer.code == 2
    assert answer.json["faults"][0]["where"] == "name"


def test_without_runs_the_list_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "empty"))
    assert run("history", "list").out == "no run is recorded on this machine\n"
    assert run("history", "list", "--json").json == []


def test_a_short_list_says_how_many_runs_are_left_out(run: Run, records: list[RunRecord]) -> None:
    for number in range(2, 23):
        update = {"name": f"{records[0].name}-{number}", "started": 1_700_000_000 + number}
        write_run(records[0].model_copy(update=update))
    answer = run("history", "list")
    assert sum(line.startswith("20231114-") for line in answer.out.splitlines()) == 20
    assert answer.out.splitlines()[-1] == "and 3 runs more; --limit 23 shows all"
    assert "more" not in run("history", "list", "--limit", "23").out
    assert len(run("history", "list", "--json").json) == 23
    assert len(run("history", "list", "--json", "--limit", "5").json) == 5


def test_runs_are_selected(run: Run, records: list[RunRecord]) -> None:
    newest, oldest = records
    by_text = run("history", "list", "--text", "STEP-3", "--json").json
    assert [each["name"] for each in by_text] == [newest.name]
    by_time = run("history", "list", "--until", "2023-11-14T22:13:20+00:00", "--json").json
    assert [each["name"] for each in by_time] == [oldest.name]
    assert len(run("history", "list", "--name", LONG_NAME, "--limit", "1", "--json").json) == 1
    assert run("history", "list", "--name", "weather").out == "no such run is recorded\n"
    wrong = run("history", "list", "--since", "yesterday", "--limit", "0", "--json")
    assert wrong.code == 2
    assert [fault["where"] for fault in wrong.json["faults"]] == ["since", "limit"]


def test_a_damaged_file_is_named(run: Run, tmp_path: Path) -> None:
    damaged = tmp_path / "hyperplane" / "history" / "20990101-000000-weather.json"
    damaged.write_text("{")
    answer = run("history", "list")
    assert answer.code == 0
    assert f"{damaged} is no record of a run" in " ".join(answer.err.split())
    assert len(run("history", "list", "--json").json) == 2


def test_two_runs_are_compared(run: Run, records: list[RunRecord]) -> None:
    newest, oldest = records
    answer = run("history", "compare", oldest.name, "latest")
    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[0] == [oldest.name[:15], newest.name[:15]]
    (time,) = (line for line in lines if line[:1] == ["time"])
    assert time[1:3] == ["0", "s"]
    assert ["dask", "2026.8.0"] not in lines  # both have the same version
    document = run("history", "compare", oldest.name, newest.name, "--json").json
    assert (document["first"], document["second"]) == (oldest.name, newest.name)
    assert run("history", "compare", "weather").code == 2


def test_computations_are_shown(run: Run) -> None:
    usage = ComputationUsage("total", tasks=70, input=3 * GB, seconds=5, peak=GB, count=4)
    record = RunRecord(
        name=new_run_name("flights", 1_800_000_000),
        cluster="flights",
        started=1_800_000_000,
        ended=1_800_000_060,
        program="etl.py",
        computations=(usage,),
    )
    write_run(record)
    words = run("history", "show", "latest").out.split()
    for shown in ("etl.py", "total", "70", "4"):
        assert shown in words
    assert run("history", "list", "--name", "etl.py").out.splitlines()[-1].split()[1] == "etl.py"


@pytest.mark.process
def test_the_steps_of_jobs_are_listed(run: Run) -> None:
    step = Step(name="hello", kind="command", argv=("true",))
    job = submit(Pipeline.from_steps("of-history", [step]))
    assert job.wait(170) == "done"
    (listed,) = run("history", "list", "--name", "of-history/hello", "--json").json
    assert (listed["cluster"], listed["job"]) == ("", job.id)
    shown = run("history", "show", "of-history/hello")
    assert shown.code == 0
    assert job.id in shown.out
    assert "runner" in shown.out


def test_the_peak_of_a_run_without_a_limit_is_listed(run: Run) -> None:
    worker = WorkerUsage("no pool", peak=194_000_000)
    write_run(RunRecord(name="a-b", cluster="a", started=1, ended=2, workers=(worker,)))
    assert "0.19 GB" in run("history", "list").out


def test_blocks_of_code_are_listed_and_shown_by_their_names(run: Run) -> None:
    for number in (0, 1):
        write_run(
            RunRecord(
                name=new_run_name("clean.join", 1_700_000_100.0),
                cluster="plain",
                block="clean/join",
                started=1_700_000_100.0 + number / 2,
                ended=1_700_000_200.0,
                exit_reason="failed: ValueError",
                program="etl.py",
            )
        )
    answer = run("history", "list", "--name", "clean/join", "--json")
    # Two of one name in one second.
    assert [record["name"] for record in answer.json] == [
        "20231114-221500.500000-clean.join",
        "20231114-221500-clean.join",
    ]
    lines = run("history", "list", "--name", "clean/join").out.splitlines()
    shorts = [line.split()[0] for line in lines if line.startswith("2023")]
    assert shorts == ["20231114-221500.500000", "20231114-221500"]
    shown = [run("history", "show", short, "--json").json["name"] for short in shorts]
    assert shown == [record["name"] for record in answer.json]
    assert len(run("history", "list", "--name", "etl.py", "--json").json) == 2
    shown = run("history", "show", "clean/join")
    assert "of clean/join" in shown.text
    assert "cluster plain started" in shown.text  # of Dask itself: there is no engine
    assert "ended failed: ValueError" in shown.text


def test_what_is_listed_identifies_runs_whose_files_have_the_same_time(
    run: Run, records: list[RunRecord], tmp_path: Path
) -> None:
    # As written by earlier versions, or by two processes at once.
    name = records[0].name[:15] + "-weather"
    started = records[0].started + 0.25
    update = {"name": name, "cluster": "weather", "workers": (), "started": started}
    other = records[0].model_copy(update=update)
    (tmp_path / "hyperplane" / "history" / f"{name}.json").write_text(other.to_json())
    lines = run("history", "list").out.splitlines()
    shorts = [line.split()[0] for line in lines if line.startswith("2023")]
    second = records[0].name[:15]
    assert shorts == [f"{second}.250000", f"{second}.000000", records[1].name[:15]]
    shown = [run("history", "show", short, "--json").json["name"] for short in shorts]
    assert shown == [name, records[0].name, records[1].name]


def test_a_block_does_not_advise_less_memory_and_claims_no_nodes(run: Run) -> None:
    worker = WorkerUsage("0", nthreads=1, limit=2 * GB, peak=GB // 2, demand=GB // 2)
    record = RunRecord(
        name=new_run_name("part", 1_800_000_000),
        cluster="flights",
        block="part",
        started=1_800_000_000,
        ended=1_800_000_060,
        plan=PlanSummary(nprocs=1, nthreads=1, ram_per_proc=2 * GB),
        workers=(worker,),
        tasks=(TaskUsage("sum", count=1, seconds=1.0),),
    )
    write_run(record)
    shown = run("history", "show", "part").text
    assert "plan 1 process of unknown nodes, each 1 thread x 2 GB" in shown
    assert "ram_gb_per_proc" not in shown
    assert "ram_gb_per_proc" not in render_report(record)
    whole = record.model_copy(update={"block": "", "started": 1_800_000_001})
    assert re.search(r"ram_gb_per_proc=0\.\d+ would do", render_report(whole))
    short = replace(worker, peak=2 * GB, demand=3 * GB, spilled=GB)
    write_run(record.model_copy(update={"workers": (short,)}))
    assert "advice ram_gb_per_proc=5 would do" in run("history", "show", "part").text
    compared = run("history", "compare", "part", "part").text
    assert "nodes unknown unknown" in compared
