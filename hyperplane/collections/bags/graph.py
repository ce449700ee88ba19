"""Layers of Dask graphs: what a bag reads is written in its layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.bag import Bag
from dask.bag.core import reify
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.records import ReadSettings
from hyperplane.errors import Fault


@dataclass(frozen=True)
class BagSource:
    """What a bag reads: from where, which part in each partition, and which records of them."""

    settings: ReadSettings
    parts: Sequence[BagPartition]
    where: Any = None
    fields: Any = None
    token: str = ""


class BagSourceLayer(MaterializedLayer):
    """The layer of a bag that comes straight from files, so that helpers may read it their way."""

    def __init__(self, tasks: dict[Any, Any], source: BagSource) -> None:
        super().__init__(tasks)
        self.source = source


def get_bag_source(bag: Bag) -> BagSource | None:
    """What the bag reads, if it comes straight from :func:`read_records`."""
    layer = bag.dask.layers.get(bag.name)
    return layer.source if isinstance(layer, BagSourceLayer) else None


def read_bag(label: str, function: Callable[..., Any], source: BagSource) -> Bag:
    """A bag of which each partition is ``function(reading without its parts, part)``."""
    name = f"{label}-{tokenize(source.token, source.where, source.fields)}"
    tasks = {
        (name, i): lazy_task(
            (name, i), function, source.settings, part, source.where, source.fields
        )
        for i, part in enumerate(source.parts)
    }
    layer = BagSourceLayer(tasks, source)
    return Bag(HighLevelGraph.from_collections(name, layer), name, len(tasks))


def map_partitions(bag: Bag, label: str, function: Callable[..., Any], *arguments: Any) -> Bag:
    """A bag of which each partition is ``function(partition, *arguments)``, an iterator."""
    name = f"{label}-{tokenize(bag, function, *arguments)}"
    tasks = {
        (name, i): lazy_task((name, i), function, TaskRef((bag.name, i)), *arguments)
        for i in range(bag.npartitions)
    }
    return Bag(make_graph(name, tasks, [bag]), name, bag.npartitions)


def make_graph(name: str, tasks: Any, below: Any) -> HighLevelGraph:
    """A layer of tasks above collections; Dask's annotations know neither tasks nor bags."""
    return HighLevelGraph.from_collections(name, tasks, below)


def lazy_task(key: Any, function: Callable[..., Any], *arguments: Any) -> Task:
    """A task whose iterator is made a list, unless the next task in line takes it as it comes."""
    return Task(key, reify, Task(None, function, *arguments))


def find_bag_faults(bag: Any) -> list[Fault]:
    """The fault of an argument that is no bag."""
    if isinstance(bag, Bag):
        return []
    return [Fault("bag", f"a {type(bag).__name__}", "a dask.bag.Bag")]
