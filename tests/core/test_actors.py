"""Calls of actors."""

from __future__ import annotations

from typing import Any

import pytest

from hyperplane.core.dask_internals.actors import call_actor


class LateFuture:
    """Future whose result arrives just after the first wait has timed out."""

    def __init__(self, value: Any) -> None:
        self.value, self.waits = value, 0

    def done(self) -> bool:
        return True

    def result(self, timeout: float) -> Any:
        self.waits += 1
        if self.waits == 1:
            raise TimeoutError
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Server:
    """Actor with one method."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def push(self) -> LateFuture:
        return LateFuture(self.value)


def test_a_result_that_arrives_after_a_wait_is_returned() -> None:
    assert call_actor(Server(5), "push", timeout=1.0) == 5


def test_a_timeout_error_of_the_method_is_raised() -> None:
    with pytest.raises(TimeoutError, match="of the method"):
        call_actor(Server(TimeoutError("of the method")), "push", timeout=1.0)
