"""Talking to a gateway's server: who asks, for how long, and what went wrong in plain words."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from dask_gateway import Gateway, GatewayClusterError
from dask_gateway.client import GatewayServerError

from hyperplane.engines.dask_settings import in_force
from hyperplane.errors import EngineError, HyperplaneError, StartFailed
from hyperplane.spec.settings import GatewaySettings

ENGINE = "gateway"
#: Seconds that the server may take for an answer.
ANSWER_WITHIN = 30.0
_SECTION = "hyperplane.engines.gateway"
#: What dask-gateway's client raises for a server that refuses or does not answer.
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
    """A client of a gateway's server that can be closed twice, and by the garbage collector.

    dask-gateway's own waits for its event loop as it is collected. Where the collector happens to
    run in the thread of that loop, the loop waits for itself, and every client on it hangs.
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
    """Whether this is the thread of the event loop that the gateway's client uses."""
    try:
        return asyncio.get_running_loop() is gateway._loop_runner._loop.asyncio_loop
    except RuntimeError:
        return False


def connection_settings(settings: GatewaySettings) -> dict[str, Any]:
    """How to get to the server, as dotted settings of dask-gateway; what is not here is its own.

    The password is the name of a variable, which dask-gateway fills in.
    """
    found: dict[str, Any] = {
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
        found["gateway.auth.kwargs"] = {key: value for key, value in credentials.items() if value}
    return {key: value for key, value in found.items() if value is not None}


def open_gateway(connection: Mapping[str, Any]) -> Gateway:
    """A client of the server; it contacts nothing yet.

    Parameters
    ----------
    how : mapping
        As :func:`reach` gives it.

    Raises
    ------
    EngineError
        When a variable is not set or no address is known.
    """
    try:
        with in_force(connection):
            return SafeGateway()
    except KeyError as error:
        raise EngineError(
            ENGINE, f"variable {error} is not set, which holds the password or another secret"
        ) from None
    except ValueError as error:
        advice = f"{_SECTION}.address and .auth say where and who, or dask-gateway's own settings"
        raise EngineError(ENGINE, f"{error}; {advice}") from error


def call(gateway: Gateway, method: str, *arguments: Any, **options: Any) -> Any:
    """An answer of the server, or an error after :data:`ANSWER_WITHIN` seconds.

    Parameters
    ----------
    gateway : Gateway
        From :func:`opened`.
    question : str
        Name of one of its coroutines, without the line before it.
    """
    # Its public methods wait for five minutes.
    coroutine = getattr(gateway, f"_{method}")

    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine(*arguments, **options), ANSWER_WITHIN)

    return gateway.sync(bounded)


@contextmanager
def translate_errors(gateway: Gateway, kind: type[EngineError] = StartFailed) -> Iterator[None]:
    """Raise what dask-gateway's client raises in the words of this package."""
    try:
        yield
    except FAILURES as error:
        if isinstance(error, HyperplaneError):
            raise
        raise kind(ENGINE, explain_error(error, gateway)) from error


def explain_error(error: Exception, gateway: Gateway) -> str:
    """What an exception of dask-gateway's client means, and what to do."""
    where = f"the gateway at {gateway.address}"
    if isinstance(error, aiohttp.ClientResponseError):
        return _explain_status(error.status, error.message, where, gateway)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerDisconnectedError):
        reason = getattr(error, "strerror", None) or error
        return f"{where} cannot be reached: {reason}. Look at {_SECTION}.address and the server"
    if isinstance(error, asyncio.TimeoutError | TimeoutError):
        return f"{where} did not answer within {ANSWER_WITHIN:g} s; is the server overloaded?"
    if isinstance(error, ImportError):
        return f"auth needs a package that is not installed: {error.name}"
    if isinstance(error, OSError):
        return (
            f"the scheduler cannot be reached through the proxy {gateway.proxy_address} of "
            f"{where}: {error}. Look at {_SECTION}.proxy_address"
        )
    return f"{where} says: {error}"


def _explain_status(status: int, message: str, where: str, gateway: Gateway) -> str:
    if status == 401:
        name = getattr(gateway.auth, "username", None)
        who = f"user {name!r}" if name else "this user"
        return (
            f"{where} does not let {who} in (401). The user and the variable with the password "
            f"are {_SECTION}.username and .password_variable, or gateway.auth of dask-gateway"
        )
    if status == 403:
        return f"{where} forbids it (403): {message}"
    if status in {502, 503, 504}:
        return f"the server behind {where} does not answer ({status}); try again, or tell its admin"
    return f"{where} answered {status}: {message}"
