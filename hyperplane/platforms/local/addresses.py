"""Addresses of this machine."""

from __future__ import annotations

import socket
from contextlib import suppress

import psutil

#: An address of the Internet: the system selects the interface to it, and nothing is sent.
_OUTSIDE = ("8.8.8.8", 80)


def find_address(interface: str | None) -> str:
    """Return the IPv4 address of a network interface; with None, of the one to the outside.

    Raises
    ------
    ValueError
        If there is no interface of that name with an IPv4 address, or without a name none to the
        outside; the text says what is expected.

    Examples
    --------
    >>> find_address("lo")
    '127.0.0.1'
    """
    if interface is None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.connect(_OUTSIDE)
            return str(probe.getsockname()[0])
        with suppress(OSError):
            address = socket.gethostbyname(socket.gethostname())
            if not address.startswith("127."):
                return address
        raise ValueError("the name of a network interface: none leads outside")
    addresses = {
        name: entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    }
    if interface not in addresses:
        raise ValueError(f"a network interface with an IPv4 address: {', '.join(addresses)}")
    return addresses[interface]
