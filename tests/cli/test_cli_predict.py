"""``hyperplane predict``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scale import FULL
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from terminal import Run
from typer.testing import CliRunner

import hyperplane
from hyperplane.cli import app

MAIN = "from hyperplane.cli import main; main()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"a": [0.0, 1.0, 3.0], "b": [1.0, 0.0, 4.0]})
    hyperplane.save(LinearRegression().fit(frame, 2 * frame.a), tmp_path / "m" / "model.skops")
    for number in range(3):
        frame.to_csv(tmp_path / f"in-{number}.csv", index=False)
    return tmp_path


def command(folder: Path, *more: str) -> list[str]:
    out = str(folder / "out")
    files = str(folder / "in-*.csv")
    return ["predict", "--model", str(folder / "m"), "--input", files, "--output", out, *more]


@pytest.mark.slow
def test_files_are_predicted_in_this_process(folder: Path, run: Run) -> None:
    answer = run(*command(folder, "--max-workers", "1", "--batch-size", "2"))
    assert answer.code == 0
    assert "3 files with 9 rows" in answer.out
    path = folder / "out" / "prediction.results-00002-of-00003"
    values = [json.loads(line)["prediction"] for line in path.read_text().splitlines()]
    assert values == pytest.approx([0, 2, 6], abs=1e-12)
    again = run(*command(folder, "--max-workers", "1", "--batch-size", "2", "--json"))
    assert json.loads(again.out)["finished_before"] == 3
    changed = run(*command(folder, "--batch-size", "3"))
    assert changed.code == 2
    assert "differs in --batch-size; choose" in changed.err


@pytest.mark.slow
@pytest.mark.process
def test_a_refusal_names_options_and_loads_no_library(folder: Path) -> None:
    wrong = ["--batch-size", "0", "--data-format", "xml", "--max-workers", "0"]
    program = f"{MAIN.replace('main()', '')}\nimport sys\ntry: main()\nfinally: print(*sys.modules)"
    for more in (wrong, ["--input", "nowhere.csv"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *command(folder, *more)],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 2
        if more == wrong:
            named = [line.split()[1] for line in done.stderr.splitlines()[1:]]
            assert named == ["--batch-size", "--max-workers", "--data-format"]
            assert "or no value for the format of each suffix" in done.stderr
        assert not {"pandas", "sklearn", "distributed"} & set(done.stdout.split())


def test_faults_of_instances_are_reported_together(folder: Path, run: Run) -> None:
    answer = run(
        "predict", "--model", str(folder / "x"), "--json-instances", "x", "--batch-size", "0"
    )
    assert answer.code == 2
    assert "3 faults in the request, nothing was predicted:" in answer.err
    named = ["--json-instances = 'x'", "--batch-size = 0", "--model = "]
    assert [name for name in named if name in answer.err] == named


def test_the_exit_code_is_1_if_every_row_is_refused(folder: Path, run: Run) -> None:
    for number in range(3):
        (folder / f"in-{number}.csv").write_text("a,b\nx,y\n")
    answer = run(*command(folder, "--max-workers", "1"))
    assert answer.code == 1
    assert "all of these; see prediction.errors_stats-*" in answer.out


@pytest.mark.skipif(not FULL, reason="starts a cluster for one file: at full scale")
@pytest.mark.process
@pytest.mark.slow
def test_files_are_predicted_by_local_processes(folder: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: the command starts no processes")
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, *command(folder, "--json")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["rows"] == 9
    assert 1 <= result["model_loads"] <= 3  # 0 without a cluster


def test_instances_are_predicted_line_by_line(folder: Path, run: Run) -> None:
    (folder / "i.jsonl").write_text('{"a": 1, "b": 2}\n[5, 0]\n')
    arguments = ["predict", "--model", str(folder / "m"), "--json-instances"]
    answer = run(*arguments, str(folder / "i.jsonl"))
    assert answer.code == 0
    assert [float(line) for line in answer.out.splitlines()] == pytest.approx([2, 10])
    ended = CliRunner().invoke(app, [*arguments, "-"], input="[1, 1]\n[1]\n")
    assert ended.exit_code == 1
    assert float(ended.stdout) == pytest.approx(2)
    assert ended.stderr.startswith("line 2: ValueError: the instance has 1 values")


@pytest.mark.parametrize(
    ("instances", "code", "expected"),
    [
        ([[5, 0], {"a": 1, "b": 2}], 0, {"predictions": [10, 2]}),
        ([[5, 0], [1]], 1, {"error": "instance 1: ValueError: the instance has 1 values"}),
    ],
)
def test_a_request_is_answered_as_by_a_server(
    folder: Path, run: Run, instances: list[Any], code: int, expected: dict[str, Any]
) -> None:
    (folder / "request.json").write_text(json.dumps({"instances": instances}))
    answer = run(
        "predict", "--model", str(folder / "m"), "--json-request", str(folder / "request.json")
    )
    assert answer.code == code
    content = json.loads(answer.out)
    assert content.keys() == expected.keys()
    if code:
        assert content["error"].startswith(expected["error"])
    else:
        assert content["predictions"] == pytest.approx(expected["predictions"])


def test_a_file_that_is_no_request_is_a_fault(folder: Path, run: Run) -> None:
    (folder / "bad.json").write_text('{"inputs": []}')
    answer = run(
        "predict", "--model", str(folder / "m"), "--json-request", str(folder / "bad.json")
    )
    assert answer.code == 2
    assert "unknown key 'inputs'" in answer.err
    two = run(
        "predict", "--model", str(folder / "m"), "--json-request", "x", "--text-instances", "y"
    )
    assert two.code == 2
    assert "--text-instances = a file: expected no value with --json-request" in two.err


def test_lines_of_text_are_predicted(folder: Path, run: Run) -> None:
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model.fit(["a late flight", "on time", "late again", "time"], [1, 0, 1, 0])
    hyperplane.save(model, folder / "text" / "model.skops")
    (folder / "texts").write_text("very late\nin time\n")
    answer = run(
        "predict", "--model", str(folder / "text"), "--text-instances", str(folder / "texts")
    )
    assert (answer.code, answer.out.split()) == (0, ["1", "0"])


def test_all_faults_are_reported_at_once(folder: Path, run: Run) -> None:
    answer = run("predict", "--model", str(folder / "m"))
    assert answer.code == 2
    assert "1. --input is not set" in answer.err
    assert "2. --output is not set" in answer.err
    both = run(*command(folder, "--json-instances", "-"))
    assert both.code == 2
    assert both.err.count("no value with --json-instances") == 2
    bad = run(*command(folder, "--data-format", "xml", "--batch-size", "0"))
    assert bad.code == 2
    assert "--batch-size = 0" in bad.err
    assert "--data-format = 'xml'" in bad.err
    missing = run("predict", "--model", str(folder / "m"), "--json-instances", "none.jsonl")
    assert "No such file" in missing.err
