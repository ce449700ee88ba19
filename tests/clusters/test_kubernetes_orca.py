"""``init_orca_context`` on the kubernetes engine: sizes of pods, and shards in all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from services import until
from services_kubernetes import LONGEST, clusters, left, objects, service

from hyperplane.ml import XShards
from hyperplane.orca import OrcaContext, init_orca_context, stop_orca_context

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST),
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _kubernetes() -> Iterator[None]:
    with service():
        yield


@pytest.mark.parametrize("mode", ["k8s-client", "k8s"])
def test_an_orca_context_has_its_cores_and_memory_in_each_pod(mode: str) -> None:
    client = init_orca_context(mode, cores=2, memory="1g", num_nodes=2, timeout=150)
    try:
        assert OrcaContext.get_client() is client
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [(each["nthreads"], each["memory_limit"]) for each in workers]
        assert limits == [(1, 500_000_000)] * 4
        [name] = [each.rpartition("/")[2] for each in clusters()]
        assert len(objects("pods", name, "worker")) == 4  # a pod for each worker process
        assert len({each["host"] for each in workers}) == 4
        shards = XShards.partition(np.arange(10), num_shards=8)
        assert [len(held) for held in client.has_what().values()] == [2, 2, 2, 2]
        assert sum(shards.transform_shard(np.sum).collect()) == 45
    finally:
        stop_orca_context()
    until(lambda: not clusters() and not left("deployments,services,secrets"))
