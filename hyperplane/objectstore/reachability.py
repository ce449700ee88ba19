"""Probe the server of a store before the first request, to fail within seconds if it is down.

Client libraries retry a refused connection for 10 to 90 s without a message. So before the
first request of a process, one connection is opened to the store's server and closed again,
unless requests go through a proxy. A notice is printed if an answer takes longer than
:data:`NOTICE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fsspec.utils import tokenize

from hyperplane.objectstore.redaction import redact_url
from hyperplane.objectstore.server_addresses import (
    ServerAddress,
    find_server_address,
    find_server_address_before_opening,
    has_host_per_request,
    parse_server_address,
)

if TYPE_CHECKING:
    from hyperplane.objectstore.locations import Location, Store

#: Seconds during which a server that is starting may still refuse connections.
STARTUP_SECONDS = 2.0
#: Seconds without an answer before the first notice, and between notices.
NOTICE_SECONDS, _NOTICE_INTERVAL = 5.0, 60.0
#: Seconds for one connection attempt, between two attempts, and for which a refusal is cached.
_CONNECT_TIMEOUT, _CONNECT_PAUSE, _REFUSAL_TTL = 3.0, 0.25, 2.0
#: Protocols of file systems that need no network.
_LOCAL_PROTOCOLS = ("file", "local", "memory")
#: Libraries that log a traceback in addition to the exception that they raise.
_LIBRARIES = ("gcsfs", "s3fs", "adlfs", "fsspec", "aiobotocore", "botocore", "azure", "google")


class StoreUnreachable(ConnectionError):
    """Nothing listens at the address of a store, or its host name is unknown."""


#: Stores and servers that have answered a request of this process.
_answered: set[str | ServerAddress] = set()
#: Servers that accepted a connection, or did not answer within the timeout.
_connected: set[ServerAddress] = set()
#: Tokens of protocol and options of the file systems constructed so far.
_opened_systems: set[str] = set()
#: Time of the last notice about each store.
_notice_times: dict[str, float] = {}
#: Time and error of the last refused connection of each server.
_refusals: dict[ServerAddress, tuple[float, OSError]] = {}
_locks: defaultdict[ServerAddress, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def monitor_open(url: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Probe a Google store before its file system is constructed; print a notice if slow.

    Raises
    ------
    StoreUnreachable
        If nothing listens at the server's address, or its host name is unknown.
    """
    protocol, separator, _ = url.partition("://")
    if not separator or protocol in _LOCAL_PROTOCOLS:
        yield
        return
    token = tokenize(protocol, options)
    with _slow_notice(url):
        if token not in _opened_systems:
            address = find_server_address_before_opening(url, options)
            if address is not None:
                _probe_address(address)
        yield
    _opened_systems.add(token)


@contextmanager
def monitor_request(store: Store, url: str) -> Iterator[None]:
    """Probe the server before the first request to a store; print a notice if an answer is late.

    Raises
    ------
    StoreUnreachable
        If nothing listens at the server's address, or its host name is unknown.
    """
    if has_answered(store, url):
        with _suppress_tracebacks():
            yield
        return
    with _slow_notice(url):
        address = find_server_address(store, url)
        if address is not None:
            _probe_address(address)
        elif has_host_per_request(store):
            # botocore knows the host of a request only just before it sends the request.
            events = store.system.s3.meta.events
            events.register(
                "before-send.s3", _probe_request_host, unique_id="hyperplane-first-contact"
            )
        try:
            yield
        except Exception as error:
            if is_store_response(error):
                _answered.add(_store_key(store, url))
            raise
        _answered.add(_store_key(store, url))


def probe_store(location: Location, url: str) -> None:
    """Request a file's metadata, before another library opens the file and retries for minutes.

    Raises
    ------
    StoreUnreachable
        If nothing listens at the server's address, or its host name is unknown.
    """
    if has_answered(location.store, url) or not has_host_per_request(location.store):
        return
    try:
        with monitor_request(location.store, url):
            location.store.system.info(location.path)
    except StoreUnreachable:
        raise
    except Exception:  # noqa: BLE001, S110 - the other library reports the error
        pass


