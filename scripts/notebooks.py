"""Run notebooks and store their outputs: ``make notebooks``.

Without an argument all notebooks run that need no Spark; with the argument ``spark`` the others.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
#: What notebooks need in addition to the packages of the tests: an extra, which is also a mark.
NEEDS = {"05_train_a_network": "torch", "06_spark_on_ray": "spark"}


def main(environment: str = "") -> None:
    """Run each notebook in an empty folder and write it with its new outputs."""
    for file in sorted(FOLDER.glob("*.ipynb")):
        if (NEEDS.get(file.stem) == "spark") != (environment == "spark"):
            continue
        notebook = nbformat.read(file, as_version=4)
        metadata = dict(notebook.metadata)  # running adds the version of Python
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
            # Jobs and searches of earlier runs would be continued.
            os.environ["DASK_HYPERPLANE__JOBS__HOME"] = home
            os.environ["XDG_STATE_HOME"] = home
            os.environ["JPY_SESSION_NAME"] = file.name  # as Jupyter Server does
            NotebookClient(
                notebook,
                timeout=600,
                kernel_name="python3",
                record_timing=False,
                resources={"metadata": {"path": folder}},
            ).execute()
        notebook.metadata = nbformat.from_dict(metadata)
        for cell in notebook.cells:
            cell.metadata = nbformat.from_dict({})
            if cell.cell_type == "code":
                cell.outputs = [each for each in cell.outputs if is_reproducible(each)]
        nbformat.write(notebook, file)


def is_reproducible(output: Any) -> bool:
    """Return whether an output of a cell appears on every machine.

    Lines on standard error differ. A progress bar, and the output that replaces it at its end,
    appear only if the cell takes longer than two seconds.
    """
    data = output.get("data", {})
    is_bar = "application/vnd.jupyter.widget-view+json" in data
    text = data.get("text/plain", "") if output.output_type == "display_data" else None
    has_ended = text == "" or re.match(r"[\d,]+ tasks? in \d|job .*: .* after \d", text or "")
    return output.get("name") != "stderr" and not is_bar and not has_ended


if __name__ == "__main__":
    main(*sys.argv[1:])
