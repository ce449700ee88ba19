"""Dask's ipywidgets in notebooks, which the extra ``notebook`` installs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from kernels import execute

VIEW = "application/vnd.jupyter.widget-view+json"

CELLS = [
    "import hyperplane\n"
    "from distributed import progress\n"
    "client, cluster = hyperplane.initialize_cluster(\n"
    "    num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5\n"
    ")",
    "futures = client.map(abs, range(20))\nshown = progress(futures)\nshown",
    # The scheduler updates the bar between cells, or while the kernel waits as here.
    "import asyncio\n"
    "while not getattr(shown, 'bars', None) or shown.bars['abs'].value < 1:\n"
    "    await asyncio.sleep(0.1)\n"
    "type(shown.bars['abs']).__name__",
    "cluster",
    "client.close()\ncluster.close()",
]

#: Calls that wait: their progress is the output of their cell.
WAITING = [
    "import dask, time, hyperplane\n"
    "dask.config.set({'hyperplane.progress.delay': 0.3})\n"
    "client, cluster = hyperplane.initialize_cluster(\n"
    "    num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5\n"
    ")\n"
    "def work(number):\n"
    "    time.sleep(0.2)\n"
    "    return number",
    "first = sum(client.gather(client.map(work, range(12), pure=False)))\n"
    "first + sum(client.gather(client.map(work, range(10), pure=False)))",
    "client.submit(abs, -1).result()",
    "client.close()\ncluster.close()",
]


@pytest.mark.slow
@pytest.mark.cluster
def test_a_notebook_draws_the_progress_and_the_cluster(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in CELLS])
    execute(notebook, tmp_path)
    _, progress, bar, cluster, _ = (cell.outputs for cell in notebook.cells)
    assert [output.data["text/plain"] for output in bar] == ["'FloatProgress'"]
    for outputs in (progress, cluster):
        assert any(VIEW in output.get("data", {}) for output in outputs), outputs


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cell_shows_the_progress_of_its_calls_in_one_output(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in WAITING])
    execute(notebook, tmp_path)
    _, slow, fast, _ = (cell.outputs for cell in notebook.cells)
    shown, result = slow
    assert result.data["text/plain"] == "111"
    assert shown.output_type == "display_data"
    assert shown.data["text/plain"].startswith("10 tasks in ")
    assert [output.data["text/plain"] for output in fast] == ["1"]
