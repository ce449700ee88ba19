"""``hyperplane forecast``."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Run

pytestmark = pytest.mark.process

PROGRAM = """
import dask.array as da
print("loading data")
def add(block):
    return block + 1
total = da.ones((4_000, 1_000), chunks=(500, 1_000)).map_blocks(add).sum()
written = da.ones(4).store([0], compute=False)
"""
LAYOUT = ("--nprocs", "1", "--nthreads", "1", "--ram-gb-per-proc", "1", "--engine", "local")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


@pytest.mark.slow
def test_the_forecast_of_a_program(program: Path, run: Run) -> None:
    answer = run("forecast", f"{program}:total", *LAYOUT, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["low"] < answer.json["peak"] < answer.json["high"]
    assert answer.json["limit"] == 10**9
    assert "loading data" in answer.err


def test_a_job_that_cannot_be_forecast_ends_with_1(program: Path, run: Run) -> None:
    answer = run("forecast", f"{program}:written", *LAYOUT)
    assert answer.code == 1
    assert "refused" in answer.out
    assert "would write to their target" in answer.text


@pytest.mark.slow
def test_advice_has_the_layouts_on_which_the_job_fits(
    program: Path, run: Run, tmp_path: Path
) -> None:
    picture = tmp_path / "options.svg"
    options = ("--advise", "--pools", "--plot", str(picture))
    answer = run("forecast", f"{program}:total", *LAYOUT, *options)
    assert answer.code == 0, answer.err
    assert "Recommended:" in answer.out
    row = next(line for line in answer.out.splitlines() if line.split()[:1] == ["16_32"])
    assert " GB" in row
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "…" not in answer.out
    assert picture.read_text().startswith("<svg")
    document = run("forecast", f"{program}:total", *LAYOUT, "--advise", "--json").json
    assert document["advice"]["is_local"]
    assert document["peak"]


def test_a_job_that_cannot_be_forecast_has_no_advice(program: Path, run: Run) -> None:
    answer = run("forecast", f"{program}:written", *LAYOUT, "--advise")
    assert answer.code == 1
    assert "Recommended:" not in answer.out


def test_faults_end_with_2(program: Path, run: Run) -> None:
    answer = run("forecast", f"{program}:total", *LAYOUT, "--budget", "7", "--confidence", "2")
    assert answer.code == 2
    assert "budget = 7.0" in answer.err
    assert "confidence = 2.0" in answer.err
