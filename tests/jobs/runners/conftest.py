"""Services that several files of tests of runners use."""

from __future__ import annotations

from collections.abc import Iterator

import batch_service
import pytest


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of Amazon's services that runs for the test session."""
    with batch_service.running_moto(tmp_path_factory.mktemp("moto")) as url:
        yield url
