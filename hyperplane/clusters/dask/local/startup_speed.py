"""Speed up the start of a cluster in the caller's process."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


def import_in_background(modules: Sequence[str]) -> threading.Thread:
    """Import modules in a thread while the workers import them; the caller needs them next."""

    def load() -> None:
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="hyperplane-import", daemon=True)
    thread.start()
    return thread


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the cyclic garbage collector during the block.

    The imports of a start create some hundred thousand permanent objects, and the collector would
    traverse them repeatedly for a fifth of the time. At the end all objects move to the oldest
    generation without being traversed; they remain collectable.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:  # unfreeze would release objects the caller has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
