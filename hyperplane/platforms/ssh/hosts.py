"""Connections to hosts, and explanations of their errors."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import asyncssh

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.core.units import plural
from hyperplane.spec.settings import HostSettings

#: Seconds between keepalive messages, and how many may stay unanswered on a live connection.
_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT = 15, 4
#: Seconds that a connection may take to close.
_CLOSE_TIMEOUT_SECONDS = 5.0


class HostConnectionError(PlatformError):
    """Hosts cannot be reached; the message names each of them with the reason and advice.

    Parameters
    ----------
    faults : mapping
        Host -> reason and advice.
    count : int
        Number of hosts that were contacted.
    """

    def __init__(self, faults: Mapping[str, str], count: int) -> None:
        title = f"{plural(len(faults), 'host')} of {count} cannot be used:"
        lines = [f"{host}: {reason}" for host, reason in faults.items()]
        super().__init__("ssh", "\n  ".join([title, *lines]))
        self.faults, self.count = faults, count


class SshConnections:
    """Connections to hosts, which the processes that are started there share.

    Parameters
    ----------
    settings : HostSettings
        How to log in.
    family : int
        Family of addresses, such as ``socket.AF_INET``; by default any.
    """

    def __init__(self, settings: HostSettings, family: int = socket.AF_UNSPEC) -> None:
        self.settings, self._family = settings, family
        self._connections: dict[tuple[str, int], asyncssh.SSHClientConnection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._closed = False

    async def open(self, names: Iterable[str]) -> None:
        """Connect to hosts concurrently.

        Raises
        ------
        HostConnectionError
            If hosts cannot be reached.
        """
        hosts = list(dict.fromkeys(names))
        results = await asyncio.gather(*map(self.connection, hosts), return_exceptions=True)
        faults = {
            name: explain_error(result, self.settings)
            for name, result in zip(hosts, results, strict=True)
            if isinstance(result, BaseException)
        }
        if faults:
            raise HostConnectionError(faults, len(hosts))

    async def connection(self, name: str, number: int = 0) -> asyncssh.SSHClientConnection:
        """Return the connection to a host; open it if there is none or if it was lost.

        Connections to the same host have different numbers.
        """
        key = (name, number)
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.is_closed():
                connection = await asyncssh.connect(name, **self._options())
                self._connections[key] = connection
            if self._closed:  # by the cleanup of an interrupted start, while connecting
                connection.abort()
                raise asyncssh.ConnectionLost("the connections to all hosts are closed")
            return connection

    async def close(self, timeout: float = _CLOSE_TIMEOUT_SECONDS) -> None:
        """Close all connections and permit no new ones; wait for at most ``timeout`` seconds."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        closed = (asyncio.wait_for(connection.wait_closed(), timeout) for connection in connections)
        await asyncio.gather(*closed, return_exceptions=True)

    def _options(self) -> dict[str, Any]:
        """Return the settings as options of asyncssh, which reads others from OpenSSH's files."""
        settings = self.settings
        optional = {
            "username": settings.username,
            "port": settings.port,
            "client_keys": [str(Path(key).expanduser()) for key in settings.client_keys],
            "known_hosts": settings.known_hosts and str(Path(settings.known_hosts).expanduser()),
        }
        return {
            "connect_timeout": settings.connect_timeout,
            "family": self._family,
            "keepalive_interval": _KEEPALIVE_SECONDS,
            "keepalive_count_max": _KEEPALIVE_COUNT,
            **{name: value for name, value in optional.items() if value},
        }


def explain_error(error: BaseException, settings: HostSettings) -> str:
    """Return why a host cannot be reached, and what to do about it."""
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        file = settings.known_hosts or "~/.ssh/known_hosts"
        return (
            f"its host key is not in {file}, so it may be another machine; connect once with "
            "`ssh` and compare the fingerprint, or add the key that its administrator gives you"
        )
    if isinstance(error, asyncssh.PermissionDenied):
        keys = ", ".join(settings.client_keys) or "the keys of ~/.ssh and of the agent"
        user = settings.username or "you"
        return (
            f"permission denied for {user} with {keys}; try `ssh` in a terminal, or set "
            f"{settings.locate('username')} and {settings.locate('client_keys')}"
        )
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return (
            f"no answer within {settings.connect_timeout:g} s; is the machine up and the port "
            f"open? Check {settings.locate('hosts')} and {settings.locate('port')}"
        )
    if isinstance(error, asyncssh.KeyImportError | asyncssh.KeyEncryptionError):
        return f"a key cannot be read: {error}; check {settings.locate('client_keys')}"
    if isinstance(error, socket.gaierror):
        return f"unknown host name ({error.strerror}); check {settings.locate('hosts')}"
    if isinstance(error, ConnectionError | asyncssh.ConnectionLost | asyncssh.ProtocolError):
        port = settings.port or 22
        reason = getattr(error, "strerror", None) or error
        return f"no ssh server at port {port} ({reason}); check {settings.locate('port')}"
    if isinstance(error, OSError | asyncssh.Error):
        key = settings.locate(_setting_of(error, settings))
        return f"{error or type(error).__name__}; check {key}"
    raise error


def _setting_of(error: BaseException, settings: HostSettings) -> str:
    """Return the name of the setting that an error is about."""
    file = getattr(error, "filename", None)
    if file is None:
        return "hosts"
    known = settings.known_hosts and str(Path(settings.known_hosts).expanduser())
    return "known_hosts" if str(file) == known else "client_keys"
