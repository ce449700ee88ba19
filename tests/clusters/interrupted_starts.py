"""Raise Ctrl-C at any line of a start, with fake services of the engines in this process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

from distributed.core import PooledRPCCall

import hyperplane
from hyperplane.guard.preflight.environment import EnvironmentRequest, describe_here

PACKAGE = str(Path(hyperplane.__file__).parent)
#: Seconds that a service takes to answer, so that other tasks run meanwhile.
SHORT = 0.002


class Lines:
    """Traces the lines of this package in this thread, and raises Ctrl-C before one of them."""

    def __init__(self, press_before: int = 0) -> None:
        self.press_before = press_before
        self.seen = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self.press_before:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self

    @contextmanager
    def traced(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


class World:
    """The running objects of the fake services, by name."""

    def __init__(self) -> None:
        self.runs: set[str] = set()
        self.begun = 0
        #: Number of started objects at which Ctrl-C is raised, before the answer arrives.
        self.press_at = 0

    def begin(self, name: str) -> str:
        self.begun += 1
        if self.begun == self.press_at:
            signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGINT)
        found = f"{name} {self.begun}"
        self.runs.add(found)
        return found


class OpenClient:
    """A client that is connected at once, with all workers."""

    asynchronous = False

    def __init__(self, cluster: Any, world: World, **options: Any) -> None:
        self.world, self.name = world, world.begin("client")
        # A loop that already has an exception handler.
        self.loop = SimpleNamespace(
            asyncio_loop=SimpleNamespace(get_exception_handler=lambda: id),
            add_callback=lambda callback: None,
        )
        self.scheduler = PooledRPCCall("tcp://127.0.0.1:1", None)
        self._periodic_callbacks: dict[str, Any] = {}

    def __enter__(self) -> OpenClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sync(self, poll: Any, client: Any, number: int, seconds: float, **options: Any) -> int:
        """Wait for workers: return how many are connected."""
        threading.Event().wait(SHORT)
        return number

    def register_plugin(self, plugin: Any) -> None:
        pass

    @property
    def status(self) -> str:
        return "running" if self.name in self.world.runs else "closed"

    def close(self, timeout: float | None = None) -> None:
        self.world.runs.discard(self.name)


class HostConnection:
    """A connection of asyncssh to a host on which every process starts."""

    def __init__(self, world: World, host: str) -> None:
        self.world, self.name, self.mine = world, world.begin(f"connection {host}"), set[str]()

    async def create_process(self, command: str) -> Any:
        await asyncio.sleep(SHORT)
        process = self.world.begin("process")
        self.mine.add(process)
        ended = asyncio.Event()

        def end() -> None:
            self.world.runs.discard(process)
            ended.set()

        async def lines() -> Any:
            await asyncio.sleep(SHORT)
            yield json.dumps(
                {"addresses": ["tcp://127.0.0.1:1"], "cores": 8, "dashboard": 1, "pid": 1}
            )

        async def read(size: int) -> str:
            await ended.wait()
            return ""

        return SimpleNamespace(
            stdin=SimpleNamespace(write=lambda text: None, write_eof=end),
            stdout=_Stream(lines, read),
            stderr=_Stream(lines, read),
            wait_closed=ended.wait,
            is_closing=ended.is_set,
            exit_status=0,
        )

    async def run(self, command: str) -> Any:
        process = self.world.begin("process")
        self.mine.add(process)
        await asyncio.sleep(SHORT)
        self.world.runs.discard(process)
        output = json.dumps({"environment": vars(describe_here(EnvironmentRequest()))})
        return SimpleNamespace(stdout=output, stderr="", exit_status=0)

    def is_closed(self) -> bool:
        return self.name not in self.world.runs

    def close(self) -> None:
        self.world.runs -= {self.name, *self.mine}

    abort = close

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class _Stream:
    def __init__(self, lines: Callable[[], Any], read: Callable[[int], Any]) -> None:
        self.__lines, self.read = lines, read

    def __aiter__(self) -> Any:
        return self.__lines()


class GatewayServer:
    """The requests of the engine to a gateway server, and its clusters."""

    address = "http://gateway.example:80"

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = ""
        self.looks = 0

    async def open_connection(self, host: str, port: int) -> Any:
        await asyncio.sleep(SHORT)
        name = self.world.begin("connection")
        return None, SimpleNamespace(close=partial(self.world.runs.discard, name))

    def ask(self, gateway: Any, question: str, *arguments: Any, **options: Any) -> Any:
        threading.Event().wait(SHORT)
        if question == "submit":
            self.cluster = self.world.begin("cluster")
            return self.cluster
        if question == "cluster_report":
            self.looks += 1
            state = "RUNNING" if self.looks % 3 == 0 else "PENDING"
            return SimpleNamespace(status=SimpleNamespace(name=state))
        if question == "stop_cluster":
            self.world.runs.discard(arguments[0])
        return SimpleNamespace(json=dict)

    def opened(self, how: Any) -> Any:
        name = self.world.begin("gateway")
        close = partial(self.world.runs.discard, name)
        return SimpleNamespace(address=self.address, close=close, sync=lambda call: call())

    def cluster_of(self, gateway: Any, name: str, release: Any, **options: Any) -> Any:
        return _GatewayHandle(self.world, name, release)


class _GatewayHandle:
    scheduler_address = dashboard_link = "gateway://gateway.example/x"

    def __init__(self, world: World, name: str, release: Callable[[], None]) -> None:
        self.world, self.name, self.release = world, name, release

    def connect_timeout(self, within: float) -> float:
        return within

    def remember_client(self, client: Any) -> None:
        pass

    def begin_record(self, recorder: Any) -> None:
        pass

    def close(self) -> None:
        self.world.runs.discard(self.name)
        self.release()


class FakeKubernetesApi:
    """The API of a Kubernetes whose operator reacts at once."""

    kr8s = None
    namespace = "lab"

    def __init__(self, world: World) -> None:
        self.world, self.mine, self.connection = world, "", ""

    async def connect(self) -> None:
        self.connection = self.world.begin("api")

    async def close(self) -> None:
        self.world.runs.discard(self.connection)

    async def create(self, kind: str, content: Any, version: str = "v1") -> Any:
        await asyncio.sleep(SHORT)
        created = self.world.begin(kind)
        if kind == "daskclusters":
            self.mine = created
        else:
            # As the garbage collector of Kubernetes does with objects that the cluster owns.
            self.world.runs.discard(created)
        # The answer takes time, too.
        await asyncio.sleep(SHORT)
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "interrupted", "uid": "1"},
            "spec": {"worker": {"replicas": 1}},
        }

    async def get(self, kind: str, name: str, version: str = "v1") -> Any:
        from hyperplane.platforms.kubernetes.errors import ObjectNotFound

        raise ObjectNotFound(name)

    async def list(self, kind: str, version: str = "v1", **options: Any) -> Any:
        await asyncio.sleep(SHORT)
        return []

    async def list_warnings(self) -> Any:
        return []

    async def delete(self, kind: str, name: str, version: str = "v1") -> None:
        self.world.runs.discard(self.mine)
