"""The program on hosts of the ssh engine, by its name and by that of version 0.1.0."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hyperplane
from hyperplane.clusters.dask.ssh.nodes import PROGRAM, HostServer
from hyperplane.errors import StartFailed
from hyperplane.spec.settings import SshSettings

#: What a cluster of version 0.1.0 sends to the host of one more node.
OF_NODE = {
    "role": "worker",
    "scheduler": "tcp://127.0.0.1:1",
    "names": ["node-2"],
    "place": 0,
    "ngpus": 0,
    "ram": 10**18,
    "settings": {},
    "tls": {},
    "variables": {"MALLOC_TRIM_THRESHOLD_": "65536"},
    "options": {"interface": None, "preload": ["hyperplane.engines.parent_death"]},
}


@pytest.mark.process
@pytest.mark.parametrize("module", [PROGRAM, "hyperplane.engines.ssh.process"])
def test_the_program_reads_a_configuration_and_replies(module: str) -> None:
    with start_program(module) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(OF_NODE) + "\n")
        process.stdin.flush()
        reply = json.loads(process.stdout.readline())
        assert process.wait(120) == 1
    assert reply["fault"].startswith("its processes need 1000 PB together")


def start_program(module: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.process
def test_the_program_ends_without_a_reply_if_the_connection_is_lost_meanwhile() -> None:
    with start_program(PROGRAM) as process:
        out, _ = process.communicate(json.dumps(OF_NODE) + "\n", timeout=120)
    assert (process.returncode, out) == (1, "")


async def _start_on_host(exit_status: int, output: str) -> None:
    """Start a worker on a host where the program ends; ``output`` is that of the version query."""

    async def run(command: str) -> Any:
        assert command.startswith("/opt/python -c ")
        return SimpleNamespace(exit_status=exit_status, stdout=output)

    async def connection(host: str) -> Any:
        return SimpleNamespace(run=run)

    async def start(configuration: Any) -> None:
        pass

    async def read_reply() -> dict[str, Any]:
        return {}

    faults: list[str] = []
    server = HostServer(
        SimpleNamespace(connection=connection, settings=SshSettings()),  # type: ignore[arg-type]
        "node1", "/opt/python", 60.0, time.monotonic() + 60, {"role": "worker"}, faults,
    )  # fmt: skip
    server.process = SimpleNamespace(  # type: ignore[assignment]
        start=start, read_reply=read_reply, log=[], explain_failure=lambda: "no dask"
    )
    try:
        await server.start()
    finally:
        assert len(faults) == 1


@pytest.mark.parametrize("greeting", ["", "Welcome to node1\n"])
def test_an_older_version_on_the_host_is_named(greeting: str) -> None:
    with pytest.raises(StartFailed) as caught:
        asyncio.run(_start_on_host(0, f"{greeting}0.1.0\n"))
    here = hyperplane.__version__
    assert str(caught.value) == (
        f"engine ssh: node1: /opt/python on the host has hyperplane 0.1.0, but this machine has "
        f"{here}; install {here} there, or set hyperplane.engines.ssh.python to a Python that has "
        "it"
    )


@pytest.mark.parametrize(("exit_status", "output"), [(1, ""), (0, hyperplane.__version__)])
def test_without_another_version_the_log_gives_the_reason(exit_status: int, output: str) -> None:
    with pytest.raises(StartFailed, match="node1: no dask"):
        asyncio.run(_start_on_host(exit_status, output))
