"""Dask graphs of bags; the layer of a bag read from files has a description of its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dask.bag import Bag
from dask.bag.core import reify
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.records import ReadSettings
from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.core.errors import Fault


@dataclass(frozen=True)
class BagSource:
    """Files of a bag, and the filter and field selection that apply to their records."""

    settings: ReadSettings
    parts: Sequence[BagPartition]
    where: Any = None
    fields: Any = None
    token: str = ""


class BagSourceLayer(MaterializedLayer):
    """Graph layer of a bag read directly from files; helpers can replace its reading tasks."""

    def __init__(self, tasks: dict[Any, Any], source: BagSource) -> None:
        super().__init__(tasks)
        self.source = source


def get_bag_source(bag: Bag) -> BagSource | None:
    """Return the source of a bag read directly from files, else None."""
    layer = bag.dask.layers.get(bag.name)
    return layer.source if isinstance(layer, BagSourceLayer) else None


def read_bag(label: str, function: Callable[..., Any], source: BagSource) -> Bag:
    """Return a bag of ``function(settings, part, where, fields)`` for each part of a source."""
    name = f"{label}-{tokenize(source.token, source.where, source.fields)}"
    tasks = {
        (name, i): make_lazy_task(
            (name, i), function, source.settings, part, source.where, source.fields
        )
        for i, part in enumerate(source.parts)
    }
    layer = BagSourceLayer(tasks, source)
    return Bag(HighLevelGraph.from_collections(name, layer), name, len(tasks))


def map_partitions(bag: Bag, label: str, function: Callable[..., Any], *arguments: Any) -> Bag:
    """Return a bag of the iterators ``function(partition, *arguments)``."""
    name = f"{label}-{tokenize(bag, function, *arguments)}"
    tasks = {
        (name, i): make_lazy_task((name, i), function, TaskRef((bag.name, i)), *arguments)
        for i in range(bag.npartitions)
    }
    return Bag(make_graph(name, tasks, [bag]), name, bag.npartitions)


def make_graph(name: str, tasks: Any, dependencies: Any) -> HighLevelGraph:
    """Return a graph with a layer of tasks; untyped, because Dask's hints omit Task and Bag."""
    return HighLevelGraph.from_collections(name, tasks, dependencies)


def make_lazy_task(key: Any, function: Callable[..., Any], *arguments: Any) -> Task:
    """Return a task for a function that returns an iterator.

    The iterator becomes a list, unless Dask fuses the task with the next one.
    """
    return Task(key, reify, Task(None, function, *arguments))


def find_bag_faults(bag: Any) -> list[Fault]:
    """Return a fault if the argument is not a bag."""
    if isinstance(bag, Bag):
        return []
    return [Fault("bag", f"a {type(bag).__name__}", "a dask.bag.Bag")]
