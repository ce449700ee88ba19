"""Addresses of this machine."""

from __future__ import annotations

import socket

import psutil

#: An address of the Internet: the system selects the interface to it, and nothing is sent.
_OUTSIDE = ("8.8.8.8", 80)


def find_address(interface: str | None) -> str:
    """Return the IPv4 address of a network interface; with None, of the one to the outside.

    Raises
    ------
    ValueError
        If there is no interface of that name with an IPv4 address.

    Examples
    --------
    >>> find_address("lo")
    '127.0.0.1'
    """
    if interface is None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(_OUTSIDE)
                return str(probe.getsockname()[0])
            except OSError:  # no network
                return socket.gethostbyname(socket.gethostname())
    addresses = {
        name: entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    }
    if interface not in addresses:
        raise ValueError(f"a network interface with an IPv4 address: {', '.join(addresses)}")
    return addresses[interface]
