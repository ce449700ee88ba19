"""``init_orca_context`` on the ssh engine: sizes of workers, and shards on two hosts."""

from __future__ import annotations

import numpy as np
import pytest
from services_ssh import SMALL, network, nothing_left, surroundings

from hyperplane.ml import XShards
from hyperplane.orca import init_orca_context, stop_orca_context

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures


def test_an_orca_context_has_its_cores_and_memory_on_each_host() -> None:
    others = {name: value for name, value in SMALL.items() if name not in _OF_ORCA}
    client = init_orca_context("standalone", cores=2, memory="1g", num_nodes=2, **others)
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [(each["nthreads"], each["memory_limit"]) for each in workers]
        assert limits == [(1, 500_000_000)] * 4
        assert len({each["host"] for each in workers}) == 2
        shards = XShards.partition(np.arange(10), num_shards=8)
        assert [len(held) for held in client.has_what().values()] == [2, 2, 2, 2]
        assert sum(shards.transform_shard(np.sum).collect()) == 45
    finally:
        stop_orca_context()


_OF_ORCA = ("num_workers", "nprocs", "nthreads", "cores_per_worker", "ram_gb_per_proc", "engine")
