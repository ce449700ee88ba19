"""Ranks of estimators without a gang, for tests of many small trainings, and with TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hyperplane


@pytest.fixture(scope="module")
def keras_client() -> Iterator[Any]:
    """Client of two worker processes with one thread each, and memory for TensorFlow."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=2.5, local_fit="exact"
    )
    yield client
    client.close()
    cluster.close()


@pytest.fixture(scope="module")
def local_ranks():
    """Client whose estimators run their ranks in forked processes; give them ``ranks``."""
    from distributed import Client
    from local_ranks import RankServer

    from hyperplane.ml.estimators import network_estimator

    with (
        Client(
            processes=False, dashboard_address=":0", n_workers=1, threads_per_worker=2
        ) as client,
        pytest.MonkeyPatch.context() as patch,
        RankServer() as server,
    ):
        patch.setattr(network_estimator, "gang", server)
        yield client
