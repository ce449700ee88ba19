"""The first contact with a store in a process: fail soon where nothing listens.

The libraries below ask an address at which nothing listens several times over, for 10 to 50 s and
without a line. So before the first request of a process one connection is opened to the address
of the store and closed again, where no proxy lies between. A line is printed once an answer takes
longer than :data:`QUIET` seconds.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hyperplane.stores.places import Store
from hyperplane.stores.secrets import shown

#: Seconds for which a server that starts beside its caller may still refuse connections.
STARTING = 2.0
#: Seconds without an answer before a line says so.
QUIET = 5.0
#: Seconds for one connection, between two of them, and for which a refusal is believed.
_CONNECT, _PAUSE, _BELIEVED = 3.0, 0.25, 2.0
_PORTS = {"http": 80, "https": 443}
_S3_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
#: Names of options that lead connections another way than the address says.
_DETOURS = ("proxy", "proxies", "connector", "session", "trust_env", "get_client")


class Address(NamedTuple):
    """Host and port of the server of a store."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class StoreUnreachable(ConnectionError):
    """Nothing listens at the address of a store, or its host name is not known."""


#: Stores and addresses that have answered this process.
_answered: set[str | Address] = set()
#: When, and with what, an address last refused a connection.
_refused: dict[Address, tuple[float, OSError]] = {}
_locks: defaultdict[Address, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def waiting(store: Store, url: str) -> Iterator[None]:
    """Do something with a store; its first contact fails soon, or prints that it takes long.

    Raises
    ------
    StoreUnreachable
        When nothing listens at the address of the store, or its name is not known.
    """
    if has_answered(store, url):
        yield
        return
    address = address_of(store, url)
    line = threading.Timer(QUIET, _tell, [shown(url)])
    line.daemon = True
    line.start()
    try:
        if address is not None:
            _reach(address)
        try:
            yield
        except (FileNotFoundError, FileExistsError):  # an answer, too
            _answered.add(_key(store, url))
            raise
        _answered.add(_key(store, url))
    finally:
        line.cancel()


def has_answered(store: Store, url: str) -> bool:
    """Whether a store has answered this process before; those of this machine always have."""
    return store.protocol in ("file", "memory") or _key(store, url) in _answered


def _key(store: Store, url: str) -> str | Address:
    return address_of(store, url) or "/".join(url.split("/", 3)[:3])


def address_of(store: Store, url: str) -> Address | None:
    """The server of a store; None when it is not known, or connections may take another way."""
    text = _endpoint(store, url)
    if text is None or _has_detour(store.options):
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # the library below says what is wrong with it
        return None
    if not host or port is None or _is_behind_proxy(parts.scheme, host):
        return None
    return Address(parts.scheme, host, port)


def _endpoint(store: Store, url: str) -> str | None:
    """The URL of the server, as far as the public properties of each file system tell it."""
    if store.protocol in ("http", "https"):
        return url
    system = store.system
    if store.protocol in ("s3", "s3a"):
        own = getattr(system, "endpoint_url", None)
        client = getattr(system, "client_kwargs", None) or {}
        found = [own, client.get("endpoint_url"), *map(os.environ.get, _S3_VARIABLES)]
        return next((str(one) for one in found if one), None)
    if store.protocol in ("gs", "gcs"):
        base = getattr(system, "base", None)
        return base if isinstance(base, str) else None
    return None


def _has_detour(options: Mapping[str, Any]) -> bool:
    todo: list[Any] = [options]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            if any(mark in str(name) and value for name, value in one.items() for mark in _DETOURS):
                return True
            todo.extend(one.values())
    return False


def _is_behind_proxy(scheme: str, host: str) -> bool:
    proxies = urllib.request.getproxies()
    return bool({scheme, "all"} & proxies.keys()) and not urllib.request.proxy_bypass(host)


def _reach(address: Address) -> None:
    """Open one connection, and another one for as long as a server may take to start.

    No answer at all is left to the library below, whose limits the caller may have set.
    """
    with _locks[address]:  # of many requests at once one asks, and the others hear what it heard
        since, error = _refused.get(address, (0.0, None))
        if address in _answered or (error is not None and time.monotonic() - since < _BELIEVED):
            if error is not None:
                raise _unreached(address, error) from error
            return
        began = time.monotonic()
        while True:
            try:
                socket.create_connection((address.host, address.port), _CONNECT).close()
            except TimeoutError:
                return
            except OSError as error:
                now = time.monotonic()
                if _is_lasting(error) or now - began > STARTING:
                    _refused[address] = (now, error)
                    raise _unreached(address, error) from error
                time.sleep(_PAUSE)
            else:
                _refused.pop(address, None)
                return


def _is_lasting(error: OSError) -> bool:
    return isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN


def _unreached(address: Address, error: OSError) -> StoreUnreachable:
    if isinstance(error, socket.gaierror):
        return StoreUnreachable(f"the host name {address.host} is unknown: {error.strerror}")
    return StoreUnreachable(f"nothing answers at {address}: {error.strerror or error}")


def _tell(url: str) -> None:
    text = f"{url} has not answered within {QUIET:.0f} s; still waiting (Ctrl-C ends it)"
    sys.stderr.write(f"hyperplane: {text}\n")
    sys.stderr.flush()
