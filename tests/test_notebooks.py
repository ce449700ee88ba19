"""Every notebook runs from top to bottom, and its stored outputs are up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from kernels import execute
from scale import scaled

from scripts.notebooks import NEEDS, is_reproducible, replace_paths

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

#: make networks and make spark run the notebooks that need more packages.
MARKS = {"torch": [pytest.mark.torch], "spark": [pytest.mark.spark, pytest.mark.slow]}
#: Notebooks that run; the full scale, as in CI, runs all. At small scale test_widgets.py runs a
#: notebook with a cluster.
EXECUTED = [
    pytest.param(file, marks=MARKS[NEEDS[file.stem]] if file.stem in NEEDS else [], id=file.stem)
    for file in NOTEBOOKS
    if file.stem in scaled(NEEDS, [each.stem for each in NOTEBOOKS])
]

each_notebook = pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell: Any) -> set[str]:
    """Outputs of a cell: streams, results, and the types of their data."""
    types = set()
    for output in filter(is_reproducible, cell.outputs):
        types.add(output.get("name") or output.output_type)
        types.update(output.get("data", {}))
    return types


@pytest.mark.cluster
@pytest.mark.usefixtures("usual_preload")
@pytest.mark.parametrize("file", EXECUTED)
def test_notebooks_run_and_reproduce_the_stored_outputs(file: Path, tmp_path: Path) -> None:
    stored = nbformat.read(file, as_version=4)
    notebook = nbformat.read(file, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs = []
    execute(notebook, tmp_path)
    for before, after in zip(code_cells(stored), code_cells(notebook), strict=True):
        assert kinds(before) == kinds(after), before.source


@pytest.mark.parametrize(
    ("text", "is_compared"),
    [
        ("start (local): done after 7 s", False),
        ("start (ray:local): done after 1 min 7 s", False),
        ("job nightly #12: done after 35 s", False),
        ("1,000 tasks in 3 s", False),
        ("3.1 s; 30 of 1,200 tasks have ended", False),
        ("failed after 1 min 3 s; 1 of 1 task had ended", False),
        ("the flights start after 7", True),
    ],
)
def test_a_slow_machine_adds_no_outputs(text: str, is_compared: bool) -> None:
    data = {"text/plain": text, "text/html": f"<small>{text}</small>"}
    output = nbformat.v4.new_output("display_data", data)
    assert is_reproducible(output) == is_compared


@each_notebook
def test_notebooks_contain_their_outputs(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells)
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)


@each_notebook
def test_notebooks_contain_no_paths_of_the_machine(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.findall(r"/(?:root|home|Users|tmp|var)/[\w./-]*", text)
    assert str(FOLDER.parent) not in text
    assert not any(cell.metadata for cell in nbformat.reads(text, as_version=4).cells)
    assert len(text) < 150_000


def test_links_to_files_of_a_machine_and_its_folders_are_removed() -> None:
    html = (
        '<b><a href="file:///tmp/h/jobs/log" target="_blank">/tmp/h/jobs/log</a></b> '
        '<i>/tmp/f/late</i> <a href="b.txt">b</a>'
    )
    output = {"data": {"text/html": html}}
    replace_paths(output, "/tmp/h", "/tmp/f")
    assert output["data"]["text/html"] == (
        '<b>~/.local/state/hyperplane/jobs/log</b> <i>late</i> <a href="b.txt">b</a>'
    )
