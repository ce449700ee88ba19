"""The first contact with a store in a process: fail soon where nothing listens.

The libraries below ask an address at which nothing listens several times over, for 10 to 90 s and
without a line. So before the first request of a process one connection is opened to the address
of the store and closed again, where no proxy lies between. A line is printed once an answer takes
longer than :data:`QUIET` seconds.
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

from hyperplane.stores.redaction import redact_url
from hyperplane.stores.server_addresses import (
    ServerAddress,
    find_server_address,
    find_server_address_before_opening,
    has_host_per_request,
    parse_server_address,
)

if TYPE_CHECKING:
    from hyperplane.stores.locations import Location, Store

#: Seconds for which a server that starts beside its caller may still refuse connections.
STARTUP_SECONDS = 2.0
#: Seconds without an answer before a line says so, and before another one does.
NOTICE_SECONDS, _NOTICE_INTERVAL = 5.0, 60.0
#: Seconds for one connection, between two of them, and for which a refusal is believed.
_CONNECT_TIMEOUT, _CONNECT_PAUSE, _REFUSAL_TTL = 3.0, 0.25, 2.0
#: Protocols whose file systems need no network.
_LOCAL_PROTOCOLS = ("file", "local", "memory")
#: Libraries that log a traceback of each fault of a store which their caller gets as an error.
_LIBRARIES = ("gcsfs", "s3fs", "adlfs", "fsspec", "aiobotocore", "botocore", "azure", "google")


class StoreUnreachable(ConnectionError):
    """Nothing listens at the address of a store, or its host name is not known."""


#: Stores and addresses that have answered this process.
_answered: set[str | ServerAddress] = set()
#: Addresses that have taken a connection, or have not answered one at all.
_connected: set[ServerAddress] = set()
#: Protocols and options, as tokens, of which a file system has been made.
_opened_systems: set[str] = set()
#: When a line last said that a store takes long.
_notice_times: dict[str, float] = {}
#: When, and with what, an address last refused a connection.
_refusals: dict[ServerAddress, tuple[float, OSError]] = {}
_locks: defaultdict[ServerAddress, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def monitor_open(url: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Make the file system of a URL; print that it takes long, as a search for credentials may.

    Raises
    ------
    StoreUnreachable
        When nothing listens at the address of the store, or its name is not known.
    """
    protocol, separator, _ = url.partition("://")
    if not separator or protocol in _LOCAL_PROTOCOLS:
        yield
        return
    made = tokenize(protocol, options)
    with _slow_notice(url):
        if made not in _opened_systems:
            address = find_server_address_before_opening(url, options)
            if address is not None:
                _probe_address(address)
        yield
    _opened_systems.add(made)


@contextmanager
def monitor_request(store: Store, url: str) -> Iterator[None]:
    """Do something with a store; its first contact fails soon, or prints that it takes long.

    Raises
    ------
    StoreUnreachable
        When nothing listens at the address of the store, or its name is not known.
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
            # The client tells the host of each request just before it sends it.
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


def probe_store(place: Location, url: str) -> None:
    """Ask a store for a file where another file system than that of the place will do so next.

    Raises
    ------
    StoreUnreachable
        When nothing listens at the address of the store, or its name is not known.
    """
    if has_answered(place.store, url) or not has_host_per_request(place.store):
        return
    try:
        with monitor_request(place.store, url):
            place.store.system.info(place.path)
    except StoreUnreachable:
        raise
    except Exception:  # noqa: BLE001, S110 - the other file system says what is wrong
        pass


def is_store_response(error: BaseException) -> bool:
    """Whether an error says that a store has answered, which it does with most errors of HTTP.

    Examples
    --------
    >>> is_answer(FileNotFoundError("a.csv")), is_answer(ConnectionRefusedError())
    (True, False)
    """
    # fsspec says of everything that goes wrong over HTTP that the file is not there.
    hides = isinstance(error, FileNotFoundError) and error.__cause__ is not None
    real = error.__cause__ if hides else error
    if isinstance(real, FileNotFoundError | FileExistsError | PermissionError):
        return True
    return any(getattr(real, name, None) for name in ("status", "response"))


@contextmanager
def _slow_notice(url: str) -> Iterator[None]:
    line = threading.Timer(NOTICE_SECONDS, _print_notice, [redact_url(url)])
    line.daemon = True
    line.start()
    try:
        with _suppress_tracebacks():
            yield
    finally:
        line.cancel()


def has_answered(store: Store, url: str) -> bool:
    """Whether a store has answered this process before; those of this machine always have."""
    return store.protocol in _LOCAL_PROTOCOLS or _store_key(store, url) in _answered


def _store_key(store: Store, url: str) -> str | ServerAddress:
    return find_server_address(store, url) or "/".join(url.split("/", 3)[:3])


def _probe_address(address: ServerAddress) -> None:
    """Open one connection, and another one for as long as a server may take to start.

    No answer at all is left to the library below, whose limits the caller may have set.
    """
    if address in _connected:
        return
    with _locks[address]:  # of many requests at once one asks, and the others hear what it heard
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
    """Open one connection to the host of a request of botocore, which is about to be sent."""
    address = parse_server_address(request.url)
    if address is not None and address not in _connected:
        await asyncio.to_thread(_probe_address, address)


def _is_permanent(error: OSError) -> bool:
    return isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN


def _unreachable_error(address: ServerAddress, error: OSError) -> StoreUnreachable:
    if isinstance(error, socket.gaierror):
        return StoreUnreachable(f"the host name {address.host} is unknown: {error.strerror}")
    return StoreUnreachable(f"nothing answers at {address}: {error.strerror or error}")


def _print_notice(url: str) -> None:
    now, store = time.monotonic(), "/".join(url.split("/", 3)[:3])
    if (
        now - _notice_times.get(store, -_NOTICE_INTERVAL) < _NOTICE_INTERVAL
    ):  # of many requests one is announced
        return
    _notice_times[store] = now
    text = f"{url} has not answered within {NOTICE_SECONDS:.0f} s; still waiting (Ctrl-C ends it)"
    sys.stderr.write(f"hyperplane: {text}\n")
    sys.stderr.flush()


class _TracebackFilter(logging.Filter):
    """Drops records with tracebacks of the libraries below while a store is asked."""

    def __init__(self) -> None:
        super().__init__()
        self._requests, self._lock = 0, threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and record.name.partition(".")[0] in _LIBRARIES)

    def start(self) -> None:
        with self._lock:
            self._requests += 1
            # What logging prints where the program has no handler; a handler gets every record.
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
    _traceback_filter.start()
    try:
        yield
    finally:
        _traceback_filter.stop()
