"""Lines that a start prints: the documented ones, and those of engines without pods."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

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


@pytest.fixture(params=["pipe without a reader", "closed file", "closed descriptor", "none"])
def broken(request: pytest.FixtureRequest) -> Iterator[TextIO | None]:
    """Yield a standard stream that cannot be written."""
    if request.param == "none":
        yield None
        return
    reader, writer = os.pipe()
    # Writing to the end for reading fails as writing to a closed descriptor does.
    kept, other = (reader, writer) if request.param == "closed descriptor" else (writer, reader)
    os.close(other)
    stream = os.fdopen(kept, "w")
    if request.param == "closed file":
        stream.close()
    yield stream
    with suppress(OSError):
        stream.close()


def test_a_start_goes_on_if_its_lines_cannot_be_written(broken, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", broken)
    _lines(capsys, "local", logging="verbose")


def test_a_start_goes_on_if_its_notes_cannot_be_written(broken, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", broken)
    plan = hyperplane.plan_cluster(**SMALL, name="mine", engine="local")
    start_lines.print_start_lines(plan, ["previous"])
    assert capsys.readouterr().out.splitlines()[:-1] == SELECTING


def test_characters_that_the_output_lacks_are_escaped(capsys, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    _lines(capsys, "local")
    assert b"\\U0001f449 Hyperplane: selecting worker node pool\n" in stream.buffer.getvalue()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_program_whose_output_is_not_read_computes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, hyperplane\n"
        'if __name__ == "__main__":\n'
        f"    client, cluster = hyperplane.initialize_cluster(**{SMALL}, engine='local')\n"
        "    print(client.submit(sum, [1, 2]).result(), file=sys.stderr)\n"
        "    client.close(); cluster.close()\n"
    )
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(program))} | head -0"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300)
    assert "3" in done.stderr.splitlines()
