"""Requests to a gateway server: connection settings, time limits, explained errors."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from dask_gateway import Gateway, GatewayClusterError
from dask_gateway.client import GatewayServerError

from hyperplane.clusters.dask.settings import in_force
from hyperplane.core.errors import EngineError, HyperplaneError, StartFailed
from hyperplane.objectstore.redaction import redact_url
from hyperplane.spec.settings import GatewaySettings

ENGINE = "gateway"
#: Seconds that the server may take to answer.
ANSWER_SECONDS = 30.0
_SECTION = "hyperplane.engines.gateway"
#: Exceptions of dask-gateway's client for a server that refuses or does not answer.
FAILURES = (
    aiohttp.ClientError,
    GatewayClusterError,
    GatewayServerError,
    OSError,
    asyncio.TimeoutError,
    ValueError,
    ImportError,
)


class SafeGateway(Gateway):  # type: ignore[misc]
    """Client of a gateway server that can be closed twice, and by the garbage collector.

    dask-gateway's ``__del__`` waits for the client's event loop. If the garbage collector runs in
    the thread of that loop, the loop waits for itself and every client on it hangs.
    """

    def close(self) -> None:
        """Close the connections."""
        if not self._loop_runner.is_started():
            return
        if is_loop_thread(self):
            self._cleaning = asyncio.ensure_future(self._cleanup())
        else:
            super().close()

    def __del__(self) -> None:
        if hasattr(self, "_loop_runner") and not sys.is_finalizing():
            self.close()


def is_loop_thread(gateway: Gateway) -> bool:
    """Return whether the current thread runs the event loop of the gateway's client."""
    try:
        return asyncio.get_running_loop() is gateway._loop_runner._loop.asyncio_loop
    except RuntimeError:
        return False


def connection_settings(settings: GatewaySettings) -> dict[str, Any]:
    """Return the dotted dask-gateway settings with which to reach the server.

    Settings that are not in the result come from dask-gateway's configuration. The password is a
    reference to an environment variable, which dask-gateway resolves.
    """
    connection: dict[str, Any] = {
        "gateway.address": settings.address,
        "gateway.proxy-address": settings.proxy_address,
        "gateway.public-address": settings.public_address,
        "gateway.auth.type": settings.auth,
    }
    if settings.auth:
        secret = "api_token" if settings.auth == "jupyterhub" else "password"
        variable = settings.password_variable
        credentials = {
            "username": settings.username,
            secret: None if variable is None else f"{{{variable}}}",
        }
        kwargs = {key: value for key, value in credentials.items() if value}
        connection["gateway.auth.kwargs"] = kwargs
    return {key: value for key, value in connection.items() if value is not None}


def open_gateway(connection: Mapping[str, Any]) -> Gateway:
    """Return a client of the server, without contacting it.

    Parameters
    ----------
    connection : mapping
        From :func:`connection_settings`.

    Raises
    ------
    EngineError
        If an environment variable or the address is not set.
    """
    try:
        with in_force(connection):
            return SafeGateway()
    except KeyError as error:
        raise EngineError(
            ENGINE,
            f"environment variable {error} is not set; it must hold the password or another secret",
        ) from None
    except ValueError as error:
        advice = f"set {_SECTION}.address and .auth, or dask-gateway's own settings"
        raise EngineError(ENGINE, f"{error}; {advice}") from error


def describe_address(gateway: Gateway) -> str:
    """Return the address of a gateway without user and password."""
    return redact_url(gateway.address)


def call(
    gateway: Gateway,
    method: str,
    *arguments: Any,
    within: float | None = None,
    **options: Any,
) -> Any:
    """Call a coroutine of the client, with a time limit.

    Parameters
    ----------
    gateway : Gateway
        From :func:`open_gateway`.
    method : str
        Name of the coroutine without its leading underscore.
    within : float
        Seconds that it may take, by default ``ANSWER_SECONDS``.
    """
    seconds = ANSWER_SECONDS if within is None else within
    # Not the public methods, which wait for five minutes.
    coroutine = getattr(gateway, f"_{method}")

    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine(*arguments, **options), seconds)

    return gateway.sync(bounded)


@contextmanager
def translate_errors(gateway: Gateway, kind: type[EngineError] = StartFailed) -> Iterator[None]:
    """Convert exceptions of dask-gateway's client to EngineErrors with advice."""
    try:
        yield
    except FAILURES as error:
        if isinstance(error, HyperplaneError):
            raise
        raise kind(ENGINE, explain_error(error, gateway)) from error


def explain_error(error: Exception, gateway: Gateway) -> str:
    """Return the meaning of an exception of dask-gateway's client, and advice."""
    where = f"the gateway at {describe_address(gateway)}"
    if isinstance(error, aiohttp.ClientResponseError):
        return _explain_status(error.status, error.message, where, gateway)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerDisconnectedError):
        reason = getattr(error, "strerror", None) or error
        return f"{where} cannot be reached: {reason}. Check {_SECTION}.address and the server"
    if isinstance(error, asyncio.TimeoutError | TimeoutError):
        return f"{where} did not answer within {ANSWER_SECONDS:g} s; is the server overloaded?"
    if isinstance(error, ImportError):
        return (
            f"auth needs a package that is not installed: {error.name}. Install it, or set "
            f"{_SECTION}.auth to another kind"
        )
    if isinstance(error, OSError):
        return (
            "the scheduler cannot be reached through the proxy "
            f"{redact_url(gateway.proxy_address)} of {where}: {error}. "
            f"Check {_SECTION}.proxy_address"
        )
    return f"{where} reports: {error}"


def _explain_status(status: int, message: str, where: str, gateway: Gateway) -> str:
    if status == 401:
        name = getattr(gateway.auth, "username", None)
        who = f"user {name!r}" if name else "this user"
        return (
            f"{where} refuses the login of {who} (401). Set user and password with "
            f"{_SECTION}.username and .password_variable, or with gateway.auth of dask-gateway"
        )
    if status == 403:
        return f"{where} forbids the request (403): {message}. Ask its administrator"
    if status in {502, 503, 504}:
        return (
            f"the server behind {where} does not answer ({status}); try again, or ask its "
            "administrator"
        )
    return f"{where} answered {status}: {message}"
