"""Private names of Dask's task graphs and expressions."""

from __future__ import annotations

from dask._expr import SingletonExpr
from dask._task_spec import List, Task, TaskRef, cull

__all__ = ["List", "SingletonExpr", "Task", "TaskRef", "cull"]
