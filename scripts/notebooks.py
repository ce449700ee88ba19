"""Run notebooks and store their outputs: ``make notebooks``.

Without an argument those run that need only the packages of the tests, with ``torch`` or ``spark``
those that need it, in an environment that has it.
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

from hyperplane.core.notebook_output import NOTE_METADATA

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
#: What notebooks need in addition to the packages of the tests: an extra, which is also a mark.
NEEDS = {"05_train_a_network": "torch", "06_spark_on_ray": "spark"}

_FILE_LINK = re.compile(r'<a href="file:[^"]*"[^>]*>(.*?)</a>', re.DOTALL)

#: What replaces a progress bar at its end: of tasks, also of some that have not ended or whose
#: number the scheduler did not say in time, of a job and of the start of a cluster.
_ENDED = re.compile(
    r"[\d,]+ tasks? in \d|.*\d (s|min|h); [\d,]+ of [\d,]+ tasks? ha(ve|d) ended"
    r"|(job .*|start \(\S+\)): .* after \d"
)


def main(environment: str = "") -> None:
    """Run each notebook in an empty folder and write it with its new outputs."""
    for file in sorted(FOLDER.glob("*.ipynb")):
        if NEEDS.get(file.stem, "") != environment:
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
                for output in cell.outputs:
                    replace_paths(output, home, folder)
        nbformat.write(notebook, file)


def replace_paths(output: Any, home: str, folder: str) -> None:
    """Remove what is of this machine from the HTML of an output: links to files, and folders.

    Parameters
    ----------
    output : NotebookNode
        The output, which is changed.
    home, folder : str
        Folder of the jobs, and of the notebook.
    """
    data = output.get("data", {})
    if "text/html" in data:
        html = _FILE_LINK.sub(r"\1", data["text/html"])
        html = html.replace(home, "~/.local/state/hyperplane")
        data["text/html"] = html.replace(f"{folder}/", "")


def is_reproducible(output: Any) -> bool:
    """Return whether an output of a cell appears on every machine.

    Lines on standard error and notes differ. A progress bar, and the output that replaces it at its
    end, appear only if the cell takes longer than two seconds.
    """
    data = output.get("data", {})
    is_note = output.get("metadata", {}) == NOTE_METADATA
    is_bar = "application/vnd.jupyter.widget-view+json" in data
    return (
        output.get("name") != "stderr"
        and not is_bar
        and not is_note
        and not is_end_of_progress(output)
    )


def is_end_of_progress(output: Any) -> bool:
    """Return whether an output is what replaces a progress bar at its end."""
    if output.output_type != "display_data":
        return False
    text = output.data.get("text/plain", "")
    return not text or _ENDED.match(text) is not None


if __name__ == "__main__":
    main(*sys.argv[1:])
