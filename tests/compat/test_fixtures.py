"""The program that makes the fixtures of a release runs with this version."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from release import DATA
from scale import FULL

from scripts.compat import fixtures
from scripts.compat.fixtures import configuration, project
from scripts.compat.fixtures.shapes import shape

ROOT = Path(__file__).parents[2]


def test_its_modules_are_imported() -> None:
    for module in pkgutil.iter_modules(fixtures.__path__):
        importlib.import_module(f"{fixtures.__name__}.{module.name}")


def test_its_configuration_sets_every_key(tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    expected.mkdir()
    configuration.make(tmp_path, expected)  # an error names keys that keep their default
    assert json.loads((expected / "configuration.json").read_text())["faults"] == []


def test_its_pipeline_has_every_key() -> None:
    project.check_every_key()  # an error names keys that it does not have


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="takes half a minute: at full scale")
def test_it_makes_all_that_an_earlier_version_has_made(tmp_path: Path) -> None:
    words = [sys.executable, "-m", fixtures.__name__, "--into", str(tmp_path / "now")]
    subprocess.run(words, cwd=ROOT, check=True, timeout=250)
    # Keys and files may be added, but none removed: an older version may read it.
    assert shape(DATA / "v0.1.0") - shape(tmp_path / "now") == set()
