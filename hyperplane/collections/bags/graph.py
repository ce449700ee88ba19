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


@dataclass(frozen=True)
class Reading:
    """What a bag reads: from where, which part in each partition, and which records of them."""

    source: Source
    parts: Sequence[Part]
    where: Any = None
    fields: Any = None
    token: str = ""


class ReadingLayer(MaterializedLayer):  # type: ignore[misc]
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
    return Bag(HighLevelGraph.from_collections(name, tasks, [bag]), name, bag.npartitions)


def lazy(key: Any, function: Callable[..., Any], *arguments: Any) -> Task:
    """A task whose iterator is made a list, unless the next task in line takes it as it comes."""
    return Task(key, reify, Task(None, function, *arguments))
