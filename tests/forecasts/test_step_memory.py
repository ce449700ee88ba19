"""Memory that a step of a job needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import pytest

from hyperplane.core.errors import Fault
from hyperplane.errors import RequestError
from hyperplane.forecasts import step_memory
from hyperplane.forecasts.result import Forecast
from hyperplane.forecasts.step_memory import forecast_step
from hyperplane.spec.plan import ClusterPlan

pytestmark = pytest.mark.process

PROGRAM = """
import dask
import dask.array as da

method = dask.config.get("dataframe.shuffle.method", None)

def add(block):
    return block + 1

def large():
    return da.random.default_rng(0).random((24_000, 1_000), chunks=(4_000, 1_000)).map_blocks(add)

total = large().sum()
kept = large()
written = da.ones(4).store([0], compute=False)
"""
CLUSTER = {"pool": "auto", "num_workers": 1, "nprocs": 3, "nthreads": 1, "engine": "local"}
MB = 10**6


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


@pytest.mark.slow
def test_a_process_needs_more_with_more_threads(program: Path) -> None:
    found = forecast_step(f"{program}:total", None, [1, 6, 60])
    assert set(found.node) == {1, 6, 60}
    # Chunks of 32 MB, one in each thread; there are six.
    assert 100 * MB < found.node[1] < found.node[6] - 100 * MB
    assert found.node[60] == pytest.approx(found.node[6], rel=0.1)
    assert (found.high, found.ram_per_proc, found.cores) == (found.node[60], 0, 0)
    assert found.cost > 0


@pytest.mark.slow
def test_the_processes_of_a_cluster_have_the_size_of_the_advice(program: Path) -> None:
    found = forecast_step(f"{program}:kept", CLUSTER, [2])
    # Without spilling, which begins at 0.7 of the limit.
    assert found.ram_per_proc == pytest.approx(found.high / 0.7, abs=10 * MB)
    assert found.cores == 3
    (size,) = found.node.values()
    # All chunks are kept on three processes, and come to the program's own process.
    assert 2 * 192 * MB + 4 * 80 * MB < size < 3 * found.high + 192 * MB + 400 * MB
    assert forecast_step(f"{program}:total", CLUSTER, []).node == {}
    limited = {**CLUSTER, "pool": "16_16", "ram_gb_per_proc": 0.2}
    (least,) = forecast_step(f"{program}:kept", limited, [2]).node.values()
    assert least < size


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("written", "would write to their target"),
        ("absent", "a name that program.py defines"),
        ("method", "the name of a Dask dataframe"),
    ],
)
def test_what_cannot_be_forecast_is_refused(program: Path, name: str, expected: str) -> None:
    with pytest.raises(RequestError, match=expected):
        forecast_step(f"{program}:{name}", None, [2])


def test_a_program_that_ends_with_an_error_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text("raise LookupError('no data')")
    with pytest.raises(RequestError, match="line 1: LookupError: no data"):
        forecast_step(f"{file}:total", CLUSTER, [])


@pytest.mark.parametrize("runs", [("run-1", "run-2"), ()])
def test_earlier_runs_of_the_program_size_its_processes(
    program: Path, monkeypatch: pytest.MonkeyPatch, runs: tuple[str, ...]
) -> None:
    past = Forecast(500 * MB, 400 * MB, 700 * MB, 0, 1.0, 1.0, not runs, ("a reason",), 0.0, 0.9)
    past = Forecast(**{**past.__dict__, "runs": runs})
    told: list[tuple[int, int, str, bool]] = []

    def answer(collection: Any, plan: ClusterPlan, program: str, **options: Any) -> Forecast:
        told.append((plan.dask_workers, plan.worker.nthreads, program, options["history"]))
        return past

    monkeypatch.setattr(step_memory, "forecast_program", answer)
    if not runs:
        with pytest.raises(RequestError, match="a reason"):
            forecast_step(f"{program}:total", CLUSTER, [])
        return
    found = forecast_step(f"{program}:total", CLUSTER, [])
    assert (found.high, found.ram_per_proc, found.runs) == (700 * MB, 1000 * MB, 2)
    assert told == [(3, 1, "program.py", True)]


def test_the_collection_is_made_with_the_shuffles_of_the_cluster(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def load(target: str) -> None:
        found.append(dask.config.get("dataframe.shuffle.method", None))
        raise RequestError([Fault("target", target, "a test")])

    monkeypatch.setattr(step_memory, "load_collection", load)
    for cluster in (CLUSTER, None):
        with pytest.raises(RequestError):
            forecast_step(f"{program}:total", cluster, [2])
    assert found[0]
    assert found[1] is None
