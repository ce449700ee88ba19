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

from hyperplane.collections.bags.files import Part
from hyperplane.collections.bags.records import Source
from hyperplane.errors import Fault


@dataclass(frozen=True)
class Reading:
    """What a bag reads: from where, which part in each partition, and which records of them."""

    source: Source
    parts: Sequence[Part]
    where: Any = None
    fields: Any = None
    token: str = ""


class ReadingLayer(MaterializedLayer):
    """The layer of a bag that comes straight from files, so that helpers may read it their way."""

    def __init__(self, tasks: dict[Any, Any], reading: Reading) -> None:
        super().__init__(tasks)
        self.reading = reading


def reading_of(bag: Bag) -> Reading | None:
    """What the bag reads, if it comes straight from :func:`read_records`."""
    layer = bag.dask.layers.get(bag.name)
    return layer.reading if isinstance(layer, ReadingLayer) else None


def read_bag(label: str, function: Callable[..., Any], reading: Reading) -> Bag:
    """A bag of which each partition is ``function(reading without its parts, part)``."""
    name = f"{label}-{tokenize(reading.token, reading.where, reading.fields)}"
    tasks = {
        (name, i): lazy((name, i), function, reading.source, part, reading.where, reading.fields)
        for i, part in enumerate(reading.parts)
    }
    layer = ReadingLayer(tasks, reading)
    return Bag(HighLevelGraph.from_collections(name, layer), name, len(tasks))


def mapped(bag: Bag, label: str, function: Callable[..., Any], *arguments: Any) -> Bag:
    """A bag of which each partition is ``function(partition, *arguments)``, an iterator."""
    name = f"{label}-{tokenize(bag, function, *arguments)}"
    tasks = {
        (name, i): lazy((name, i), function, TaskRef((bag.name, i)), *arguments)
        for i in range(bag.npartitions)
    }
    return Bag(graph_of(name, tasks, [bag]), name, bag.npartitions)


def graph_of(name: str, tasks: Any, below: Any) -> HighLevelGraph:
    """A layer of tasks above collections; Dask's annotations know neither tasks nor bags."""
    return HighLevelGraph.from_collections(name, tasks, below)


def lazy(key: Any, function: Callable[..., Any], *arguments: Any) -> Task:
    """A task whose iterator is made a list, unless the next task in line takes it as it comes."""
    return Task(key, reify, Task(None, function, *arguments))


def bag_faults(bag: Any) -> list[Fault]:
    """The fault of an argument that is no bag."""
    if isinstance(bag, Bag):
        return []
    return [Fault("bag", f"a {type(bag).__name__}", "a dask.bag.Bag")]
