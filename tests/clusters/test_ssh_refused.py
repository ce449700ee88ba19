"""Error messages of the ssh engine for wrong hosts, settings and requests."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services_ssh import HostNetwork, network, nothing_left, plan, surroundings

import hyperplane

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures


def refused(**options: Any) -> str:
    with pytest.raises(hyperplane.EngineError) as caught:
        hyperplane.start(plan(**options))
    return str(caught.value)


def test_every_host_that_does_not_answer_is_named(network: HostNetwork) -> None:
    there, *away = (network.address(number) for number in (1, 88, 89))
    hosts = [there, *away]
    text = refused(num_workers=3, engine_options={"hosts": hosts, "connect_timeout": 15})
    assert "nothing was started: 2 hosts of 3 cannot be used:" in text
    assert f"{away[0]}: " in text
    assert f"{away[1]}: " in text
    assert there not in text


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"client_keys": ["/no/such/key"]}, "client_keys"),
        ({"client_keys": ["/etc/passwd"]}, "client_keys"),
        ({"known_hosts": "/no/such/file"}, "known_hosts"),
        ({"port": 1}, "port"),
        ({"hosts": ["no-such-host.invalid"] * 2}, "hosts"),
    ],
)
def test_the_setting_that_is_wrong_is_named(wrong: Any, setting: str) -> None:
    text = refused(engine_options=wrong)
    assert f"check hyperplane.engines.ssh.{setting}" in text
    assert len(text.splitlines()) <= 3


def test_a_host_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    text = refused(engine_options={"known_hosts": str(tmp_path / "none")})
    assert "it may be another machine" in text


def test_a_key_that_is_not_let_in(tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True
    )
    text = refused(engine_options={"client_keys": [str(tmp_path / "id")]})
    assert "permission denied" in text
    assert "PRIVATE" not in text


def test_a_missing_python_on_the_host() -> None:
    text = refused(engine_options={"python": "/no/such/python"})
    assert "there is no /no/such/python; set hyperplane.engines.ssh.python" in text


def test_a_python_without_the_packages() -> None:
    text = refused(engine_options={"python": "/usr/bin/python3"})
    assert "/usr/bin/python3 on the host has no hyperplane; install the same packages" in text


def test_an_older_hyperplane_on_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "hyperplane").mkdir()
    (tmp_path / "hyperplane" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    python = tmp_path / "python"
    path = shlex.quote(str(tmp_path))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    text = refused(engine_options={"python": str(python)})
    assert "on the host has hyperplane 0.1.0, but this machine has " in text
    assert f"install {hyperplane.__version__} there" in text


def test_more_memory_than_a_host_has() -> None:
    text = refused(ram_gb_per_proc=20_000, nprocs=1)
    assert "its processes need 20 TB together, but the machine has " in text
    assert "; request less (ram_gb_per_proc, nprocs)" in text


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_an_interface_that_is_not_there(mode: str) -> None:
    options = {"interface": "ib0"}
    text = refused(engine_options=options, scheduler_deploy_mode=mode)
    assert "there is no network interface 'ib0'" in text
    assert "set hyperplane.engines.ssh.interface to one" in text
    assert "Traceback" not in text


def test_a_port_of_the_dashboard_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refused(dashboard_port=port)
    assert f"port {port} of this machine cannot be opened for the dashboard" in text
    assert "Pass another dashboard_port" in text


def test_the_start_timeout_is_reported() -> None:
    with pytest.raises(hyperplane.StartTimeout) as caught:
        hyperplane.start(plan(timeout=0.5))
    assert str(caught.value).count("the scheduler did not start within 0.5 s (timeout)") == 1
