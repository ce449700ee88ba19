"""Futures are yielded when they are done, and a closed client ends the wait."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest

from hyperplane.core import progress
from hyperplane.core.progress import iterate_completed


class FakeAsCompleted(deque[int]):
    """Futures that are done, and a number of futures that are not."""

    pending = 0

    def is_empty(self) -> bool:
        return not self and not self.pending

    def has_ready(self) -> bool:
        return bool(self)

    def __next__(self) -> int:
        return self.popleft()


def test_futures_may_be_added_meanwhile() -> None:
    running = FakeAsCompleted([1, 2])
    found = []
    for number in iterate_completed(SimpleNamespace(status="running"), running):
        found.append(number)
        if number == 2:
            running.append(3)
    assert found == [1, 2, 3]


@pytest.mark.parametrize("status", ["closing", "closed"])
def test_a_closed_client_ends_the_wait(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client, running = SimpleNamespace(status="running"), FakeAsCompleted([1])
    running.pending = 1
    # The client closes while the next future is awaited.
    monkeypatch.setattr(progress.time, "sleep", lambda seconds: setattr(client, "status", status))
    found = iterate_completed(client, running)
    assert next(found) == 1
    with pytest.raises(CancelledError, match="client was closed"):
        next(found)
