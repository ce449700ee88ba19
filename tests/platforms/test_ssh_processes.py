"""Plain programs on real hosts, without Dask: output, end, and loss of the connection."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from services import until
from services_ssh import HostNetwork, network, nothing_left, read_process_file, surroundings

from hyperplane.platforms.ssh.hosts import HostConnectionError, SshConnections
from hyperplane.platforms.ssh.processes import HostProcess, wrap_command
from hyperplane.spec.settings import SshSettings

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures

#: A program of Python with a configuration.
REPLYING = """
import os, sys, threading
from hyperplane.platforms.ssh import host_program

stop = threading.Event()
configuration = host_program.read_configuration()
host_program.end_with_connection(
    (lambda: None) if configuration["stays"] else stop.set,
    grace=1.0 if configuration["stays"] else 60.0,
)
print("of the program", flush=True)
host_program.send_reply(seen=os.environ["WORD"], secret=configuration["secret"])
stop.wait()
print("the end", flush=True)
"""


@asynccontextmanager
async def connected(network: HostNetwork, **options: Any) -> AsyncIterator[SshConnections]:
    connections = SshConnections(SshSettings(**{**network.settings(), **options}))
    try:
        yield connections
    finally:
        await connections.close()


async def wait_until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.05)


def test_output_and_exit_code_of_a_plain_program(network: HostNetwork) -> None:
    async def run() -> None:
        async with connected(network) as connections:
            text = 'echo "$1"; echo err >&2; cat; exit 3'
            argv = wrap_command(["sh", "-c", text, "sh", "two  words"])
            process = HostProcess(connections, network.address(1), argv)
            await process.start()
            await asyncio.wait_for(process.ended.wait(), 60)
            # The log may also have messages of the start files of the login shell.
            await wait_until(lambda: {"two  words", "err"} <= set(process.log))
            assert process.exit_code == 3
            await process.end()

    asyncio.run(run())


@pytest.mark.parametrize(
    "text", ["echo ready; sleep 600 & wait", "trap '' TERM; echo ready; sleep 600 & sleep 600"]
)
@pytest.mark.parametrize("how", ["end", "lose the connection"])
def test_a_plain_program_ends_with_its_connection(
    network: HostNetwork, text: str, how: str
) -> None:
    async def run() -> None:
        async with connected(network) as connections:
            process = HostProcess(connections, network.address(1), wrap_command(["sh", "-c", text]))
            await process.start()
            await wait_until(lambda: "ready" in process.log)  # the signal is ignored from here on
            await wait_until(lambda: len(network.processes(1)) >= 3)
            assert not process.ended.is_set()
            assert process.exit_code is None
            if how == "end":
                await process.end()
                code = process.exit_code
                assert code == 128 + (signal.SIGKILL if "trap" in text else signal.SIGTERM)
            else:
                (await connections.connection(network.address(1))).abort()
                await asyncio.wait_for(process.ended.wait(), 60)
                assert process.exit_code is None
            await wait_until(lambda: not network.processes(1))

    asyncio.run(run())


def test_a_plain_program_ends_when_its_starter_is_killed(network: HostNetwork) -> None:
    program = (
        "import asyncio, json, sys\n"
        "from hyperplane.platforms.ssh.hosts import SshConnections\n"
        "from hyperplane.platforms.ssh.processes import HostProcess, wrap_command\n"
        "from hyperplane.spec.settings import SshSettings\n"
        "async def run():\n"
        "    connections = SshConnections(SshSettings(**json.loads(sys.argv[1])))\n"
        "    command = wrap_command(['sleep', '600'])\n"
        "    await HostProcess(connections, sys.argv[2], command).start()\n"
        "    assert 'distributed' not in sys.modules\n"
        "    print('started', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(run())\n"
    )
    arguments = [json.dumps(network.settings()), network.address(2)]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        until(lambda: network.processes(2))
        os.kill(starter.pid, signal.SIGKILL)
    until(lambda: not network.processes(2))


@pytest.mark.parametrize("stays", [False, True])
def test_a_program_of_python_replies_and_ends_or_is_killed(
    network: HostNetwork, tmp_path: Path, stays: bool
) -> None:
    file = tmp_path / "replying.py"
    file.write_text(REPLYING)
    secret = "a secret, not in a process list"

    async def run() -> None:
        async with connected(network) as connections:
            process = HostProcess(connections, network.address(1), [sys.executable, str(file)])
            variables = {"WORD": "here", "PYTHONPATH": "unused"}
            await process.start({"secret": secret, "stays": stays, "variables": variables})
            reply = await asyncio.wait_for(process.read_reply(), 60)
            assert reply == {"seen": "here", "secret": secret}
            commands = [read_process_file(pid, "cmdline") for pid in network.processes(1)]
            assert any(commands)
            assert not any(secret.encode() in (command or b"") for command in commands)
            await process.end()
            assert process.exit_code == (1 if stays else 0)
            assert process.log.count("of the program") == 1
            assert ("the end" in process.log) is not stays

    asyncio.run(run())


@pytest.mark.parametrize(
    ("argv", "explanation"),
    [
        (["/no/such/python"], "there is no /no/such/python"),
        (
            [sys.executable, "-c", "import no_such_module.one"],
            "on the host has no no_such_module; install the same packages",
        ),
        (["false"], ""),
    ],
)
def test_a_program_that_does_not_start_is_explained(
    network: HostNetwork, argv: list[str], explanation: str
) -> None:
    async def run() -> None:
        async with connected(network) as connections:
            process = HostProcess(connections, network.address(1), argv)
            await process.start({"variables": {}})
            assert await asyncio.wait_for(process.read_reply(), 60) == {}
            found = process.explain_failure()
            assert explanation in found
            assert bool(explanation) is bool(found)
            await process.end()

    asyncio.run(run())


def test_hosts_that_cannot_be_reached_are_named(network: HostNetwork) -> None:
    there, away = network.address(1), network.address(88)

    async def run() -> None:
        async with connected(network, connect_timeout=15) as connections:
            await connections.open([there])
            with pytest.raises(HostConnectionError) as caught:
                await connections.open([there, away])
            assert list(caught.value.faults) == [away]
            assert str(caught.value).startswith(f"1 host of 2 cannot be used:\n  {away}: ")

    asyncio.run(run())
