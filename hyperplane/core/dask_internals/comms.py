"""Checks of TCP connections of distributed's servers and clients before they read a byte.

Distributed chooses how it connects by the scheme of an address, and has no interface for a check of
one cluster: the handshake, which may contain pickled objects, is read before a server is asked. A
:class:`CheckedSecurity` therefore marks the connections of its cluster, and this module replaces
distributed's ``tcp`` and ``tls``, also in worker processes, which import it when they unpickle that
object. Connections without the mark are distributed's own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import wraps
from typing import Any

from distributed.comm.core import FatalCommClosedError
from distributed.comm.registry import backends
from distributed.comm.tcp import (
    BaseTCPConnector,
    BaseTCPListener,
    TCPBackend,
    TCPConnector,
    TCPListener,
    TLSBackend,
    TLSConnector,
    TLSListener,
)
from distributed.node import ServerNode
from distributed.security import Security
from tornado.iostream import IOStream
from tornado.tcpserver import TCPServer

__all__ = ["CheckedSecurity", "check_connections", "check_http_servers"]

#: A check of a connected socket. It raises a PermissionError to refuse the connection, and another
#: OSError if the same connection may be permitted later.
SocketCheck = Callable[[socket.socket], None]

_MARK = "hyperplane_check"
#: Check of the HTTP servers of this process; at most one.
_http_checks: list[SocketCheck] = []


class CheckedSecurity(Security):
    """Security that checks every connection before it is used; TLS only if Dask is so configured.

    Parameters
    ----------
    check_client : callable
        Check of a connection that a server has accepted, also one to its dashboard. It is pickled
        with this object.
    check_server : callable
        Check of a connection to a server.
    """

    def __init__(self, check_client: SocketCheck, check_server: SocketCheck) -> None:
        super().__init__()
        self.check_client = check_client
        self.check_server = check_server

    def get_listen_args(self, role: str) -> dict[str, Any]:
        """Return the arguments with which a server listens."""
        return {**super().get_listen_args(role), _MARK: self.check_client}

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Return the arguments with which a process connects."""
        return {**super().get_connection_args(role), _MARK: self.check_server}


def check_connections(server: TCPServer, check: SocketCheck) -> None:
    """Make a server close connections that fail the check, instead of reading from them."""
    handle = server.handle_stream

    def checked(stream: IOStream, address: Any) -> Any:
        try:
            check(stream.socket)
        except OSError:
            stream.close()
            return None
        return handle(stream, address)

    server.handle_stream = checked  # type: ignore[method-assign]


def check_http_servers(check: SocketCheck) -> None:
    """Make the HTTP servers that this process starts from now on check their connections."""
    _http_checks[:] = [check]


class _ListenerCheck(BaseTCPListener):
    def __init__(self, *args: Any, **connection_args: Any) -> None:
        self._check = connection_args.pop(_MARK, None)
        super().__init__(*args, **connection_args)

    async def start(self) -> None:
        await super().start()
        if (
            self._check is not None and self.tcp_server is not None
        ):  # before the event loop accepts the first connection
            check_connections(self.tcp_server, self._check)


class _ConnectorCheck(BaseTCPConnector):
    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> Any:
        check = connection_args.pop(_MARK, None)
        comm = await super().connect(address, deserialize, **connection_args)
        if check is not None:
            try:
                check(comm.stream.socket)
            except OSError as error:
                comm.abort()
                if isinstance(error, PermissionError):
                    # Distributed repeats after any other error, until its timeout.
                    raise FatalCommClosedError(str(error)) from error
                raise
        return comm


class _TCPListener(_ListenerCheck, TCPListener): ...


class _TCPConnector(_ConnectorCheck, TCPConnector): ...


class _TLSListener(_ListenerCheck, TLSListener): ...


class _TLSConnector(_ConnectorCheck, TLSConnector): ...


class _TCPBackend(TCPBackend):
    _connector_class = _TCPConnector
    _listener_class = _TCPListener


class _TLSBackend(TLSBackend):
    _connector_class = _TLSConnector
    _listener_class = _TLSListener


def _check_http(start: Callable[..., None]) -> Callable[..., None]:
    """Return ``start_http_server`` with the check of the server's security, or of the process."""

    @wraps(start)
    def start_http_server(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        if isinstance(self.security, CheckedSecurity):
            check_connections(self.http_server, self.security.check_client)
        elif _http_checks:
            check_connections(self.http_server, _http_checks[-1])

    setattr(start_http_server, _MARK, True)
    return start_http_server


def _install() -> None:
    backends["tcp"], backends["tls"] = _TCPBackend(), _TLSBackend()
    # Not an override in subclasses: nannies create workers of Dask's and other packages' classes.
    if not hasattr(ServerNode.start_http_server, _MARK):  # this module may be reloaded
        checked = _check_http(ServerNode.start_http_server)
        ServerNode.start_http_server = checked  # type: ignore[method-assign]


_install()
