"""The program with the nodes of a cluster ends with its owner, also while a node starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from services import until

from hyperplane.clusters.local_nodes import node_program

pytestmark = pytest.mark.process

#: Starts a process, and waits as libraries do for one that does not answer.
GROUP = """
import subprocess, time

class SlowGroup:
    def __init__(self, report):
        self.report, self.process = report, None

    def handle(self, request):
        self.process = subprocess.Popen(["sleep", "300"])
        self.report(event="starting", pid=self.process.pid)
        while True:
            time.sleep(0.1)

    def check(self):
        return True

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
"""
OWNER = """
import json, os, subprocess, sys, time
program, package, folder = sys.argv[1:]
started = subprocess.Popen(
    [sys.executable, "-P", program, str(os.getpid()), package, "slow.group:SlowGroup"],
    stdin=subprocess.PIPE, text=True, process_group=0,
)
print(json.dumps({"event": "program", "pid": started.pid}), flush=True)
print(json.dumps({"folder": folder}), file=started.stdin, flush=True)
time.sleep(300)
"""


def test_it_ends_with_its_owner_while_a_node_starts(tmp_path: Path) -> None:
    package, folder = tmp_path / "slow", tmp_path / "cluster"
    package.mkdir()
    folder.mkdir()
    (package / "group.py").write_text(GROUP)
    command = [sys.executable, "-c", OWNER, node_program.__file__, str(package), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [json.loads(owner.stdout.readline())["pid"] for _ in range(2)]
        processes = [psutil.Process(pid) for pid in pids]
        os.kill(owner.pid, signal.SIGKILL)
    try:
        until(lambda: not any(each.is_running() for each in processes), 30)
        assert not folder.exists()
    finally:
        for each in processes:
            if each.is_running():
                each.kill()
