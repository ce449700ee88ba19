"""Forward ports of this machine to a service, through the API server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from kr8s.asyncio.objects import Service

from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.errors import PortForwardError

logger = logging.getLogger(__name__)


class PortForwards:
    """Forwarded ports of one service, open until :meth:`close`.

    They run in a separate thread with its own event loop, so that work in the caller's loop does
    not block the data and :meth:`close` can end them.

    Parameters
    ----------
    service, namespace : str
        The service and its namespace.
    ports : mapping of int to int or None
        Port of the service -> port of this machine; None for any free port.
    """

    def __init__(self, service: str, namespace: str, ports: Mapping[int, int | None]) -> None:
        self._service, self._namespace, self._ports = service, namespace, ports
        self.local: dict[int, int] = {}
        self._error: Exception | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name=f"{service}-ports", daemon=True
        )

    async def open(self) -> None:
        """Return when all ports are open.

        Raises
        ------
        PortForwardError
            If there is no such service, or a port of this machine is in use.
        """
        self._thread.start()
        while not self._ready.is_set():
            await asyncio.sleep(0.01)
        if self._error is not None:
            raise PortForwardError(
                f"no port can be forwarded to service {self._service}: {self._error}. Check that "
                "'kubectl port-forward' works, and that the port of this machine is free"
            ) from self._error

    async def close(self) -> None:
        """Close the ports and their connections; return when the thread has ended."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._stop.set)
        while self._thread.is_alive():
            await asyncio.sleep(0.01)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_log_broken_connection)
        api = KubernetesApi(self._namespace)
        try:
            await api.connect()
            service = await Service.get(self._service, namespace=self._namespace, api=api.kr8s)
            async with AsyncExitStack() as stack:
                for remote, local in self._ports.items():
                    forward: Any = service.portforward(remote, local)
                    self.local[remote] = await stack.enter_async_context(forward)
                self._ready.set()
                await self._stop.wait()
                # Connections first: since Python 3.12 a server that closes waits for them.
                tasks = asyncio.all_tasks() - {asyncio.current_task()}
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except Exception as error:  # noqa: BLE001 - open() raises it; later errors are ignored
            self._error = error
        finally:
            await api.close()
            self._ready.set()


def _log_broken_connection(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a broken connection at debug level; its two ends notice it themselves."""
    del loop
    logger.debug("forwarded port: %s", context.get("exception") or context.get("message"))
