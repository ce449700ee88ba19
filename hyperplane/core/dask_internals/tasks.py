"""Private names of Dask's task graphs; loads neither pandas nor distributed."""

from __future__ import annotations

from dask._task_spec import List, Task, TaskRef, cull, parse_input

__all__ = ["List", "Task", "TaskRef", "cull", "parse_input"]
