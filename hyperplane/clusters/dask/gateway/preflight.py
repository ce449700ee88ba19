"""Checks before a cluster starts through a gateway: its address and the login."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import dask.config

from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.missing_modules import check_unknown_modules
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.objectstore.redaction import redact_url
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import GatewaySettings

_SECTION = "hyperplane.engines.gateway"
_PORTS = {"http": 80, "https": 443}


def list_checks(plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
    """Return the checks of a plan."""
    settings = cast(GatewaySettings, plan.settings)
    address = settings.address or str(dask.config.get("gateway.address"))
    where = "the environment of the gateway's workers"
    modules = partial(check_unknown_modules, request.program, where, request.needed, request.sync)
    return [
        Check("gateway", partial(_check_server, address)),
        Check("credentials", lambda _: _check_credentials(settings)),
        Check("modules", lambda _: modules()),
    ]


def _check_credentials(settings: GatewaySettings) -> Iterator[PreflightFinding]:
    variable = settings.password_variable
    if settings.auth and variable and variable not in os.environ:
        text = f"environment variable {variable!r} is not set; it must hold the password or token"
        advice = f"set it, or change {_SECTION}.password_variable"
        yield PreflightFinding("credentials", "fault", text, advice)


def _check_server(template: str, deadline: CheckDeadline) -> Iterator[PreflightFinding]:
    try:
        # As dask-gateway does it; its function would import its HTTP client.
        address = template.format(**os.environ)
    except KeyError as error:
        text = f"{redact_url(template)}: environment variable {error} is not set"
        yield PreflightFinding("gateway", "fault", text, f"set it, or change {_SECTION}.address")
        return
    shown = redact_url(address)
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme, 80)
    except ValueError:  # its message may have a part of a password
        text = f"{shown} cannot be read as an address"
        yield PreflightFinding("gateway", "unchecked", text, f"check {_SECTION}.address")
        return
    if parts.scheme in urllib.request.getproxies():
        yield PreflightFinding("gateway", "unchecked", f"{shown} is reached through a proxy")
        return
    try:
        deadline.run(_connect(parts.hostname or "", port, deadline.remaining))
    except TimeoutError:
        yield PreflightFinding("gateway", "unchecked", f"{shown} has not answered yet")
    except OSError as error:
        # The text of asyncio, "Connect call failed", does not say why.
        number = error.errno or 0  # that of an unknown host is negative
        reason = os.strerror(number) if number > 0 else error.strerror or error
        text = f"{shown} cannot be reached: {reason}"
        yield PreflightFinding("gateway", "fault", text, f"check {_SECTION}.address")
    else:
        yield PreflightFinding("gateway", "ok", f"{shown} answers")
    text = "the packages of the workers are compared when the first of them run"
    yield PreflightFinding("versions", "unchecked", text)


async def _connect(host: str, port: int, seconds: float) -> None:
    """Open a connection and close it."""
    _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
    writer.close()
