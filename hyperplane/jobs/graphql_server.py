"""Address and token of the running GraphQL server, in a file and in the environment of steps.

``hyperplane ui`` writes the file, keeps it locked while it runs, and removes it at its end. The
file of a killed server has no lock, so that programs do not send their queries to the process that
uses its port next.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from hyperplane.core.errors import JobStoreError
from hyperplane.jobs.store.jobs_home import jobs_folder
from hyperplane.platforms.local.file_locks import is_locked, lock_if_abandoned, try_lock
from hyperplane.platforms.local.process_identity import running_system

#: Documented variable with the address, which contains the token; and one with the token alone.
URL_VARIABLE = "HYPERPLANE_GRAPHQL_URL"
TOKEN_VARIABLE = "HYPERPLANE_GRAPHQL_TOKEN"  # noqa: S105 - a name
#: Path of the server, and the user name in its address, which is not compared.
PATH, USER = "/graphql", "hyperplane"
#: Header of the response to a query that was refused because the server answers too many others.
NOT_EXECUTED = "hyperplane-not-executed"
_HOST = "127.0.0.1"
#: Largest file of a server.
_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class GraphqlServer:
    """A running server of this user on this machine.

    Parameters
    ----------
    port : int
        Port of the loopback address.
    token : str
        The token that its requests need.
    """

    port: int
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        """Address with the token, for programs that send no header with it."""
        return f"http://{USER}:{self.token}@{_HOST}:{self.port}{PATH}"

    @property
    def variables(self) -> dict[str, str]:
        """Variables for a program that uses the server."""
        return {URL_VARIABLE: self.url, TOKEN_VARIABLE: self.token}


@contextlib.contextmanager
def publish_server(server: GraphqlServer) -> Iterator[Path]:
    """Write the file of a server for a block; yield its path.

    Raises
    ------
    JobStoreError
        If the folder of the jobs cannot be used.
    """
    file = jobs_folder() / f"{_file_prefix()}{server.port}.json"
    document = {"url": server.url, "token": server.token, "port": server.port,
                "system": running_system()}  # fmt: skip
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft")
    try:
        _remove_abandoned()
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as opened:
            json.dump(document, opened)
        lock = try_lock(draft)  # the file keeps the lock when it is renamed
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        cause = f"cannot be written ({error.strerror})"
        raise JobStoreError(str(file), cause, passing=False) from error
    try:
        yield file
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                # Not that of a container with the same host name and port.
                if os.path.samestat(os.fstat(lock.fileno()), file.stat()):
                    file.unlink()
            lock.close()


def find_server() -> GraphqlServer | None:
    """Return the newest server of this user on this machine; None if none runs."""
    found: list[tuple[float, GraphqlServer]] = []
    for file in _list_files():
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            document = json.loads(_read_file(file))
            if document["system"] == running_system() and is_locked(file):
                server = GraphqlServer(int(document["port"]), str(document["token"]))
                found.append((file.stat().st_mtime, server))
    return max(found, key=itemgetter(0))[1] if found else None


def without_server(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a server that this package has set.

    Their values are valid as long as the server runs, which a job may outlive.
    """
    token, url = environment.get(TOKEN_VARIABLE), environment.get(URL_VARIABLE, "")
    if not token or not url.startswith(f"http://{USER}:{token}@{_HOST}:"):
        return dict(environment)
    ours = {URL_VARIABLE, TOKEN_VARIABLE}
    return {name: value for name, value in environment.items() if name not in ours}


def _read_file(file: Path) -> bytes:
    """Return the content of the file of a server.

    Raises
    ------
    ValueError
        If it is no regular file, whose end may never come, or is too large.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise ValueError(f"{file} is no file of a server")
        return opened.read(_MAX_BYTES)


def _file_prefix() -> str:
    """Return the beginning of the names of files of this machine: others may share the home."""
    return f"graphql-{socket.gethostname().replace('/', '_')}-"


def _list_files() -> list[Path]:
    prefix = _file_prefix()
    try:
        files = list(jobs_folder().iterdir())
    except (OSError, JobStoreError):
        return []
    ports = {file: file.name.removeprefix(prefix).removesuffix(".json") for file in files}
    return [file for file, port in ports.items()
            if port.isdigit() and file.name == f"{prefix}{port}.json"]  # fmt: skip


def _remove_abandoned() -> None:
    """Remove the files of servers that were killed."""
    for file in _list_files():
        with contextlib.suppress(OSError), lock_if_abandoned(file) as is_abandoned:
            if is_abandoned:
                file.unlink()
