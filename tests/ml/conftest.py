"""One cluster for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hyperplane


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Client of two worker processes with one thread each."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=0.5
    )
    yield client
    client.close()
    cluster.close()
