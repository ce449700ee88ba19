"""Forwarded ports: open until they are closed, in a thread that ends with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hyperplane.platforms.kubernetes import port_forward
from hyperplane.platforms.kubernetes.errors import ObjectNotFound, PortForwardError
from hyperplane.platforms.kubernetes.port_forward import PortForwards


class Service:
    """A service whose ports are forwarded."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    @asynccontextmanager
    async def portforward(self, remote: int, local: int | None) -> AsyncIterator[int]:
        """Return the port of this machine."""
        connection = asyncio.create_task(asyncio.Event().wait())
        self.open.add(remote)
        try:
            yield local or 40_000 + remote
        finally:
            # Closing a server waits for its connections.
            await asyncio.wait([connection])
            self.open.discard(remote)


class Api:
    """An API object that counts its connections."""

    connections = 0

    def __init__(self, namespace: str) -> None:
        self.namespace, self.kr8s = namespace, None

    async def connect(self) -> None:
        Api.connections += 1

    async def close(self) -> None:
        Api.connections -= 1


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()

    async def get(name: str, **options: Any) -> Service:
        if name != "flights-scheduler":
            raise ObjectNotFound(f"no service {name}")
        return found

    monkeypatch.setattr(port_forward, "KubernetesApi", Api)
    monkeypatch.setattr(port_forward.Service, "get", get)
    return found


def threads() -> list[str]:
    """Return the names of the threads that forward ports."""
    return [one.name for one in threading.enumerate() if one.name.endswith("-ports")]


def test_ports_are_open_until_they_are_closed(service: Service) -> None:
    async def main() -> None:
        forwards = PortForwards("flights-scheduler", "lab", {8786: None, 8787: 18787})
        await forwards.open()
        assert forwards.local == {8786: 48786, 8787: 18787}
        assert service.open == {8786, 8787}
        assert threads() == ["flights-scheduler-ports"]
        await forwards.close()
        await forwards.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert (service.open, threads(), Api.connections) == (set(), [], 0)


def test_a_service_that_does_not_exist_is_named(service: Service) -> None:
    async def main() -> None:
        forwards = PortForwards("other", "lab", {8786: None})
        with pytest.raises(PortForwardError, match=r"forwarded to service other: .*no service"):
            await forwards.open()
        await forwards.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert (threads(), Api.connections) == ([], 0)


def test_ports_that_were_never_opened_can_be_closed() -> None:
    asyncio.run(PortForwards("other", "lab", {}).close())
