"""Configuration, pipelines and rendered files of version 0.1.0 mean the same to this version."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
import yaml
from release import DATA, Release, contains
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.jobs import Pipeline, read_pipeline
from scripts.compat.fixtures.configuration import read_configuration

#: Options of ``job render`` as they were given to 0.1.0.
RENDERED = {
    "slurm": ["--option", "python=python3"],
    "kubernetes": ["--option", "image=registry.example/flights:1", "--option", "root=/srv"],
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release("0.1.0", tmp_path_factory.mktemp("released") / "release")


@pytest.fixture
def configuration(release: Release) -> Iterator[dict[str, Any]]:
    """Apply a user's file and variables; return the values that 0.1.0 has read."""
    variables = json.loads((release.place / "variables.json").read_text())
    dask.config.refresh(paths=[str(release.place / "dask")], env=variables)
    yield release.expected("configuration")
    dask.config.refresh()


def test_each_key_of_the_configuration_means_the_same(configuration: dict[str, Any]) -> None:
    found = read_configuration()
    assert found["faults"] == []
    for pool in configuration["pools"].values():
        pool.pop("note", None)  # text for readers, which may change
    assert contains(found, configuration) == []


def test_a_variable_wins_over_the_file(configuration: dict[str, Any]) -> None:
    assert configuration["engine ssh"]["hosts"] == ["three"]
    assert read_configuration()["memory"]["distributed.worker.memory.pause"] == 0.85


@pytest.mark.parametrize("name", ["every.yaml", "older.yaml"])
def test_each_key_of_a_pipeline_means_the_same(release: Release, name: str) -> None:
    expected = release.expected("pipelines")[name]
    pipeline = read_pipeline(release.place / "project" / name)
    warnings = expected.pop("warnings")
    assert contains(json.loads(pipeline.to_json()), expected) == []
    # Their words may change, their lines may not.
    lines = [re.match(r"\S+ line \d+", warning) for warning in warnings]
    assert [found and found[0] for found in lines] == [
        found and found[0]
        for found in (re.match(r"\S+ line \d+", one) for one in pipeline.warnings)
    ]
    assert Pipeline.from_json(json.dumps(expected)) == pipeline.model_copy(update={"warnings": ()})


@pytest.mark.parametrize("runner", RENDERED)
def test_rendered_files_are_replaced_by_those_of_this_version(
    release: Release, runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, pipeline = release.place / "rendered" / runner, release.place / "project" / "less.yaml"
    before = {str(file) for file in folder.iterdir() if not file.name.startswith(".")}
    (folder / "notes.txt").write_text("of the user")
    text = (release.place / "project" / "rendered.yaml").read_text()
    pipeline.write_text(text.partition("  - name: page")[0])
    monkeypatch.setenv("API_TOKEN", "s3cret-and-long")
    words = ["job", "render", str(pipeline), "--runner", runner, "--name", "rendered", "--json"]
    done = CliRunner().invoke(app, [*words, *RENDERED[runner], "--out", str(folder)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert ({*found["written"], *found["removed"]}, found["left"]) == (before, [])
    assert [Path(name).stem for name in found["removed"]] == ["004-page"]
    assert (folder / "notes.txt").exists()


def programs() -> set[str]:
    """Modules and files of the package that rendered files and queued batch jobs name."""
    place, found = DATA / "v0.1.0" / "place", set()
    for file in [*place.rglob("*.sbatch"), *place.glob("slurm/*/script")]:
        found |= set(re.findall(r"\S+/(hyperplane/\S+\.py)", file.read_text()))
    for file in (place / "rendered" / "kubernetes").glob("*.yaml"):
        for document in yaml.safe_load_all(file.read_text()):
            pod = document.get("spec", {}).get("template", {}).get("spec", {})
            for container in pod.get("containers", ()):
                words = [*container.get("command", ()), *container.get("args", ())]
                found |= {word for word in words if re.fullmatch(r"hyperplane(\.\w+)+", word)}
    return found


@pytest.mark.parametrize("name", sorted(programs()))
def test_a_program_that_files_of_0_1_0_name_is_still_there(name: str) -> None:
    if os.sep in name:
        assert (Path(__file__).parents[2] / name).is_file()
    else:
        assert importlib.util.find_spec(name) is not None
