"""Run a process without a network, in a separate network namespace of Linux.

Programs execute this file by its path, without the package: it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
#: Requests of ioctl for the flags of an interface.
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_UP = 1
_SECONDS = 30.0


def leave_network() -> None:
    """Move this process to a new network that has only its own loopback interface.

    A process without the right to do so first creates a user namespace, in which its user keeps
    its id. The process must have one thread. Raises OSError if the system does not permit it.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_NEW_NETWORK) != 0:
        if ctypes.get_errno() != errno.EPERM:
            raise _last_error()
        user, group = os.geteuid(), os.getegid()
        if library.unshare(_NEW_USER | _NEW_NETWORK) != 0:
            raise _last_error()
        # Without this a process may not map its group.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _start_loopback()


def find_refusal() -> str:
    """Return why a process of this user cannot leave the network; empty if it can."""
    try:
        done = subprocess.run(  # noqa: S603 - this file
            [sys.executable, "-I", __file__],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.strip() or f"the test ended with exit code {done.returncode}"


def _start_loopback() -> None:
    """Activate the loopback interface, with which processes of a task reach each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        request = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(channel, _GET_FLAGS, request))
        fcntl.ioctl(channel, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - few imports
        file.write(text)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


if __name__ == "__main__":
    try:
        leave_network()
    except OSError as error:
        sys.exit(f"unshare: {error.strerror}")
