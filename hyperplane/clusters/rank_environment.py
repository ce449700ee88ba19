"""Environment variables of the processes of a gang: those of torchrun, TensorFlow and hyperplane.

For all frameworks; it imports none.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

#: Request of Linux for the IPv4 address of an interface, and the size of its answer.
_SIOCGIFADDR, _IFREQ_BYTES = 0x8915, 40
#: Any port: connecting a socket for datagrams sends nothing.
_ANY_PORT = 9


@dataclass(frozen=True)
class RankAddress:
    """Host of a rank, and two ports that are free on it.

    Parameters
    ----------
    host : str
        Name or address under which the other ranks reach the host.
    port : int
        Port of the rank in ``TF_CONFIG``.
    master_port : int
        Port of ``MASTER_PORT`` if the rank is 0.
    """

    host: str
    port: int
    master_port: int

    def join(self) -> str:
        """Return ``host:port``; an address of IPv6 is in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def build_rank_environment(
    rank: int, addresses: Sequence[RankAddress], restarts: int = 0, checkpoints: str = ""
) -> dict[str, str]:
    """Return the variables of one rank; ``addresses`` are those of all ranks, in order.

    Examples
    --------
    >>> addresses = [RankAddress("127.0.0.1", 4001, 4002), RankAddress("127.0.0.1", 4003, 4004)]
    >>> variables = build_rank_environment(1, addresses)
    >>> variables["LOCAL_RANK"], variables["MASTER_ADDR"], variables["MASTER_PORT"]
    ('1', '127.0.0.1', '4002')
    """
    hosts = [address.host for address in addresses]
    master = addresses[0]
    workers = [address.join() for address in addresses]
    variables = {
        **number_rank(rank, hosts),
        "GROUP_RANK": str(list(dict.fromkeys(hosts)).index(hosts[rank])),
        "MASTER_ADDR": master.host,
        "MASTER_PORT": str(master.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        ),
        "HYPERPLANE_RESTART_COUNT": str(restarts),
    }
    if checkpoints:
        variables["HYPERPLANE_CHECKPOINTS"] = checkpoints
    if all(map(is_loopback, hosts)):
        # gloo would otherwise bind the interface of the host's name, which others cannot reach.
        variables["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform.startswith("linux") else "lo0"
    elif "GLOO_SOCKET_IFNAME" not in os.environ and (interface := find_interface(rank, hosts)):
        # Debian gives the name of a host an address such as 127.0.1.1.
        variables["GLOO_SOCKET_IFNAME"] = interface
    return variables


def find_interface(rank: int, hosts: Sequence[str]) -> str:
    """Return the network interface of this host, that of a rank, that leads to the other hosts.

    It is empty if it cannot be found; only Linux and IPv4 are supported.

    Examples
    --------
    >>> find_interface(0, ["127.0.0.1", "127.0.0.1"])
    'lo'
    >>> find_interface(0, ["::1", "::2"])
    ''
    """
    other = next((host for host in hosts if host != hosts[rank]), hosts[rank])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((other, _ANY_PORT))
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                request = os.fsencode(name).ljust(_IFREQ_BYTES, b"\0")
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if answer[20:24] == own:
                    return name
    return ""


def number_rank(rank: int, hosts: Sequence[str]) -> dict[str, str]:
    """Return the numbers of one rank; ``hosts`` are those of all ranks, in order.

    Examples
    --------
    >>> number_rank(2, ["a", "b", "b"])["LOCAL_RANK"]
    '1'
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
        "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
        "HYPERPLANE_RANK": str(rank),
        "HYPERPLANE_WORLD_SIZE": str(len(hosts)),
    }


def is_loopback(host: str) -> bool:
    """Return whether a host is the loopback interface.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
