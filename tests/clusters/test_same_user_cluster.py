"""A real second user of this machine attacks a local cluster."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import dask.config
import psutil
import pytest
from distributed import Client
from distributed.security import Security
from scale import FULL
from services import temporary_directory
from subprograms import FEW_IMPORTS, READ_PORTS, SOON, wait_until
from users import OTHER, as_other_user, program_of

import hyperplane
from hyperplane.clusters.dask.remote_process import as_settings, key_pair
from hyperplane.clusters.record_folders import record_folder

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux reports the users of connections"),
]

#: What a second user would do: run code as the user of the cluster.
RUN = """
import os, sys
from distributed import Client
try:
    with Client(sys.argv[1], timeout=sys.argv[2], set_as_default=False) as client:
        print("ran as", client.submit(os.getuid).result(60), client.run_on_scheduler(os.getuid))
except OSError as error:
    print("refused:", type(error).__name__)
"""
#: The same user, in another process with the functions of this package.
ATTACH = """
import hyperplane
client, cluster = hyperplane.get_cluster("shared")
print(type(client.security).__name__, client.submit(sum, [1, 2]).result())
client.close()
cluster.detach()
"""


class Started(NamedTuple):
    client: Client
    cluster: Any
    folder: str  # with the record of the cluster; each test has another one

    def ports(self) -> dict[str, int]:
        """Every port of the cluster."""
        scheduler = self.cluster.scheduler
        ports = {"scheduler": scheduler.port, "dashboard": scheduler.http_server.port}
        for number, worker in enumerate(scheduler.workers.values()):
            for name, address in (("worker", worker.address), ("nanny", worker.nanny)):
                ports[f"{name} {number}"] = int(address.rpartition(":")[2])
            ports[f"dashboard of worker {number}"] = worker.services["dashboard"]
        return ports


def _start(name: str) -> Started:
    plan = hyperplane.plan_cluster(
        engine="local", num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5,
        local_fit="exact", name=name,
    )  # fmt: skip
    return Started(*hyperplane.start(plan), tempfile.gettempdir())


@pytest.fixture(scope="module")
def shared() -> Iterator[Started]:
    with pytest.MonkeyPatch.context() as patch, temporary_directory():
        for name, value in FEW_IMPORTS.items():
            patch.setenv(name, value)
        started = _start("shared")
        with started.cluster, started.client:
            yield started


def _read_as(user: int, ports: dict[str, int]) -> dict[str, Any]:
    with program_of(user, "-c", READ_PORTS, *map(str, ports.values())) as program:
        output, _ = program.communicate(timeout=240)
    return dict(zip(ports, json.loads(output), strict=True))


def _run_as(user: int, address: str, timeout: str = "2s") -> str:
    settings = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/nonexistent"}
    with program_of(user, "-c", RUN, address, timeout, cwd="/", env=settings) as program:
        output: str = program.communicate(timeout=240)[0]
    return output.splitlines()[-1]


def _check_works(client: Client) -> None:
    assert client.submit(lambda number: number + 1, 1, pure=False).result(timeout=120) == 2


def test_another_user_reads_nothing_from_any_port(shared: Started) -> None:
    before = shared.ports()
    assert len(before) == 2 + 3 * 2
    refused = _read_as(OTHER, before)
    assert set(refused.values()) <= {0, "ConnectionResetError"}, refused

    shared.client.restart(timeout=240)
    shared.cluster.scale(3)
    shared.client.wait_for_workers(3, timeout=240)
    after = shared.ports()
    assert len(after) == 2 + 3 * 3
    refused = _read_as(OTHER, after)
    assert set(refused.values()) <= {0, "ConnectionResetError"}, refused
    permitted = _read_as(os.getuid(), after)
    assert all(isinstance(count, int) and count > 0 for count in permitted.values()), permitted
    _check_works(shared.client)


def test_another_user_runs_no_code(shared: Started) -> None:
    assert _run_as(OTHER, shared.client.scheduler.address).startswith("refused: ")
    _check_works(shared.client)


@pytest.mark.usefixtures("few_imports")
@pytest.mark.skipif(not FULL, reason="shows that the next tests can fail: at full scale")
def test_without_the_check_another_user_runs_code() -> None:
    with dask.config.set({"hyperplane.engines.local.security": "none"}):
        started = _start("open")
    with started.cluster, started.client:
        output = _run_as(OTHER, started.client.scheduler.address, "60s")
        with _canary() as canary:
            wait_until(lambda: _send_pickle(started, canary) or canary.exists(), SOON)
    assert output == f"ran as {os.getuid()} {os.getuid()}"


def test_the_same_user_connects_from_other_processes_and_tasks(shared: Started) -> None:
    def nested() -> int:
        from distributed import get_client

        return int(get_client().submit(sum, [1, 2]).result())

    assert shared.client.submit(nested).result(timeout=120) == 3
    with Client(shared.client.scheduler.address, set_as_default=False) as plain:
        _check_works(plain)
    done = subprocess.run(
        [sys.executable, "-c", ATTACH],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": shared.folder},
    )
    assert done.stdout == "CheckedSecurity 3\n", done.stderr


def test_a_handshake_of_another_user_is_not_unpickled(shared: Started) -> None:
    with _canary() as canary:
        _send_pickle(shared, canary)
        _check_works(shared.client)
        assert not canary.exists()


@contextmanager
def _canary() -> Iterator[Path]:
    """Yield the path of a folder that only an attack creates."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "canary"


