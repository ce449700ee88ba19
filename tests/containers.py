"""Run containers: processes in separate host-name and process namespaces."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

_UNSHARE = ("unshare", "--uts", "--pid", "--mount", "--net", "--fork", "--mount-proc",
            "--kill-child")  # fmt: skip


@functools.cache
def _has_namespaces():
    try:
        return subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=250).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Container:
    """A container whose first process, with ID 1, runs a Python program.

    It shares the file systems of this machine.

    Parameters
    ----------
    name : str
        Its host name.
    program : str
        Program of the first process: it reads lines and prints one line for each.
    folder : path
        Working directory.
    variables : mapping of str to str
        Additional environment variables.
    """

    def __init__(self, name, program, folder, variables):
        if not _has_namespaces():
            pytest.skip("no right to make namespaces")
        first = f'hostname {name}; exec "{sys.executable}" -uc "$0"'
        self.process = subprocess.Popen(
            [*_UNSHARE, "bash", "-c", first, program],
            cwd=folder, env={**os.environ, **variables}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def send(self, expression):
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()

    def heard(self):
        return self.process.stdout.readline().strip()

    def ask(self, expression):
        self.send(expression)
        return self.heard()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
