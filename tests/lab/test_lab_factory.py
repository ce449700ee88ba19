"""``hyperplane.lab.start_cluster`` on an event loop, as dask-labextension calls it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed import Client
from lab_server import SMALL

import hyperplane
from hyperplane import lab
from hyperplane.clusters import records
from hyperplane.lab import factory


@pytest.mark.slow
@pytest.mark.cluster
def test_it_starts_a_cluster_of_this_process_that_is_used_on_the_event_loop() -> None:
    async def use() -> None:
        # Positional arguments are those of labextension.factory.args.
        arguments = {**SMALL, "local_fit": "exact", "nprocs": 1, "name": "of-pane"}
        cluster = await lab.start_cluster(arguments.pop("num_workers"), **arguments)
        [record] = records.read_all()
        assert record.name == cluster.name == "of-pane"
        assert type(cluster).__name__ == "HyperplaneCluster", "which the pane shows"
        assert list(factory.owners) == [cluster.scheduler_address]
        [owner] = factory.owners.values()
        assert owner.cluster_plan.dask_workers == 1
        assert len(cluster.scheduler_info["workers"]) == 1
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            assert await client.submit(sum, [1, 2]) == 3
        with pytest.raises(hyperplane.EngineError, match="already running"):
            await lab.start_cluster(**SMALL, name="of-pane")
        assert cluster.adapt(minimum=None, maximum=None) == (0, float("inf"))
        await cluster.close()
        assert records.read_all() == []
        assert owner.status.name == "closed"
        factory.forget_closed()
        assert factory.owners == {}

    asyncio.run(use())
    assert factory.starting == set()


def start(**arguments: Any) -> None:
    asyncio.run(lab.start_cluster(**arguments))


def test_wrong_arguments_are_faults_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(hyperplane.RequestError, match="treads=2: unknown argument") as unknown:
        start(treads=2)
    assert "nothing was started" in str(unknown.value)
    with pytest.raises(hyperplane.RequestError, match=r"nprocs = 'many'"):
        start(nprocs="many")
    with pytest.raises(hyperplane.RequestError, match=r"asynchronous = False: expected True"):
        start(asynchronous=False)
    monkeypatch.setattr(factory, "ENGINES", ("ssh", "slurm"))
    with pytest.raises(hyperplane.RequestError) as engine:
        start(**SMALL)
    assert "nothing was started" in str(engine.value)
    assert "engine = 'local': expected one of ssh, slurm in the pane" in str(engine.value)
    assert "start other clusters in a notebook" in str(engine.value)
    assert records.read_all(starting=True) == []
    assert factory.starting == set()


@pytest.mark.cluster
def test_a_cluster_that_cannot_be_listed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(record: records.ClusterRecord, cluster_class: type) -> None:
        raise hyperplane.EngineError(record.engine, f"{record.name} did not answer")

    monkeypatch.setattr(factory, "attach_asynchronously", refuse)
    with pytest.raises(hyperplane.EngineError, match="silent did not answer"):
        start(**SMALL, name="silent")
    monkeypatch.setattr(factory, "read_records", list)
    with pytest.raises(hyperplane.EngineError, match="'ended' has ended before it was listed"):
        start(**SMALL, name="ended")
    assert records.read_all(starting=True) == []
    assert (factory.owners, factory.starting) == ({}, set())
