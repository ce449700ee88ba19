"""Tests of PyTorch, TensorFlow, Ray and Spark are skipped where these packages are not required."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import networks
import pytest
from scale import FULL

ROOT = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^\s*(?:import|from) (torch|tensorflow|keras|ray|pyspark)\b|importorskip\(\"(\w+)\"", re.M
)


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a test and a page, each of which needs torch, with the hooks of ``conftest.py``."""
    (folder / "conftest.py").write_text(
        "import networks\n"
        "networks.is_installed = lambda name: name == 'json'\n"
        "def pytest_configure(config):\n    networks.fail_if_missing()\n"
        "def pytest_itemcollected(item):\n    networks.add_marks(item)\n"
        "from scripts.examples import PAGE_PARSERS\n"
        "from sybil import Sybil\n"
        "pytest_collect_file = Sybil(PAGE_PARSERS, patterns=['*.md']).pytest()\n"
    )
    (folder / "test_it.py").write_text(
        "import pytest\npytestmark = pytest.mark.torch\n"
        "def test_one(): raise AssertionError\ndef test_two(): raise AssertionError\n"
    )
    for name, line in {"page": "<!-- needs: torch -->", "other": "<!-- a comment -->"}.items():
        text = f"# Title\n\n{line}\n\n```python\nprint(1)\n```\n"
        (folder / f"{name}.md").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-q", "-p", "no:cacheprovider", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.process
@pytest.mark.skipif(not FULL, reason="make test itself skips them: at full scale")
def test_tests_and_pages_are_skipped_without_the_package(tmp_path):
    done = run(tmp_path)
    assert "1 passed, 3 skipped" in done.stdout, done.stdout + done.stderr
    assert len(re.findall(r"^SKIPPED .*torch is not installed", done.stdout, re.M)) == 2


@pytest.mark.skipif(not FULL, reason="runs pytest several times: at full scale")
@pytest.mark.process
def test_a_missing_package_is_an_error_where_it_is_required(tmp_path):
    done = run(tmp_path, HYPERPLANE_REQUIRE_NETWORKS="1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "not installed: tensorflow and torch" in done.stderr
    done = run(tmp_path, HYPERPLANE_REQUIRE_NETWORKS="ray")
    assert "not installed: ray" in done.stderr


def test_a_page_names_known_packages(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- needs: torch, tensorflow -->\n")
    assert networks.needs_of_page(page) == ["torch", "tensorflow"]
    assert not networks.is_slow_page(page)
    slow = tmp_path / "slow.md"
    slow.write_text("# Title\n\n<!-- slow -->\n")
    assert networks.is_slow_page(slow)
    other = tmp_path / "other.md"
    other.write_text("<!-- needs: pytorch -->\n")
    with pytest.raises(ValueError, match="pytorch"):
        networks.needs_of_page(other)


def test_every_file_that_imports_a_network_package_has_its_mark():
    # Otherwise make networks would not run it.
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        for match in _IMPORT.finditer(text):
            name = (match[1] or match[2]).replace("keras", "tensorflow").removeprefix("py")
            if name in networks.MARKS and file != Path(__file__):
                # The environment of Spark has all others, too.
                marks = {name, "spark"}
                assert any(f"mark.{mark}" in text for mark in marks), f"{file}: {match[0].strip()}"
