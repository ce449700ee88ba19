"""``hyperplane model``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sklearn.linear_model import LinearRegression
from terminal import Run

import hyperplane


@pytest.fixture
def model(tmp_path: Path) -> str:
    fitted = LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0])
    return hyperplane.save(fitted, tmp_path / "model.skops").url


def test_models_are_created_listed_and_made_default(tmp_path: Path, model: str, run: Run) -> None:
    registry = ["--registry", str(tmp_path / "models")]
    first = run("model", "create", "delay", model, *registry)
    assert first.code == 0
    assert first.out.startswith("created delay v1, the default version: ")
    second = run("model", "create", "delay", model, "--version", "blue", "--json", *registry)
    assert json.loads(second.out)["is_default"] is False
    chosen = run("model", "default", "delay", "blue", *registry)
    assert chosen.out.startswith("the default version of delay is blue: ")
    lines = run("model", "list", *registry).out.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["delay", "blue", "yes"], ["delay", "v1", "scikit-learn"],
    ]  # fmt: skip
    listed = json.loads(run("model", "list", "delay", "--json", *registry).out)
    assert [each["version"] for each in listed] == ["blue", "v1"]


def test_faults(tmp_path: Path, model: str, run: Run) -> None:
    registry = ["--registry", str(tmp_path / "models")]
    bad = run("model", "create", "1", model, "--version", "/", *registry)
    assert bad.code == 2
    assert "2 faults in the request, nothing was created" in bad.err
    unknown = run("model", "default", "delay", "v1", *registry)
    assert unknown.code == 2
    assert "the registry has none" in unknown.err
