"""Private names of Dask's task graphs; loads neither pandas nor distributed."""

from __future__ import annotations

from dask._expr import FinalizeCompute
from dask._task_spec import (
    Alias,
    DataNode,
    DependenciesMapping,
    GraphNode,
    List,
    Task,
    TaskRef,
    convert_legacy_graph,
    cull,
    parse_input,
)

__all__ = [
    "Alias",
    "DataNode",
    "DependenciesMapping",
    "FinalizeCompute",
    "GraphNode",
    "List",
    "Task",
    "TaskRef",
    "convert_legacy_graph",
    "cull",
    "parse_input",
]
