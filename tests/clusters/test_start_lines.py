"""Lines that a start prints: the documented ones, and those of engines without pods."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from published_lines import BRAND, LATER, LOGS, NOW, PODS, SELECTING

import hyperplane
from hyperplane.clusters import start_lines

SMALL: dict[str, Any] = {"num_workers": 2, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5}
DASHBOARD = "https://d/mine/status"
READY = [f"{NOW} {DASHBOARD}", LOGS]
OPTIONS = {
    "kubernetes": {"image": "example.com/image:1"},
    "gateway": {"address": "https://gateway.example.com"},
    "ssh": {"hosts": ["a", "b"]},
}


def _lines(capsys: pytest.CaptureFixture[str], engine: str, **arguments: Any) -> list[str]:
    plan = hyperplane.plan_cluster(
        **{**SMALL, **arguments},
        name="mine",
        engine=engine,
        engine_options=OPTIONS.get(engine, {}),
    )
    start_lines.print_start_lines(plan)
    start_lines.print_ready_lines(plan, DASHBOARD, 1.5)
    out: str = capsys.readouterr().out
    return out.splitlines()


@pytest.mark.parametrize("engine", ["kubernetes", "gateway"])
def test_engines_with_pods_print_every_documented_line(engine, capsys):
    assert _lines(capsys, engine) == [*SELECTING, *PODS, f"{LATER} {DASHBOARD}", LOGS]


@pytest.mark.parametrize(
    ("engine", "arguments", "line"),
    [
        ("local", {}, "in this process and 2 worker processes on this machine"),
        ("local", {"num_workers": 1}, "in this process and 1 worker process on this machine"),
        (
            "cuda",
            {"ngpus": 1, "num_workers": 1},
            "in this process and 1 worker process, each on a GPU of this machine",
        ),
        ("ssh", {}, "on a and 2 worker processes on a, b"),
        ("slurm", {}, "in this process and 2 worker processes in 2 jobs of Slurm"),
        ("slurm", {"num_workers": 1}, "in this process and 1 worker process in a job of Slurm"),
    ],
)
def test_other_engines_print_one_line_about_the_start(engine, arguments, line, capsys):
    assert _lines(capsys, engine, **arguments) == [
        *SELECTING,
        f"{BRAND} starting the scheduler {line}",
        *READY,
    ]


@pytest.mark.parametrize("engine", ["local", "ssh", "slurm"])
def test_of_a_scheduler_in_this_process_the_documented_four(engine, capsys):
    assert _lines(capsys, engine, scheduler_deploy_mode="local") == [*SELECTING, *READY]


@pytest.mark.parametrize("is_closed", [True, False])
def test_notes_are_left_out_if_standard_error_is_closed(is_closed, capsys, monkeypatch):
    stream = io.StringIO() if is_closed else None
    if stream is not None:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    plan = hyperplane.plan_cluster(**SMALL, name="mine", engine="local")
    start_lines.print_start_lines(plan, ["previous"])
    assert capsys.readouterr().out.splitlines()[:-1] == SELECTING
