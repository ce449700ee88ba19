"""Killed predictions: the next call predicts only the missing files."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import killing
import pytest
from prediction_cases import Flights, read_output
from scale import FULL, scaled

from hyperplane.ml import predict_files

pytestmark = [pytest.mark.process, pytest.mark.slow]

FILES = scaled(12, 60)
SCRIPT = f"""
import sys, time
from pathlib import Path
from sklearn.linear_model import LinearRegression
from hyperplane.ml import predict_files

def predict(model, rows):
    while len(list(Path(sys.argv[3]).glob("prediction.results-*"))) > {FILES // 2}:
        time.sleep(1)  # until it is killed, however late
    return plain(model, rows)

plain, LinearRegression.predict = LinearRegression.predict, predict
predict_files(sys.argv[1], sys.argv[2], sys.argv[3], batch_size=1)
"""


@pytest.fixture
def inputs(flights: Flights) -> str:
    for number in range(FILES):
        path = flights.folder / f"many-{number:02d}.parquet"
        flights.frames[number % 5].to_parquet(path)
    return str(flights.folder / "many-*.parquet")


def finished(out: Path) -> list[Path]:
    return sorted(out.glob("prediction.results-*"))


def check(flights: Flights, out: Path) -> None:
    """Compare all outputs with those of a plain loop."""
    for number in range(FILES):
        expected = flights.expect(flights.frames[number % 5])
        lines = read_output(out, "results", number, FILES)
        found = {line["row"]: line["prediction"] for line in lines}
        assert found == pytest.approx(expected, abs=1e-12)
        assert len(lines) == len(found)
        errors = read_output(out, "errors_stats", number, FILES)
        assert [line["row"] for line in errors[1:]] == [17]


@pytest.mark.skipif(not FULL, reason="test_predict_files.py resumes failed calls: at full scale")
def test_a_killed_call_is_resumed(flights: Flights, inputs: str) -> None:
    counts = [1, 20, *range(5, 23, 3)]
    for number, count in enumerate(counts):
        out = flights.folder / f"out-{number}"
        ended = killing.run(
            SCRIPT, str(flights.url), inputs, str(out),
            when=lambda out=out, count=count: len(finished(out)) >= count,
        )  # fmt: skip
        assert ended.killed, ended.err
        before = {path: path.stat().st_mtime_ns for path in finished(out)}
        assert count <= len(before) < FILES
        result = predict_files(flights.url, inputs, out, batch_size=1)
        assert result.finished_before == len(before)
        assert result.rows == (FILES - len(before)) * 40
        assert before == {path: path.stat().st_mtime_ns for path in before}
        check(flights, out)


@pytest.mark.skipif(not FULL, reason="starts a cluster: at full scale")
@pytest.mark.cluster
def test_a_killed_worker_costs_only_its_running_files(
    flights: Flights, inputs: str, client: Any
) -> None:
    out = flights.folder / "out"
    pids = list(client.run(lambda: __import__("os").getpid()).values())
    killed = []

    def kill() -> None:
        import os
        import signal

        deadline = time.monotonic() + 200
        while len(finished(out)) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(pids[0], signal.SIGKILL)
        killed.append(len(finished(out)))

    thread = threading.Thread(target=kill)
    thread.start()
    result = predict_files(flights.url, inputs, out, batch_size=1)
    thread.join()
    assert killed[0] < FILES
    assert result.rows == FILES * 40
    check(flights, out)
