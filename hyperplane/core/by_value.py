"""Pickle classes and functions of modules with their code, for processes without this package."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

#: cloudpickle has one table for the process, and clusters may start in several threads.
_lock = threading.RLock()
_uses: Counter[str] = Counter()


@contextmanager
def pickled_by_value(*modules: ModuleType) -> Iterator[None]:
    """Pickle what modules define by value during the block; blocks may be nested.

    Other threads wait until the block has ended, so that they pickle by reference as before.
    """
    import cloudpickle

    with _lock:
        for module in modules:
            if not _uses[module.__name__]:
                cloudpickle.register_pickle_by_value(module)
            _uses[module.__name__] += 1
        try:
            yield
        finally:
            for module in modules:
                _uses[module.__name__] -= 1
                if not _uses[module.__name__]:
                    cloudpickle.unregister_pickle_by_value(module)


def find_own_imports(*roots: ModuleType) -> tuple[ModuleType, ...]:
    """Return modules, and those of the same package from which they import, at any depth.

    These are the modules that ``roots`` need where the package is not installed. Imports within a
    function do not count, nor do those for type checkers.
    """
    found: dict[str, ModuleType] = {}
    pending = list(roots)
    while pending:
        module = pending.pop()
        if module.__name__ in found:
            continue
        found[module.__name__] = module
        package = module.__name__.partition(".")[0] + "."
        for value in vars(module).values():
            is_module = isinstance(value, ModuleType)
            name = value.__name__ if is_module else getattr(value, "__module__", None)
            if isinstance(name, str) and name.startswith(package):
                pending.append(sys.modules[name])
    return tuple(found.values())
