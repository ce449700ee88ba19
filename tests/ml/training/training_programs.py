"""Training programs for the tests, and commands that run them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

#: Prints what it has received as one JSON line and exits with the code in its first argument.
DESCRIBE = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "HYPERPLANE_RANK")
config = json.loads(os.environ["TF_CONFIG"])
found = {"config": config, "argv": sys.argv[1:], "cwd": os.getcwd(),
         "ranks": {name: os.environ.get(name) for name in names}}
print(json.dumps(found), flush=True)
if config["task"].get("type", "chief") in ("chief", "master"):
    if "--hold" in sys.argv:
        import time; time.sleep(2)
    sys.exit(int(sys.argv[1]))
"""

#: Averages gradients over sockets without TensorFlow: parameter servers keep a weight each, workers
#: compute gradients for their share of the data, and the chief starts the steps.
SOCKETS = """
import json, os, socket, sys, time

config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
workers, servers = cluster["worker"], cluster["ps"]

def call(address, request):
    host, port = address.rsplit(":", 1)
    for _ in range(600):
        try:
            connection = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    with connection, connection.makefile("rw") as file:
        file.write(json.dumps(request) + "\\n")
        file.flush()
        return json.loads(file.readline())

def serve(answer):
    host, port = cluster[task["type"]][task["index"]].rsplit(":", 1)
    with socket.create_server((host, int(port))) as server:
        print("serving", flush=True)
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as file:
                file.write(json.dumps(answer(json.loads(file.readline()))) + "\\n")

DATA = [(x, 3.0 * x - 2.0) for x in range(-4, 5)]

if task["type"] == "ps":
    weight = [0.0]
    def answer(change):
        weight[0] += change
        return weight[0]
    serve(answer)
elif task["type"] == "worker":
    share = DATA[task["index"]::len(workers)]
    def answer(_):
        slope, intercept = (call(server, 0.0) for server in servers)
        errors = [(slope * x + intercept - y, x) for x, y in share]
        call(servers[0], -0.02 * sum(error * x for error, x in errors) / len(workers))
        call(servers[1], -0.02 * sum(error for error, _ in errors) / len(workers))
        return sum(error * error for error, _ in errors)
    serve(answer)
else:
    for _ in range(150):
        loss = sum(call(worker, None) for worker in workers)
    print(json.dumps([round(call(server, 0.0), 3) for server in servers]))
    sys.exit(0 if loss < 1e-6 else 1)
"""

#: Each process starts a child that has left its session, and records the IDs of both.
CHILDREN = """
import os, signal, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
folder = Path(sys.argv[1])
for pid in (os.getpid(), child.pid):
    (folder / f"{pid}.tmp").write_text("")
    (folder / f"{pid}.tmp").rename(folder / f"{pid}.pid")
if "--ends" in sys.argv and '"chief", "index"' in os.environ["TF_CONFIG"]:
    while len(list(folder.glob("*.pid"))) < int(sys.argv[-1]):
        time.sleep(0.05)
    if "--by-signal" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3)
if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


def write_program(folder: Path, text: str) -> Path:
    """Write the module ``trainer.task`` and return the folder of its package."""
    package = folder / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "task.py").write_text(text)
    return package


def command_line(package: Path, *options: str, arguments: Sequence[str] = ()) -> list[str]:
    script = "from hyperplane.cli import main; main()"
    options = ("--module-name", "trainer.task", "--package-path", str(package), *options)
    return [sys.executable, "-c", script, "train", *options, "--", *arguments]


def run_command(
    package: Path, *options: str, arguments: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    line = command_line(package, *options, arguments=arguments)
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def start_command(
    package: Path, *options: str, arguments: Sequence[str] = (), **popen: Any
) -> subprocess.Popen[str]:
    line = command_line(package, *options, arguments=arguments)
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.Popen(line, text=True, env=environment, start_new_session=True, **popen)


def find_free_ports(count: int) -> int:
    """Return the first of contiguous ports that are unused, outside the range of connections."""
    start = 12000 + os.getpid() % 400 * 25
    while not all(_is_free(port) for port in range(start, start + count)):
        start += count
    return start


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", port)) != 0


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def read_pids(folder: Path) -> list[int]:
    return [int(file.stem) for file in folder.glob("*.pid")]


def all_ended(pids: Sequence[int]) -> bool:
    return not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
