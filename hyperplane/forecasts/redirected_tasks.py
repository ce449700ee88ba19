"""Tasks as a sample runs them: those that write do so in a local folder instead of their target."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.core.dask_internals.tasks import GraphNode, Task, TaskRef
from hyperplane.forecasts.task_units import Key
from hyperplane.storage.save_tasks import OutputTask, SaveStarter


def find_starters(graph: Mapping[Key, Any]) -> dict[Key, SaveStarter[Any]]:
    """Return the first tasks of ``hyperplane.save(..., compute=False)`` in a graph.

    Tasks that read a partition and write it depend on them, and read nothing else: without these
    small values they are first tasks, whose files have sizes.
    """
    functions = {key: getattr(node, "func", None) for key, node in graph.items()}
    return {key: each for key, each in functions.items() if isinstance(each, SaveStarter)}


def redirect(node: Any, folder: str, starters: Mapping[Key, SaveStarter[Any]]) -> Any:
    """Return a task that writes to a local folder instead of its target.

    It does not depend on the first tasks of saves, whose results it has.
    """
    node = _redirect_output(node, folder)
    starts = {
        key: starters[key].make_sample(folder) for key in node.dependencies if key in starters
    }
    if not starts:
        return node
    others = [key for key in node.dependencies if key not in starts]
    return Task(node.key, _StartedTask(node, starts, others), *map(TaskRef, others))


def _redirect_output(node: Any, folder: str) -> Any:
    """Return a task that writes to a local folder, also if it was fused with others."""
    function: Any = getattr(node, "func", None)
    if isinstance(function, OutputTask):
        return _with_function(node, function.redirect(folder))
    if type(function).__name__ == "ToParquetFunctionWrapper":
        from fsspec.implementations.local import LocalFileSystem

        changed = copy.copy(function)
        changed.path, changed.fs = folder, LocalFileSystem()
        return _with_function(node, changed)
    if "toparquetbarrier" in str(node.key[0] if isinstance(node.key, tuple) else node.key):
        return Task(node.key, _ignore, *(TaskRef(each) for each in node.dependencies))
    inner = node.args[0] if getattr(node, "args", ()) else None
    if isinstance(inner, Mapping) and all(isinstance(each, GraphNode) for each in inner.values()):
        redirected = {key: _redirect_output(each, folder) for key, each in inner.items()}
        if any(redirected[key] is not inner[key] for key in inner):
            return Task(node.key, function, redirected, *node.args[1:], **(node.kwargs or {}))
    return node


class _StartedTask:
    """Function that runs a task with the starts of saves, and its other inputs as arguments."""

    def __init__(self, node: Any, starts: Mapping[Key, Any], others: Sequence[Key]) -> None:
        self.node, self.starts, self.others = node, starts, others

    def __call__(self, *inputs: Any) -> Any:
        return self.node({**self.starts, **dict(zip(self.others, inputs, strict=True))})


def _with_function(node: Any, function: Any) -> Any:
    return Task(node.key, function, *node.args, **(node.kwargs or {}))


def _ignore(*results: Any) -> None:
    """Take the place of a task that writes the list of written files."""
    del results
