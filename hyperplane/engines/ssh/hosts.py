"""Connections to the hosts of the ssh engine, and what goes wrong with them in plain words."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import asyncssh

from hyperplane.errors import StartFailed
from hyperplane.spec.settings import SshSettings
from hyperplane.units import plural

#: Seconds without a sign of life, times which number, after which a connection counts as lost.
KEEPALIVE, KEEPALIVE_COUNT = 15, 4
_SECTION = "hyperplane.engines.ssh"


class SshConnections:
    """One connection to each host, for all that is started there.

    Parameters
    ----------
    settings : SshSettings
        How to reach them.
    """

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._connections: dict[str, asyncssh.SSHClientConnection] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._closed = False
        #: What did not start on which host.
        self.faults: list[str] = []

    async def open(self, names: Iterable[str]) -> None:
        """Connect to all of them at once.

        Raises
        ------
        StartFailed
            With every host that could not be reached, and why.
        """
        wanted = list(dict.fromkeys(names))
        answers = await asyncio.gather(*map(self.connection, wanted), return_exceptions=True)
        faults = []
        for name, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, BaseException):
                faults.append(f"{name}: {explain_error(answer, self._settings)}")
        if faults:
            raise StartFailed(
                "ssh",
                f"{plural(len(faults), 'host')} of {len(wanted)} cannot be used, so nothing was "
                "started:\n  " + "\n  ".join(faults),
            )

    async def connection(self, name: str) -> asyncssh.SSHClientConnection:
        """The connection to a host, made anew when it is lost."""
        async with self._opening.setdefault(name, asyncio.Lock()):
            found = self._connections.get(name)
            if found is None or found.is_closed():
                found = await asyncssh.connect(name, **self._options())
                self._connections[name] = found
            if self._closed:  # meanwhile, as an interrupted start is undone
                found.abort()
                raise asyncssh.ConnectionLost("the cluster is closed")
            return found

    async def close(self) -> None:
        """Close every connection, and let none be made."""
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        for connection in self._connections.values():
            with contextlib.suppress(OSError, asyncssh.Error, asyncio.TimeoutError):
                await asyncio.wait_for(connection.wait_closed(), 5)
        self._connections.clear()

    def _options(self) -> dict[str, Any]:
        """The settings in asyncssh's words; what is not set is as in OpenSSH's own files."""
        settings = self._settings
        chosen = {
            "username": settings.username,
            "port": settings.port,
            "client_keys": [str(Path(key).expanduser()) for key in settings.client_keys],
            "known_hosts": settings.known_hosts and str(Path(settings.known_hosts).expanduser()),
        }
        return {
            "connect_timeout": settings.connect_timeout,
            "keepalive_interval": KEEPALIVE,
            "keepalive_count_max": KEEPALIVE_COUNT,
            **{name: value for name, value in chosen.items() if value},
        }


def explain_error(error: BaseException, settings: SshSettings) -> str:
    """What keeps a host away, and what to do about it."""
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        file = settings.known_hosts or "~/.ssh/known_hosts"
        return (
            f"its key is not in {file}, so it may be another machine; connect once with `ssh` "
            "and compare the fingerprint, or add its line from whoever runs it"
        )
    if isinstance(error, asyncssh.PermissionDenied):
        keys = ", ".join(settings.client_keys) or "the keys of ~/.ssh and of the agent"
        user = settings.username or "you"
        return (
            f"it does not let {user} in with {keys}; try `ssh` in a terminal, or set "
            f"{_SECTION}.username and .client_keys"
        )
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return (
            f"no answer within {settings.connect_timeout:g} s; is the machine up and the port "
            f"open? Look at {_SECTION}.hosts and .port"
        )
    if isinstance(error, asyncssh.KeyImportError | asyncssh.KeyEncryptionError):
        return f"a key cannot be read: {error}; look at {_SECTION}.client_keys"
    if isinstance(error, socket.gaierror):
        return f"nobody knows the name ({error.strerror}); look at {_SECTION}.hosts"
    if isinstance(error, ConnectionError | asyncssh.ConnectionLost | asyncssh.ProtocolError):
        port = settings.port or 22
        said = getattr(error, "strerror", None) or error
        return f"no ssh at port {port} ({said}); look at {_SECTION}.port"
    if isinstance(error, OSError | asyncssh.Error):
        return f"{error or type(error).__name__}; look at {_SECTION}.{_setting(error, settings)}"
    raise error


def _setting(error: BaseException, settings: SshSettings) -> str:
    """The setting that an error is about."""
    file = getattr(error, "filename", None)
    if file is None:
        return "hosts"
    known = settings.known_hosts and str(Path(settings.known_hosts).expanduser())
    return "known_hosts" if str(file) == known else "client_keys"
