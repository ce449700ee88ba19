"""Steps before the check and the end of a worker process do not hinder the nanny."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tornado.ioloop import PeriodicCallback

from hyperplane.core.dask_internals import nannies


def make_nanny() -> tuple[Any, list[object]]:
    """Return a nanny with the attributes that are replaced, and the calls that it receives."""
    calls: list[object] = []

    async def handle_exit(exit_code: int) -> None:
        calls.append(exit_code)

    timer = PeriodicCallback(lambda: calls.append("check"), 1000)
    nanny = SimpleNamespace(
        periodic_callbacks={"memory_monitor": timer}, _on_worker_exit=handle_exit
    )
    return nanny, calls


async def fail(*_: object) -> None:
    raise OSError("of the test")


def test_the_nanny_goes_on_if_a_step_fails() -> None:
    async def test() -> None:
        nanny, calls = make_nanny()
        timer = nannies.precede_memory_check(nanny, fail)
        nannies.precede_worker_exit(nanny, fail)
        await timer.callback()  # type: ignore[misc]
        await nanny._on_worker_exit(-9)
        assert calls == ["check", -9]

    asyncio.run(test())


def test_the_second_setup_of_a_plugin_replaces_the_first() -> None:
    async def test() -> None:
        nanny, calls = make_nanny()

        async def watch(check: Any) -> None:
            calls.append("watch")
            check()

        async def report(exit_code: int) -> None:
            calls.append("report")

        for _ in range(2):
            timer = nannies.precede_memory_check(nanny, watch)
            nannies.precede_worker_exit(nanny, report)
        await timer.callback()  # type: ignore[misc]
        await nanny._on_worker_exit(1)
        assert calls == ["watch", "check", "report", 1]
        nannies.remove_memory_check(nanny)
        nannies.remove_worker_exit(nanny)
        timer.callback()
        await nanny._on_worker_exit(2)
        assert calls[4:] == ["check", 2]

    asyncio.run(test())


def test_a_worker_without_a_limit_is_watched_once() -> None:
    async def test() -> None:
        nanny, _ = make_nanny()
        nanny.periodic_callbacks = {}
        nanny.start_periodic_callbacks = lambda: None
        first = nannies.precede_memory_check(nanny, fail)
        first.start()
        second = nannies.precede_memory_check(nanny, fail)
        assert not first.is_running()
        assert list(nanny.periodic_callbacks.values()) == [second]
        nannies.remove_memory_check(nanny)
        assert not nanny.periodic_callbacks

    asyncio.run(test())
