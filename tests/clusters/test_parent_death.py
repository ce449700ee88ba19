"""A process ends with its parent, also one that holds the interpreter's lock."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hyperplane.clusters.dask import parent_death

ROOT = Path(__file__).parents[2]
CHILD = """
import os, sys
from hyperplane.clusters.dask.parent_death import end_with_parent
parent = os.getppid()
end_with_parent(lambda: os.getppid() == parent)
print(os.getpid(), flush=True)
sum(range(10**12))  # in C: the interpreter is held
"""
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.process
def test_a_process_that_holds_the_gil_ends_with_its_parent() -> None:
    words = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not _gone(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while not _gone(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.process
def test_a_process_whose_parent_has_ended_before_ends_at_once() -> None:
    program = CHILD.replace("lambda: os.getppid() == parent", "lambda: False")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -9


def test_a_refusal_of_the_kernel_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def prctl(self, *arguments: object) -> int:
            ctypes.set_errno(1)
            return -1

    monkeypatch.setattr(parent_death.ctypes, "CDLL", lambda name, use_errno: Library())
    with pytest.raises(OSError, match="PR_SET_PDEATHSIG"):
        parent_death.end_with_parent(lambda: True)


@pytest.mark.cluster
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux")
def test_a_forkserver_that_imports_modules_ends_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importing = tmp_path / "importing"
    slow = (
        "import os, pathlib, sys, time\n"
        "if 'forkserver' in ' '.join(sys.orig_argv):  # the owner imports the modules, too\n"
        f"    pathlib.Path({str(importing)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    (tmp_path / "slow_to_import.py").write_text(slow, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setenv("DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD", "['slow_to_import']")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = (
        "import hyperplane\n"
        "hyperplane.initialize_cluster(num_workers=1, nprocs=1, ram_gb_per_proc=0.5)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL) as owner:
        deadline = time.monotonic() + 120
        while not importing.exists() or not importing.read_text():
            assert owner.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        forkserver = int(importing.read_text())
        assert not _gone(forkserver)
        owner.kill()
    deadline = time.monotonic() + 30
    while not _gone(forkserver):
        assert time.monotonic() < deadline
        time.sleep(0.05)
