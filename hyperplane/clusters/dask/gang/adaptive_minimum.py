"""Minimum of an adaptive cluster while gangs run that need more workers."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

_LOCK = threading.Lock()
#: Adaptive object -> its minimum without gangs, and the number of workers that each gang needs.
_NEEDS: WeakKeyDictionary[Any, tuple[int, dict[str, int]]] = WeakKeyDictionary()


def raise_minimum(adaptive: Any, gang: str, workers: int) -> None:
    """Let a cluster have at least as many workers as a gang needs, until ``restore_minimum``."""
    with _LOCK:
        original, needs = _NEEDS.setdefault(adaptive, (adaptive.minimum, {}))
        needs[gang] = workers
        adaptive.minimum = max(original, *needs.values())


def restore_minimum(adaptive: Any, gang: str) -> None:
    """Set the minimum that a cluster has without a gang; may be called again."""
    with _LOCK:
        original, needs = _NEEDS.get(adaptive, (0, {}))
        if needs.pop(gang, None) is None:
            return
        adaptive.minimum = max([original, *needs.values()])
        if not needs:
            del _NEEDS[adaptive]
