"""Modules that the tasks of a collection need, by pickling its graph without keeping the result."""

from __future__ import annotations

import inspect
import io
import time
from contextlib import suppress
from types import ModuleType
from typing import Any

import cloudpickle

#: Seconds after which a large graph is not searched further.
_SECONDS = 1.0


class _DiscardingFile(io.RawIOBase):
    """File whose content is discarded: graphs may contain large data."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


class _ModuleCollector(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Pickler that collects the modules which a worker imports to load the result."""

    def __init__(self) -> None:
        # Protocol 5 hands large buffers to the callback instead of copying them.
        super().__init__(_DiscardingFile(), protocol=5, buffer_callback=lambda _: None)
        self.modules: set[str] = set()
        self._deadline = time.monotonic() + _SECONDS

    def reducer_override(self, obj: Any) -> Any:
        """Record the module of each object that is pickled by reference."""
        if time.monotonic() > self._deadline:
            raise TimeoutError
        result = super().reducer_override(obj)
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        elif result is NotImplemented and (inspect.isroutine(obj) or isinstance(obj, type)):
            module = getattr(obj, "__module__", None)
            if isinstance(module, str):
                self.modules.add(module)
        return result


def find_task_modules(collection: Any) -> set[str]:
    """Return the top-level modules that workers import to compute a collection or call a function.

    Incomplete if the graph is very large or cannot be pickled; Dask then reports the error.

    Examples
    --------
    >>> import json
    >>> "json" in find_task_modules(lambda text: json.loads(text))
    True
    """
    # An expression is small; its graph may have a million tasks.
    content = getattr(collection, "expr", None)
    if content is None:
        graph = getattr(collection, "__dask_graph__", None)
        content = graph() if callable(graph) and not isinstance(collection, type) else collection
    collector = _ModuleCollector()
    with suppress(Exception):  # objects of the user may raise anything while they are pickled
        collector.dump(content)
    return {name.partition(".")[0] for name in collector.modules}
