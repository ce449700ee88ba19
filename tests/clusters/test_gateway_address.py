"""Addresses of gateways in checks and messages: templates, and passwords."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import dask
import pytest

import hyperplane
from hyperplane.clusters.dask.gateway import listing, preflight, server
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.spec.settings import GatewaySettings


def _check(address: str) -> PreflightFinding:
    # In dask-gateway's own configuration; the setting permits neither templates nor passwords.
    with dask.config.set({"gateway.address": address}):
        plan = hyperplane.plan_cluster(engine="gateway", num_workers=1, ram_gb_per_proc=0.5)
        [check] = [
            each
            for each in preflight.list_checks(plan, PreflightRequest())
            if each.subject == "gateway"
        ]
    finding, *_ = check.run(CheckDeadline(time.monotonic() + 60))
    assert "sesame" not in str(finding)
    return finding


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_a_template_of_an_address_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        host = f"127.0.0.1:{gateway.getsockname()[1]}"
        monkeypatch.setenv("GATEWAY_HOST", host)
        finding = _check("http://me:sesame@{GATEWAY_HOST}/")
    assert (finding.state, finding.text) == ("ok", f"http://{host}/ answers")
    monkeypatch.delenv("GATEWAY_HOST")
    finding = _check("http://{GATEWAY_HOST}/")
    assert finding.state == "fault"
    assert "environment variable 'GATEWAY_HOST' is not set" in finding.text


def test_no_password_is_shown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert _check(f"http://me:sesame@127.0.0.1:{port}").state == "fault"
    assert _check("http://me:sesame/1@127.0.0.1").state == "unchecked"


def test_listed_clusters_and_errors_show_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway: Any = SimpleNamespace(
        address="https://me:sesame@gateway.example",
        proxy_address="tls://me:sesame@proxy.example:443",
        close=lambda: None,
    )
    report = SimpleNamespace(name="a", start_time=None, status=SimpleNamespace(name="RUNNING"))
    monkeypatch.setattr(server, "open_gateway", lambda connection: gateway)
    monkeypatch.setattr(server, "call", lambda *_, **__: [report])
    [cluster] = listing.list_clusters(GatewaySettings(), 1.0)
    assert "https://gateway.example" in str(cluster)
    texts = [str(cluster), *(server.explain_error(e, gateway) for e in (OSError(5, "no"),))]
    assert all("sesame" not in text for text in texts)
