"""Lines that a start prints: the documented ones, and those of engines without pods."""

from __future__ import annotations

from typing import Any

import pytest

import hyperplane
from hyperplane.clusters import start_lines

SMALL: dict[str, Any] = {"num_workers": 2, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5}
SELECTING = [
    "👉 Hyperplane: selecting worker node pool",
    "👉 Hyperplane: selecting scheduler node pool",
]
LOGS = "👉 Hyperplane: to get logs from all workers, do `cluster.get_logs()`"
PODS = [
    *SELECTING,
    "Creating scheduler pod on cluster. This may take some time.",
    "👉 Hyperplane: spinning up a dask cluster with a scheduler as a standalone container.",
    "👉 Hyperplane: In a few minutes you'll be able to access the dashboard at https://d/mine/status",
    LOGS,
]
IN_A_SESSION = [
    *SELECTING,
    "👉 Hyperplane: you can access your dask dashboard at https://d/mine/status",
    LOGS,
]
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
    start_lines.print_ready_lines(plan, "https://d/mine/status", 1.5)
    out: str = capsys.readouterr().out
    return out.splitlines()


@pytest.mark.parametrize("engine", ["kubernetes", "gateway"])
def test_where_there_are_pods_every_documented_line(engine, capsys):
    assert _lines(capsys, engine) == PODS


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
def test_elsewhere_one_line_on_what_is_started(engine, arguments, line, capsys):
    assert _lines(capsys, engine, **arguments) == [
        *SELECTING,
        f"👉 Hyperplane: starting the scheduler {line}",
        *IN_A_SESSION[2:],
    ]


@pytest.mark.parametrize("engine", ["local", "ssh", "slurm"])
def test_of_a_scheduler_in_this_process_the_documented_four(engine, capsys):
    assert _lines(capsys, engine, scheduler_deploy_mode="local") == IN_A_SESSION
