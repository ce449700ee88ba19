"""Files of the program that executes notebooks, for containers whose image may not have them."""

from __future__ import annotations

from pathlib import Path

from hyperplane.jobs import notebook
from hyperplane.jobs.notebook_steps import cell_errors, kernel_folder
from hyperplane.platforms.local import process_identity

#: The program comes first; the others are its modules, in the same folder.
PROGRAM_FILES = [
    Path(str(module.__file__))
    for module in (notebook, cell_errors, kernel_folder, process_identity)
]
