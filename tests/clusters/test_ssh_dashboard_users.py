"""A second user of a host, or of this machine, reads no dashboard of an ssh cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from services_ssh import HostNetwork, network, nothing_left, plan, surroundings
from subprograms import READ_PORTS
from users import OTHER

import hyperplane

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures

PYTHON = Path("/usr/bin/python3")


def read_ports(user: int, ports: Sequence[int], namespace: str = "") -> list[int | str]:
    """Read from ports of a host, or of this machine, as a user."""
    if not PYTHON.exists():
        pytest.skip("needs an interpreter that other users may run")
    where = ["ip", "netns", "exec", namespace] if namespace else []
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    words = [*where, *become, str(PYTHON), "-c", READ_PORTS, *map(str, ports)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=240, cwd="/")
    answers: list[int | str] = json.loads(done.stdout)
    return answers


def pages_of(network: HostNetwork, host: int) -> list[int]:
    """Return the ports of a host's loopback address on which programs listen."""
    return [port for name, port in network.listening_addresses(host) if name == "127.0.0.1"]


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_another_user_reads_no_dashboard(mode: str, network: HostNetwork) -> None:
    client, cluster = hyperplane.start(plan(scheduler_deploy_mode=mode))
    with cluster, client:
        here = [int(urlsplit(cluster.dashboard_link).port or 0)]
        refused = read_ports(OTHER, here)
        assert set(refused) <= {0, "ConnectionResetError"}, refused
        [answer] = read_ports(os.getuid(), here)
        assert isinstance(answer, int)
        assert answer > 0
        for host in (1, 2):
            ports = pages_of(network, host)
            assert len(ports) == (2 if (mode, host) == ("remote", 1) else 1)
            namespace = f"hpssh{network.network}-{host}"
            refused = read_ports(OTHER, ports, namespace)
            assert set(refused) <= {0, "ConnectionResetError"}, refused
            answers = read_ports(os.getuid(), ports, namespace)
            assert all(isinstance(each, int) and each > 0 for each in answers), answers


def test_without_security_another_user_reads_the_dashboard(network: HostNetwork) -> None:
    client, cluster = hyperplane.start(
        plan(num_workers=1, scheduler_deploy_mode="remote", engine_options={"security": "none"})
    )
    with cluster, client:
        here = [int(urlsplit(cluster.dashboard_link).port or 0)]
        ports = pages_of(network, 1)
        answers = read_ports(OTHER, here)
        answers += read_ports(OTHER, ports, f"hpssh{network.network}-1")
        assert len(answers) == 3
        assert all(isinstance(each, int) and each > 0 for each in answers), answers
