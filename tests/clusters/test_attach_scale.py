"""Scale a cluster from another object than that of its owner."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from distributed.core import Status
from subprograms import wait_until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask import attach
from hyperplane.clusters.dask.attach import (
    AdaptiveLimits,
    AttachedCluster,
    attach_asynchronously,
)
from hyperplane.clusters.dask.owner_requests import ADAPT_OWNER, SCALE_OWNER, OwnerPlugin
from hyperplane.core.dask_internals.clients import get_adaptive

pytestmark = [pytest.mark.usefixtures("few_imports"), pytest.mark.cluster]


def start(name: str, nodes: Any = 1) -> Any:
    return hyperplane.start(
        hyperplane.plan_cluster(
            num_workers=nodes, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact",
            name=name,
        )
    )  # fmt: skip


def faults(call: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(hyperplane.RequestError) as caught:
        call()
    return [(fault.where, fault.allowed) for fault in caught.value.faults]


@pytest.mark.slow
def test_an_attached_object_scales_and_adapts_the_cluster_of_the_owner() -> None:
    client, cluster = start("scaled")
    with cluster, client:
        other, handle = hyperplane.get_cluster("scaled")
        handle.scale(2)
        client.wait_for_workers(2, timeout=120)
        assert len(cluster.worker_spec) == 2
        assert handle.adapt(minimum=0, maximum=2) == AdaptiveLimits(0, 2)
        owned = get_adaptive(cluster)
        assert (owned.minimum, owned.maximum) == (0, 2)
        wait_until(lambda: not client.nthreads(), 120)  # there is no work
        assert other.submit(sum, [1, 2]).result(timeout=120) == 3
        assert handle.adapt() == AdaptiveLimits(0, math.inf)
        assert get_adaptive(cluster).maximum == math.inf
        handle.scale(1)
        assert get_adaptive(cluster) is None, "it would undo the change"
        assert len(cluster.worker_spec) == 1
        whole = "a whole number, 0 or more"
        for n in (-1, 2.5, "2", True, None):
            assert faults(partial(handle.scale, n)) == [("n", whole)]
        assert faults(partial(handle.adapt, minimum=-1, maximum=0)) == [
            ("minimum", whole),
            ("maximum", "a whole number, 1 or more"),
        ]
        assert faults(partial(handle.adapt, minimum=3, maximum=2)) == [
            ("minimum", "at most maximum, which is 2")
        ]
        assert len(cluster.worker_spec) == 1
        other.close()
        handle.detach()


def test_limits_of_an_adaptive_plan_are_read_and_changed_with_its_class() -> None:
    client, cluster = start("adaptive", (1, 2))
    with cluster, client:
        planned = get_adaptive(cluster)

        async def use() -> None:
            [record] = records.read_all()
            handle = await attach_asynchronously(record)
            assert handle.asynchronous
            assert await handle.read_limits() == (1, 2)
            assert handle.adapt(minimum=1, maximum=2) == (1, 2)
            await asyncio.gather(*handle._requests)
            assert get_adaptive(cluster) is planned, "the same limits change nothing"
            assert handle.adapt(minimum=0, maximum=1) == (0, 1)
            await asyncio.gather(*handle._requests)
            assert await handle.read_limits() == (0, 1)
            await handle.scale(1)
            assert await handle.read_limits() is None
            assert len(handle.scheduler_info["workers"]) <= 1
            await handle.close_handle()

        asyncio.run(use())
        # Its options of the plan, such as the processes of a node, are unknown to Dask's own class.
        assert type(cluster._adaptive) is type(planned)
        assert cluster.status == Status.running
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3


def test_requests_that_a_scheduler_or_its_process_does_not_take(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = start("refusing")
    with cluster, client:
        handlers = cluster.scheduler.handlers
        scale = handlers.pop(SCALE_OWNER)
        adapt = handlers.pop(ADAPT_OWNER)
        other, handle = hyperplane.get_cluster("refusing")
        with pytest.raises(hyperplane.EngineError, match="scaled only by the process that started"):
            handle.scale(2)

        async def adapt_without_handler() -> None:
            [record] = records.read_all()
            attached = await attach_asynchronously(record)
            attached.adapt(maximum=2)  # it returns before the owner has answered
            await asyncio.gather(*attached._requests)
            await attached.close_handle()

        asyncio.run(adapt_without_handler())
        assert "cluster refusing does not adapt: " in caplog.text

        async def never(n: int) -> None:
            await asyncio.sleep(600)

        handlers[SCALE_OWNER] = never
        monkeypatch.setattr(attach, "ANSWER_SECONDS", 0.2)
        with pytest.raises(hyperplane.EngineError, match=r"did not answer within 0.2 s"):
            handle.scale(2)
        assert len(cluster.worker_spec) == 1
        handlers.update({SCALE_OWNER: scale, ADAPT_OWNER: adapt})
        other.close()
        handle.detach()


def test_a_cluster_that_does_not_answer_leaves_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AttachedCluster] = []

    class Counted(AttachedCluster):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    client, cluster = start("silent")
    with cluster, client:

        async def never(**options: object) -> None:
            await asyncio.sleep(600)

        with monkeypatch.context() as patch:
            patch.setattr(attach, "ANSWER_SECONDS", 0.2)
            patch.setitem(cluster.scheduler.handlers, "identity", never)
            [record] = records.read_all()
            with pytest.raises(hyperplane.EngineError, match="'silent' did not answer"):
                asyncio.run(attach_asynchronously(record, Counted))
        assert [each.status for each in made] == [Status.closed]


def test_requests_to_a_cluster_that_has_ended_do_nothing() -> None:
    class Owner:
        status = Status.closed

    owner = Owner()
    plugin = OwnerPlugin(owner)
    assert plugin.scale_cluster(3)
    assert plugin.adapt_cluster(1, 2)
    assert plugin.read_limits() is None
    plugin.close_cluster()
    del owner
    assert plugin.scale_cluster(3)