def is_store_response(error: BaseException) -> bool:
    """Return whether an error is a response of the store, as most HTTP errors are.

    Examples
    --------
    >>> is_store_response(FileNotFoundError("a.csv")), is_store_response(ConnectionRefusedError())
    (True, False)
    """
    # fsspec raises FileNotFoundError for every failure over HTTP.
    has_cause = isinstance(error, FileNotFoundError) and error.__cause__ is not None
    real = error.__cause__ if has_cause else error
    if isinstance(real, FileNotFoundError | FileExistsError | PermissionError):
        return True
    return any(getattr(real, name, None) for name in ("status", "response"))


@contextmanager
def _slow_notice(url: str) -> Iterator[None]:
    """Print a notice if the block takes longer than ``NOTICE_SECONDS``."""
    timer = threading.Timer(NOTICE_SECONDS, _print_notice, [redact_url(url)])
    timer.daemon = True
    timer.start()
    try:
        with _suppress_tracebacks():
            yield
    finally:
        timer.cancel()


def has_answered(store: Store, url: str) -> bool:
    """Return whether a store has answered this process; local file systems always have."""
    return store.protocol in _LOCAL_PROTOCOLS or _store_key(store, url) in _answered


def _store_key(store: Store, url: str) -> str | ServerAddress:
    """Return the key of a store in the module's caches: its server, or its URL without the path."""
    return find_server_address(store, url) or "/".join(url.split("/", 3)[:3])


def _probe_address(address: ServerAddress) -> None:
    """Open one connection to a server; retry refusals for as long as a server may take to start.

    A timeout is no error here: the limits of the client library apply, which the caller may have
    set.
    """
    if address in _connected:
        return
    with _locks[address]:  # concurrent requests share the result of one probe
        since, error = _refusals.get(address, (0.0, None))
        if address in _answered or (error is not None and time.monotonic() - since < _REFUSAL_TTL):
            if error is not None:
                raise _unreachable_error(address, error) from error
            return
        began = time.monotonic()
        while True:
            try:
                socket.create_connection((address.host, address.port), _CONNECT_TIMEOUT).close()
            except TimeoutError:
                _connected.add(address)
                return
            except OSError as error:
                now = time.monotonic()
                if _is_permanent(error) or now - began > STARTUP_SECONDS:
                    _refusals[address] = (now, error)
                    raise _unreachable_error(address, error) from error
                time.sleep(_CONNECT_PAUSE)
            else:
                _refusals.pop(address, None)
                _connected.add(address)
                return


async def _probe_request_host(request: Any, **_: Any) -> None:
    """Probe the host of a botocore request that is about to be sent."""
    address = parse_server_address(request.url)
    if address is not None and address not in _connected:
        await asyncio.to_thread(_probe_address, address)


def _is_permanent(error: OSError) -> bool:
    """Return whether the host name does not exist."""
    return isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN


def _unreachable_error(address: ServerAddress, error: OSError) -> StoreUnreachable:
    """Return the error for a server that refuses connections."""
    if isinstance(error, socket.gaierror):
        return StoreUnreachable(f"the host name {address.host} is unknown: {error.strerror}")
    return StoreUnreachable(f"nothing answers at {address}: {error.strerror or error}")


def _print_notice(url: str) -> None:
    """Print that a store has not answered yet, at most once per store and interval."""
    now, store = time.monotonic(), "/".join(url.split("/", 3)[:3])
    if now - _notice_times.get(store, -_NOTICE_INTERVAL) < _NOTICE_INTERVAL:
        return
    _notice_times[store] = now
    text = f"{url} has not answered within {NOTICE_SECONDS:.0f} s; still waiting (Ctrl-C ends it)"
    sys.stderr.write(f"hyperplane: {text}\n")
    sys.stderr.flush()


class _TracebackFilter(logging.Filter):
    """Drop log records with tracebacks of the client libraries while requests are running."""

    def __init__(self) -> None:
        super().__init__()
        self._requests, self._lock = 0, threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and record.name.partition(".")[0] in _LIBRARIES)

    def start(self) -> None:
        with self._lock:
            self._requests += 1
            # lastResort prints only if the program has no handler; handlers get every record.
            if self._requests == 1 and logging.lastResort is not None:
                logging.lastResort.addFilter(self)

    def stop(self) -> None:
        with self._lock:
            self._requests -= 1
            if self._requests == 0 and logging.lastResort is not None:
                logging.lastResort.removeFilter(self)


_traceback_filter = _TracebackFilter()


@contextmanager
def _suppress_tracebacks() -> Iterator[None]:
    """Suppress tracebacks logged by the client libraries in this block."""
    _traceback_filter.start()
    try:
        yield
    finally:
        _traceback_filter.stop()
