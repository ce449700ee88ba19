"""Connections of other users are refused by the check of one connection."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from distributed.security import Security
from users import OTHER, as_other_user

from hyperplane.guard import same_user
from hyperplane.guard.same_user import (
    check_client,
    check_server,
    find_reason_unchecked,
    same_user_security,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux reports owners")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(same_user, "_logged", set())
    same_user._find_lasting_reason.cache_clear()
    yield
    same_user._find_lasting_reason.cache_clear()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


def _accept_from_other(
    server: socket.socket, connect: Callable[[], object]
) -> BaseException | None:
    """Return the error with which a connection of another user is refused."""
    errors: list[BaseException | None] = []

    def accept() -> None:
        with server.accept()[0] as accepted:
            try:
                check_client(accepted)
                errors.append(None)
            except OSError as error:
                errors.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    answer = as_other_user(connect)
    thread.join(60)
    assert answer == "done"
    assert len(errors) == 1
    return errors[0]


def test_the_same_user_may_connect_and_be_connected_to(server: socket.socket) -> None:
    with closing(socket.create_connection(server.getsockname())) as client:
        check_server(client)  # not accepted yet
        with closing(server.accept()[0]) as accepted:
            check_client(accepted)
            check_server(client)


@pytest.mark.process
def test_another_user_may_not_connect(
    server: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    address = server.getsockname()

    def connect() -> object:
        with closing(socket.create_connection(address)) as client:
            client.recv(1)
        return "done"

    for _ in range(3):
        assert isinstance(_accept_from_other(server, connect), PermissionError)
    assert [record.getMessage() for record in caplog.records] == [
        f"refused a connection of user {OTHER} to port {address[1]}; only this user "
        f"({os.geteuid()}) and root may connect. Further ones are refused without a message"
    ]


@pytest.mark.process
def test_a_user_namespace_hides_no_user(server: socket.socket) -> None:
    address = server.getsockname()
    program = (
        "import os, socket, sys;"
        "socket.create_connection((sys.argv[1], int(sys.argv[2]))).recv(1);"
        "print(os.getuid())"
    )

    def connect() -> object:
        words = ["unshare", "--user", "--map-root-user", sys.executable]
        words[-1] = f"/usr/bin/python3.{sys.version_info.minor}"
        words += ["-c", program, address[0], str(address[1])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return "done" if done.stdout == "0\n" else done.stderr

    try:
        subprocess.run(["unshare", "--user", "--map-root-user", "true"], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine permits no user namespaces")
    assert isinstance(_accept_from_other(server, connect), PermissionError)


@pytest.mark.process
def test_a_process_that_has_ended_is_not_root(server: socket.socket) -> None:
    # Linux reports root as the owner of a socket whose process has ended.
    address = server.getsockname()

    def connect() -> object:
        with closing(socket.create_connection(address)) as client:
            client.sendall(b"harm")
        return "done"

    assert as_other_user(connect) == "done"
    with server.accept()[0] as accepted:
        with pytest.raises(ConnectionAbortedError, match="no process of this machine has"):
            check_client(accepted)
        assert accepted.recv(4) == b"harm"  # which a server without the check would read


@pytest.mark.process
def test_a_port_of_this_user_does_not_permit_an_earlier_connection_from_it(
    server: socket.socket,
) -> None:
    address = server.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    reset = struct.pack("ii", 1, 0)

    def connect() -> object:
        with closing(socket.create_connection(address, source_address=("127.0.0.1", port))) as one:
            one.sendall(b"harm")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        return "done"

    assert as_other_user(connect) == "done"
    # The port is free again at once, and this user happens to get it.
    with closing(socket.create_connection(address, source_address=("127.0.0.1", port))):
        with server.accept()[0] as theirs, pytest.raises(OSError, match=r".") as error:
            check_client(theirs)
        assert not isinstance(error.value, PermissionError)
        with server.accept()[0] as ours:
            check_client(ours)


@pytest.mark.process
@pytest.mark.parametrize("accepts", [False, True])
def test_a_server_of_another_user(accepts: bool) -> None:
    read, write = os.pipe()
    ended, end = os.pipe()

    def serve() -> object:
        with socket.create_server(("127.0.0.1", 0)) as opened:
            os.write(write, b"%d\n" % opened.getsockname()[1])
            accepted = opened.accept()[0] if accepts else None
            if accepted is not None:
                accepted.sendall(b"accepted")
            os.read(ended, 1)
        return "done"

    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(as_other_user(serve)))
    if os.getuid() != 0:
        pytest.skip("needs the right to become another user")
    thread.start()
    try:
        with os.fdopen(read) as lines:
            port = int(lines.readline())
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            if accepts:
                assert client.recv(8) == b"accepted"
            with pytest.raises(PermissionError, match=f"belongs to user {OTHER}, not to this user"):
                check_server(client)
    finally:
        os.write(end, b".")
        thread.join(60)
        for opened in (write, ended, end):
            os.close(opened)
    assert results == ["done"]


def test_a_server_that_has_closed_the_connection(server: socket.socket) -> None:
    with closing(socket.create_connection(server.getsockname())) as client:
        server.accept()[0].close()
        server.close()
        with pytest.raises(ConnectionAbortedError):
            check_server(client)


def test_users_are_compared_on_this_machine() -> None:
    assert find_reason_unchecked() is None
    assert type(same_user_security()) is not Security


def test_a_machine_that_does_not_report_users_has_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def find(*ends: object) -> None:
        raise PermissionError(13, "Permission denied", "/proc/thread-self/net/tcp")

    monkeypatch.setattr(same_user, "find_owner", find)
    assert type(same_user_security()) is Security
    assert "other users of this machine can connect to this cluster: Linux does not" in caplog.text


def test_a_user_map_that_cannot_be_read_has_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> bool:
        raise PermissionError(13, "Permission denied", "/proc/sys/kernel/overflowuid")

    monkeypatch.setattr(same_user, "_has_unmapped_user", read)
    assert type(same_user_security()) is Security
    assert "overflowuid" in (find_reason_unchecked() or "")


def test_a_temporary_error_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*ends: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(same_user, "find_owner", find)
        assert "Too many open files" in (find_reason_unchecked() or "")
    assert find_reason_unchecked() is None


def test_another_system_has_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert type(same_user_security()) is Security
    assert "the users of connections can be read on Linux only" in caplog.text


@pytest.mark.process
def test_a_namespace_in_which_all_users_look_alike() -> None:
    program = (
        "from hyperplane.guard.same_user import find_reason_unchecked as f; print(f())"  # no map
    )
    words = ["unshare", "--user", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    if "unshare failed" in done.stderr:
        pytest.skip("this machine permits no user namespaces")
    assert done.stdout.startswith("all users that this user namespace does not map"), done.stderr
