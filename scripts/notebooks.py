"""Run all notebooks and store their outputs: ``make notebooks``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def main() -> None:
    """Run each notebook in an empty folder and write it with its new outputs."""
    for file in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        metadata = dict(notebook.metadata)  # running adds the version of Python
        with tempfile.TemporaryDirectory() as folder:
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
            if cell.cell_type == "code":  # lines on standard error differ between machines
                cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
        nbformat.write(notebook, file)


if __name__ == "__main__":
    main()
