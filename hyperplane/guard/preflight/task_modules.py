"""Modules that the tasks of a collection need, by pickling its graph without keeping the result."""

from __future__ import annotations

import inspect
import io
import time
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle

from hyperplane.guard.preflight.imported_names import list_code_imports

#: Seconds after which a large graph is not searched further.
_SECONDS = 1.0


class TaskModules(NamedTuple):
    """Modules of the tasks of a collection, or of a function.

    Parameters
    ----------
    needed : frozenset of str
        Top-level modules that workers import to load the tasks.
    imported : frozenset of str
        Modules that functions of the tasks import when they run, if they do.
    certain : frozenset of str
        Top-level modules among them that these functions import whenever they run.
    """

    needed: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    certain: frozenset[str] = frozenset()


class _DiscardingFile(io.RawIOBase):
    """File whose content is discarded, as graphs may contain large data, within a time limit."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _SECONDS

    def check_time(self) -> None:
        """Raise a TimeoutError after the limit."""
        if time.monotonic() > self._end:
            raise TimeoutError

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Discard a frame of 64 KiB: the only sign of the time that a list of texts takes."""
        self.check_time()
        return len(data)


class _ModuleCollector(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Pickler that collects the modules which a worker imports to load the result."""

    def __init__(self) -> None:
        self._file = _DiscardingFile()
        # Protocol 5 hands large buffers to the callback instead of copying them.
        super().__init__(self._file, protocol=5, buffer_callback=lambda _: None)
        self.modules: set[str] = set()
        self.imported: set[str] = set()
        self.certain: set[str] = set()
        self._codes: set[CodeType] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Record the module of each object that is pickled by reference."""
        self._file.check_time()
        result = super().reducer_override(obj)
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        elif result is NotImplemented and (inspect.isroutine(obj) or isinstance(obj, type)):
            module = getattr(obj, "__module__", None)
            if isinstance(module, str):
                self.modules.add(module)
        elif isinstance(obj, FunctionType):  # pickled by value
            self._add_imports(obj)
        return result

    def _add_imports(self, function: FunctionType) -> None:
        if function.__code__ in self._codes:
            return
        self._codes.add(function.__code__)
        package = function.__globals__.get("__package__")
        package = package if isinstance(package, str) else ""
        self.imported.update(list_code_imports(function.__code__, package))
        names = list_code_imports(function.__code__, package, certain=True)
        self.certain.update(name.partition(".")[0] for name in names)


def find_task_modules(collection: Any) -> TaskModules:
    """Return the modules that workers import to compute a collection or call a function.

    Incomplete if the graph is very large or cannot be pickled; Dask then reports the error.

    Examples
    --------
    >>> import json
    >>> "json" in find_task_modules(lambda text: json.loads(text)).needed
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
    needed = frozenset(name.partition(".")[0] for name in collector.modules)
    return TaskModules(needed, frozenset(collector.imported), frozenset(collector.certain))