def _send_pickle(started: Started, canary: Path) -> None:
    """Send a pickled handshake to each server of a cluster, as another user."""
    frames = _pickled_handshake(canary)
    ports = [port for name, port in started.ports().items() if "dashboard" not in name]

    def attack() -> object:
        for port in ports:
            with closing(socket.create_connection(("127.0.0.1", port), timeout=1)) as client:
                client.sendall(frames)
                with suppress(OSError):  # until the server closes the connection, or waits
                    while client.recv(1000):
                        pass
        return "done"

    assert as_other_user(attack) == "done"


def _pickled_handshake(canary: Path) -> bytes:
    """Return a message of Dask's protocol whose pickled part creates a file."""
    from distributed.protocol import dumps, to_serialize

    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(canary),)

    frames = dumps({"harm": to_serialize(Harm())}, context={"python": sys.version_info[:3]})
    lengths = [memoryview(frame).nbytes for frame in frames]
    body = struct.pack(f"<Q{len(frames)}Q", len(frames), *lengths) + b"".join(map(bytes, frames))
    return struct.pack("<Q", len(body)) + body


def test_connections_of_another_user_do_not_stay_open(shared: Started) -> None:
    port = shared.ports()["scheduler"]
    before = psutil.Process().num_fds()

    def attack() -> object:
        with ExitStack() as opened:
            clients = [
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(200)
            ]
            for client in clients:
                client.settimeout(60)
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""
            return "done"

    assert as_other_user(attack) == "done"
    _check_works(shared.client)
    assert psutil.Process().num_fds() < before + 50


@pytest.mark.parametrize("sent", [b"", b"\xff" * 64, b"GET / HTTP/1.0\r\n\r\n", bytes(64)])
def test_a_malformed_handshake_of_the_same_user_harms_no_other_connection(
    shared: Started, sent: bytes
) -> None:
    for port in shared.ports().values():
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
            client.sendall(sent)
    _check_works(shared.client)


def test_no_port_listens_on_another_address(shared: Started) -> None:
    ports = shared.ports()
    for name, port in ports.items():
        for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.2")):
            with socket.socket(family) as client:
                assert client.connect_ex((address, port)) != 0, name


def test_another_user_reads_no_record(shared: Started) -> None:
    folders = [Path(shared.folder), record_folder(), Path(shared.cluster.scheduler.local_directory)]

    def read() -> object:
        found = []
        for folder in folders:
            with suppress(OSError):
                found += list(folder.iterdir())
        return found

    assert as_other_user(read) == "[]"


@pytest.mark.usefixtures("few_imports")
def test_keys_of_dask_also_protect_a_local_cluster(tmp_path: Path) -> None:
    keys = {}
    for name, text in key_pair(Security.temporary()).items():
        file = tmp_path / name
        file.write_text(text)
        keys[name] = str(file)
    with dask.config.set(as_settings(keys)):
        started = _start("keys")
        with started.cluster, started.client:
            assert started.client.scheduler.address.startswith("tls://")
            _check_works(started.client)
            refused = _read_as(OTHER, started.ports())
    assert set(refused.values()) <= {0, "ConnectionResetError"}, refused


def test_the_dashboard_answers_this_user(shared: Started) -> None:
    with urllib.request.urlopen(shared.client.dashboard_link, timeout=120) as page:
        assert page.status == 200
