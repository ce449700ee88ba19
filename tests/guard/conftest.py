"""Fixture: a separate temporary directory for each test, which hides clusters of other programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from services import temporary_directory


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # pytest keeps its directory until the process ends, so it must not be in that of a test.
    tmp_path_factory.getbasetemp()
    with temporary_directory():
        yield
