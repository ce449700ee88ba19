"""Run code as another user of this machine; skip the test without permission."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: IDs of two other users.
OTHER, ONE_MORE = 65534, 65533


def as_other_user(work: Callable[[], object]) -> str:
    """Run a function in a process of another user; return its result or its traceback."""
    if os.getuid() != 0:
        pytest.skip("needs the right to become another user")
    outer, inner = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            text = str(work())
        except BaseException:  # noqa: BLE001 - passed to the test
            text = traceback.format_exc()
        os.write(inner, text.encode())
        os._exit(0)
    os.close(inner)
    with os.fdopen(outer) as opened:
        text = opened.read()
    os.waitpid(child, 0)
    return text


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder that all users can use, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def program_of(user: int, *words: str, **options: object) -> subprocess.Popen[str]:
    """Start a Python program as a user, with the packages of this process."""
    python = _python_of_all()
    return subprocess.Popen(
        [*_become(user), python, *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,  # type: ignore[call-overload]
    )


def _become(user: int) -> list[str]:
    # With env, because setpriv itself finds its program with the permissions of this process.
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env"]


def _python_of_all() -> str:
    """Return a Python interpreter of this version that other users can run."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs the right to become another user")
    usual = f"/usr/bin/python3.{sys.version_info.minor}"
    for python in (sys.executable, usual):
        words = [*_become(OTHER), python, "-c", "import dask"]
        known = {"PYTHONPATH": os.pathsep.join(sys.path)}
        try:
            if subprocess.run(words, env=known, capture_output=True, check=False).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip("needs an interpreter that other users may run")
