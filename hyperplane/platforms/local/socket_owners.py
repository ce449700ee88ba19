"""Users that own the two ends of a TCP connection on this machine, from Linux.

The kernel is asked about one connection through ``sock_diag``, which takes 20 microseconds however
many connections the machine has. Where that is not permitted, the tables in ``/proc/net`` are read;
they list all connections. Both return users as seen in the user namespace of this process.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

#: States of a TCP socket, from Linux's tcp_states.h.
ESTABLISHED, LISTEN = 1, 10

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
#: nlmsghdr; the head of inet_diag_req_v2; ports, addresses, interface and cookie of
#: inet_diag_sockid; the head of inet_diag_msg; its tail, of which uid and inode are used.
_HEADER, _REQUEST, _SOCKET = struct.Struct("=IHHII"), struct.Struct("=BBBxI"), "!HH16s16s"
_NO_INTERFACE, _NO_COOKIE = struct.pack("=I", 0), struct.pack("=II", 0xFFFFFFFF, 0xFFFFFFFF)
_ANSWER, _TAIL = struct.Struct("=BBBB"), struct.Struct("=IIIII")
_SOCKET_BYTES = 48
#: Seconds to wait for the kernel, which answers before the request returns.
_ANSWER_SECONDS = 1.0

#: Host and port, as :meth:`socket.socket.getsockname` returns them first.
Address = tuple[str, int]
_ANY: Address = ("0.0.0.0", 0)  # noqa: S104 - no other end: compared, never bound


@dataclass(frozen=True)
class SocketOwner:
    """Owner of one socket.

    Parameters
    ----------
    uid : int
        User that created it. Linux reports 0, root, for a socket without a process.
    has_process : bool
        Whether a process has the socket open. It has not after its process has closed it or ended,
        nor before a server has accepted it.
    state : int
        State of TCP, such as :data:`ESTABLISHED`.
    """

    uid: int
    has_process: bool
    state: int


def find_owner(local: Address, remote: Address) -> SocketOwner | None:
    """Return the owner of the socket with these two ends; None if this machine has none.

    Raises
    ------
    OSError
        If Linux answers neither ``sock_diag`` nor ``/proc/net``, or the system is another one.
    """
    try:
        found = _ask_kernel(local, remote)
    except OSError:
        found = _read_tables(local, remote)
    # The kernel returns a listener of this port if there is no such connection.
    return None if found is None or found.state == LISTEN else found


def find_listener(address: Address) -> SocketOwner | None:
    """Return the owner of the socket that listens on an address; None if there is none.

    Raises
    ------
    OSError
        As for :func:`find_owner`.
    """
    try:
        found = _ask_kernel(address, _ANY)
    except OSError:
        found = _read_tables(address, _ANY)
    return found if found is not None and found.state == LISTEN else None


def read_state(connection: socket.socket) -> int:
    """Return the state of TCP of a socket of this process."""
    state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state


def _ask_kernel(local: Address, remote: Address) -> SocketOwner | None:
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    ends = struct.pack(
        _SOCKET, local[1], remote[1], *(_pack(end, family) for end in (local, remote))
    )
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    body += ends + _NO_INTERFACE + _NO_COOKIE
    size = _HEADER.size + len(body)
    # A new socket for each request: threads and forks would read each other's answers.
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
    with closing(opened) as asked:
        asked.settimeout(_ANSWER_SECONDS)
        asked.connect((0, 0))  # receive from the kernel only
        asked.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body)
        answer = asked.recv(4096)
    kind, rest = _HEADER.unpack_from(answer)[1], answer[_HEADER.size :]
    if kind != _SOCK_DIAG_BY_FAMILY:
        code = -struct.unpack_from("=i", rest)[0]
        if code == 2:  # ENOENT: no such socket
            return None
        raise OSError(code, os.strerror(code), "sock_diag")
    state = _ANSWER.unpack_from(rest)[1]
    *_, uid, inode = _TAIL.unpack_from(rest, _ANSWER.size + _SOCKET_BYTES)
    return SocketOwner(uid, inode != 0, state)


def _pack(address: Address, family: int) -> bytes:
    host = "::" if address == _ANY and family == socket.AF_INET6 else address[0]
    return socket.inet_pton(family, host).ljust(16, b"\0")


def _read_tables(local: Address, remote: Address) -> SocketOwner | None:
    wanted = [(_plain(host), port) for host, port in (local, remote)]
    # To parse a line takes 15 to 25 microseconds; a machine may have thousands of sockets.
    ports = [f":{port:04X} " for _, port in wanted]
    for line in _table_lines():
        if not all(port in line for port in ports):
            continue
        fields = line.split()
        ends = [_parse_end(text) for text in fields[1:3]]
        state = int(fields[3], 16)
        listens = remote == _ANY and state == LISTEN and _listens_on(ends[0], wanted[0])
        if ends == wanted or listens:
            return SocketOwner(int(fields[7]), fields[9] != "0", state)
    return None


def _table_lines() -> Iterator[str]:
    """Yield the lines of all TCP sockets in the network namespace of this thread."""
    tables = Path("/proc/thread-self/net")
    yield from (tables / "tcp").read_text().splitlines()[1:]
    with suppress(FileNotFoundError):  # a kernel without IPv6
        yield from (tables / "tcp6").read_text().splitlines()[1:]


def _parse_end(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Return address and port of a table, which has words of 32 bits in the machine's order."""
    host, port = text.split(":")
    words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
    return _plain(struct.pack(f"={len(words)}I", *words)), int(port, 16)


def _plain(host: str | bytes) -> IPv4Address | IPv6Address:
    """Return an address; that of IPv4 for ``::ffff:127.0.0.1``, with which IPv6 sockets use it."""
    address = ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _listens_on(
    bound: tuple[IPv4Address | IPv6Address, int], address: tuple[IPv4Address | IPv6Address, int]
) -> bool:
    return bound[1] == address[1] and (bound[0] == address[0] or bound[0].is_unspecified)
