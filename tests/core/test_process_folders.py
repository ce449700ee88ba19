"""Folders that are removed with the process that created them, and not with its forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, os, sys, weakref
from hyperplane.core.process_folders import remove_folder

class Model: pass

model = Model()
kept, held = sys.argv[1:]
atexit.register(remove_folder, kept, os.getpid())
weakref.finalize(model, remove_folder, held, os.getpid())
child = os.fork()
if child == 0:
    del model
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
print(os.path.isdir(kept), os.path.isdir(held))
del model
print(os.path.isdir(kept), os.path.isdir(held))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_the_end_of_a_fork_keeps_the_folders_of_its_parent(tmp_path: Path) -> None:
    folders = [tmp_path / "kept", tmp_path / "held"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").touch()
    command = [sys.executable, "-c", PROGRAM, *map(str, folders)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.split("\n")[:2] == ["True True", "True False"]
    assert not any(folder.exists() for folder in folders)
