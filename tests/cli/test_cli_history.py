"""``hyperplane history``."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Run

from hyperplane.history import PlanSummary, RunRecord, TaskUsage, WorkerUsage
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run

GB = 10**9
LONG_NAME = "dask-cluster-9f8b7a66-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunRecord]:
    """Two runs, the newest first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
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
    return runs[::-1]


def test_runs_are_listed_newest_first(run: Run) -> None:
    answer = run("history", "list")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    first, second = (line for line in lines if line.startswith("20231114-"))
    assert first.split()[0] == "20231114-221321"
    assert "1.7 of 2 GB" in first
    assert second.split()[0] == "20231114-221320"


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
