"""Objects that several processes of this machine need: one builds them, others map its copy.

The process that builds an object listens on a socket whose name, in Linux's abstract namespace, is
that of the object. Another process connects, waits, and gets the descriptor of a file in memory,
which is written when the first one asks. Sockets and such files end with their processes: nothing
remains of a process that is killed. Where the system has none, each process builds the object.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")

#: Seconds to wait for a process that builds an object, which may be stopped. Then this one does.
_WAIT_SECONDS = 120.0
#: How often to try, and seconds between, if the other process has just begun or ended to listen.
_TRIES, _PAUSE_SECONDS = 100, 0.005
#: Process, user and group of the other end.
_CREDENTIALS = struct.Struct("=iII")
#: What the process that built the object sends, with a descriptor or without one.
_COPY, _NO_COPY = b"1", b"0"


def build_or_map(
    name: str,
    build: Callable[[], T],
    dump: Callable[[T, IO[bytes]], None],
    load: Callable[[memoryview], T | None],
) -> T:
    """Return the object of a name: from another process of this user if one has it, else built.

    Parameters
    ----------
    name : str
        Up to 90 characters. Two processes give the same name to the same object only.
    build : callable
        Returns the object, of a type that has weak references. While it is referenced, other
        processes get copies of it.
    dump : callable
        Writes the object to a file; called in another thread if another process needs it. If it
        fails, other processes build the object, without waiting for each other.
    load : callable
        Returns the object that has the read-only bytes of the file; None if it cannot.
    """
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return build()
    address = f"\0hyperplane-{os.getuid()}-{name}"
    for _ in range(_TRIES):
        listener = _listen(address)
        if listener is not None:
            return _build_and_serve(listener, build, dump)
        try:
            content = _receive(address)
        except OSError:
            break
        if content is not None:
            loaded = load(content)
            if loaded is not None:
                return loaded
            break
        time.sleep(_PAUSE_SECONDS)
    return build()


def _listen(address: str) -> socket.socket | None:
    """Return a listening socket; None if another process has the address."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        return None
    return listener


def _build_and_serve(
    listener: socket.socket, build: Callable[[], T], dump: Callable[[T, IO[bytes]], None]
) -> T:
    """Build an object, and send copies to processes that ask as long as it is referenced."""
    try:
        result = build()
        end = weakref.finalize(result, _end, listener)
        end.atexit = False
        arguments = (listener, weakref.ref(result), dump)
        threading.Thread(target=_serve, args=arguments, name="shared-object", daemon=True).start()
    except BaseException:
        listener.close()
        raise
    return result


def _end(listener: socket.socket) -> None:
    """End the thread that waits for connections, which closes the socket."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


def _serve(
    listener: socket.socket, reference: weakref.ref[T], dump: Callable[[T, IO[bytes]], None]
) -> None:
    """Send the descriptor of a copy to each process of this user that connects.

    If the object cannot be copied, each gets an answer without one. Otherwise each would listen in
    turn, and build the object while the others wait for it.
    """
    descriptor: int | None = None
    can_copy = True
    with listener, contextlib.ExitStack() as files:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the object is not referenced anymore
                return
            with connection:
                if not _is_own(connection):
                    continue
                if descriptor is None and can_copy:
                    found = reference()
                    if found is None:
                        return
                    try:
                        descriptor = _write(found, dump)
                    except Exception:  # noqa: BLE001 - other processes build the object
                        can_copy = False
                    else:
                        files.callback(os.close, descriptor)
                    finally:
                        del found
                with contextlib.suppress(OSError):  # the other process has ended
                    if descriptor is None:
                        connection.sendall(_NO_COPY)
                    else:
                        socket.send_fds(connection, [_COPY], [descriptor])


def _write(content: T, dump: Callable[[T, IO[bytes]], None]) -> int:
    """Return the descriptor of a new file in memory with an object."""
    descriptor = os.memfd_create("hyperplane")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            dump(content, file)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _receive(address: str) -> memoryview | None:
    """Return the copy of another process; None if it has just ended, or failed.

    OSError is raised if it is none of this user and container, has no copy, or does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_WAIT_SECONDS)
        try:
            connection.connect(address)
            if not _is_own(connection):
                raise PermissionError(errno.EPERM, "another user or container has the name")
            # Otherwise a program that another thread starts would inherit the descriptor.
            flags = socket.MSG_CMSG_CLOEXEC
            answer, descriptors, _, _ = socket.recv_fds(connection, 1, 1, flags)
        except (ConnectionRefusedError, ConnectionResetError):
            return None
    if answer == _NO_COPY:
        raise OSError(errno.ENOTSUP, "the object cannot be copied")
    if not descriptors:
        return None
    try:
        return memoryview(mmap.mmap(descriptors[0], 0, prot=mmap.PROT_READ))
    finally:
        os.close(descriptors[0])


def _is_own(connection: socket.socket) -> bool:
    """Return whether the process at the other end is one of this user and container.

    Containers with the network of the host have its abstract namespace, and often the same user
    number; they have separate file systems. A process that has ended is none, also if a child
    that was forked meanwhile still has its socket.
    """
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(content)
    try:
        return user == os.getuid() and _get_mounts(process) == _get_mounts("self")
    except OSError:
        return False


def _get_mounts(process: int | str) -> str:
    """Return the mount namespace of a process."""
    return str(Path(f"/proc/{process}/ns/mnt").readlink())
