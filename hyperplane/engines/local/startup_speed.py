"""What makes a start quick in the process of the caller."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


def import_in_background(modules: Sequence[str]) -> threading.Thread:
    """Import in a thread what the workers import, while they do: the caller needs it next."""

    def load() -> None:
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="hyperplane-import", daemon=True)
    thread.start()
    return thread


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    A start imports some hundred thousand objects that live for ever. The collector would look
    through them again and again, for a fifth of the time. Afterwards all that lives is counted as
    old without being looked at; it stays collectable.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:  # else the caller has frozen objects for good
                gc.freeze()
                gc.unfreeze()
            gc.enable()
