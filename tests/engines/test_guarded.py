"""Closing a cluster from two threads."""

from __future__ import annotations

from typing import Any

import pytest
from distributed.core import Status

from hyperplane.engines.guarded import GuardedCluster


class Ended(GuardedCluster):
    """A cluster whose loop stops while ``close`` waits for it, as Dask's sync() then has it."""

    def __init__(self, status: Status) -> None:
        self._client, self._given = None, status

    @property
    def status(self) -> Any:
        return self._given

    def close(self, timeout: float | None = None) -> Any:
        raise UnboundLocalError("cannot access local variable 'result'")

    def __del__(self) -> None:
        """There is nothing to close."""


def test_a_cluster_that_another_thread_has_closed_meanwhile() -> None:
    Ended(Status.closed).close_all()


def test_a_cluster_that_is_not_closed_is_no_success() -> None:
    with pytest.raises(UnboundLocalError):
        Ended(Status.closing).close_all()
