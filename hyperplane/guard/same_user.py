"""Refuse connections of other users of this machine to a cluster on its loopback address.

Every process of the machine can connect to that address, and Dask runs the code of every process
that does. Each server therefore asks Linux which user owns the other end before it reads a byte,
and each client which user owns the server: after a server has ended, other users can use its port.

The answer is that of the connection itself: as long as our end is established, no other connection
can have the same two addresses and ports. A socket without a process is refused, because Linux
reports root as its owner.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import socket
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from distributed.security import Security

from hyperplane.core.dask_internals.comms import (
    CheckedSecurity,
    check_connections,
    check_http_servers,
)
from hyperplane.platforms.local.socket_owners import (
    ESTABLISHED,
    find_listener,
    find_owner,
    read_state,
)

#: A child of Dask's logger, which writes to standard error, also in worker processes.
logger = logging.getLogger("distributed.comm.hyperplane")

_ROOT = 0
#: Errors of a system without this information; others may end.
_LASTING = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.EPROTONOSUPPORT})
#: Servers and users of refused connections that the log has; a user may connect very often.
_logged: set[tuple[int, int]] = set()


def same_user_security() -> Security:
    """Return the security of a cluster on the loopback address, where users can be compared."""
    reason = find_reason_unchecked()
    if reason is None:
        return CheckedSecurity(check_client, check_server)
    logger.warning("other users of this machine can connect to this cluster: %s", reason)
    return Security()


def check_dashboard(server: Any) -> None:
    """Make the HTTP server of a scheduler, on the loopback address, refuse other users."""
    if find_reason_unchecked() is None:
        check_connections(server.http_server, check_local_client)


def check_dashboards() -> None:
    """Make the HTTP servers that this process starts on the loopback address refuse other users."""
    if find_reason_unchecked() is None:
        check_http_servers(check_local_client)


def check_local_client(connection: socket.socket) -> None:
    """Do :func:`check_client` for a connection to the loopback address; permit all others."""
    if ip_address(connection.getsockname()[0]).is_loopback:
        check_client(connection)


def is_client_permitted(peer: tuple[str, int], server: tuple[str, int]) -> bool:
    """Return whether the process of this machine that has connected to a server may do so.

    The connection must be open, so that no other one has the same two addresses.
    """
    if find_reason_unchecked() is not None:
        return True  # no user can be refused, as with all other servers
    try:
        owner = find_owner(peer, server)
    except OSError:
        return False
    if owner is None or not owner.has_process or owner.state != ESTABLISHED:
        return False
    if not _is_permitted(owner.uid):
        _log_once(server[1], owner.uid)
        return False
    return True


def check_client(connection: socket.socket) -> None:
    """Raise an error if the process that has connected is not one of this user or of root.

    Raises
    ------
    PermissionError
        If it is a process of another user.
    ConnectionError
        If it is unknown, for example because it has closed the connection.
    OSError
        If Linux does not answer.
    """
    peer, server = connection.getpeername()[:2], connection.getsockname()[:2]
    owner = find_owner(peer, server)
    if owner is None or not owner.has_process or owner.state != ESTABLISHED:
        raise ConnectionAbortedError(f"no process of this machine has the connection from {peer}")
    if not _is_permitted(owner.uid):
        _log_once(server[1], owner.uid)
        raise PermissionError(f"user {owner.uid} may not connect to {server}")
    _check_still_connected(connection)


def check_server(connection: socket.socket) -> None:
    """Raise an error if the server at the other end is not one of this user or of root.

    Raises
    ------
    PermissionError, ConnectionError, OSError
        As for :func:`check_client`.
    """
    server, client = connection.getpeername()[:2], connection.getsockname()[:2]
    owner = find_owner(server, client)
    if owner is None or not owner.has_process:
        # Not accepted yet: the connection waits at the socket that listens.
        owner = find_listener(server)
    if owner is None:
        raise ConnectionAbortedError(f"no process of this machine listens on {server}")
    if not _is_permitted(owner.uid):
        raise PermissionError(
            f"the server at {server[0]}:{server[1]} belongs to user {owner.uid}, not to this user "
            f"({os.geteuid()}): the cluster has ended, and another program uses its port"
        )
    _check_still_connected(connection)


def find_reason_unchecked() -> str | None:
    """Return why users cannot be compared on this machine; None if they can."""
    if not sys.platform.startswith("linux"):
        return "the users of connections can be read on Linux only"
    try:
        return _find_lasting_reason()
    except OSError as error:
        # Not remembered: such as too many open files, which the next start may not have.
        return f"Linux does not report the users of connections here ({error})"


@functools.cache
def _find_lasting_reason() -> str | None:
    """Return why users cannot be compared while this process runs; raise a temporary OSError."""
    try:
        if _has_unmapped_user():
            return "all users that this user namespace does not map have the number of this user"
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as client,
        ):
            check_server(client)
            with server.accept()[0] as accepted:
                check_client(accepted)
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        return f"Linux does not report the users of connections here ({error})"
    return None


def _has_unmapped_user() -> bool:
    """Return whether this user has the number that Linux reports for users without one."""
    if os.geteuid() != int(Path("/proc/sys/kernel/overflowuid").read_text()):
        return False
    first, _, count = Path("/proc/self/uid_map").read_text().split()[:3] or ("0", "0", "0")
    return (int(first), int(count)) != (0, 2**32 - 1)


def _is_permitted(uid: int) -> bool:
    return uid in (_ROOT, os.geteuid())


def _check_still_connected(connection: socket.socket) -> None:
    """Raise an error if the connection has ended: another one may have had its two ends since."""
    if read_state(connection) != ESTABLISHED:
        raise ConnectionAbortedError("the other end has closed the connection")


def _log_once(port: int, uid: int) -> None:
    # Without the name of the user, which a server of the network may have to look up.
    if (port, uid) not in _logged:
        _logged.add((port, uid))
        logger.warning(
            "refused a connection of user %d to port %d; only this user (%d) and root may connect. "
            "Further ones are refused without a message",
            uid,
            port,
            os.geteuid(),
        )
