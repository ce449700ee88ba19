"""Network interface of the ranks of a gang."""

from __future__ import annotations

import ipaddress
import socket

import psutil
import pytest

from hyperplane.clusters.gang_plan import GangPlan
from hyperplane.clusters.rank_environment import (
    RankAddress,
    build_rank_environment,
    find_interface,
)

#: Interfaces of this machine that have an IPv4 address of other machines' networks.
INTERFACES = [
    (name, entry.address)
    for name, entries in psutil.net_if_addrs().items()
    for entry in entries
    if entry.family == socket.AF_INET and not ipaddress.ip_address(entry.address).is_loopback
]
NAME = "GLOO_SOCKET_IFNAME"


@pytest.fixture(autouse=True)
def without_variable(monkeypatch):
    monkeypatch.delenv(NAME, raising=False)


def addresses(*hosts):
    return [RankAddress(host, 10 + n, 20 + n) for n, host in enumerate(hosts)]


def test_ranks_of_the_loopback_interface_use_it():
    assert build_rank_environment(1, addresses("127.0.0.1", "127.0.0.1"))[NAME] == "lo"


@pytest.mark.skipif(not INTERFACES, reason="this machine has only the loopback interface")
def test_ranks_use_the_interface_of_their_address_and_not_that_of_the_host_name(monkeypatch):
    name, address = INTERFACES[0]
    assert find_interface(0, [address, address]) == name
    assert build_rank_environment(0, addresses(address, address))[NAME] == name
    plan = GangPlan(2, [("chief", 0), ("worker", 0)], "m")
    hosts = addresses(address, "::2")
    assert NAME not in plan.build_environment(0, hosts, 0)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert build_rank_environment(0, addresses(address, address))[NAME] == name


@pytest.mark.skipif(not INTERFACES, reason="this machine has only the loopback interface")
def test_an_interface_in_the_environment_of_a_worker_is_kept(monkeypatch):
    monkeypatch.setenv(NAME, "ib0")
    _, address = INTERFACES[0]
    assert NAME not in build_rank_environment(0, addresses(address, address))


def test_the_interface_of_other_addresses_is_not_set():
    assert NAME not in build_rank_environment(0, addresses("::1", "::2"))
