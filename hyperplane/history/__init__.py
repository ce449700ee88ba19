"""Records of what runs of clusters took: memory, time, spilled bytes, restarts.

When a cluster closes, its owner writes one record, and so does :func:`hyperplane.record` for a
block of code; ``hyperplane history`` and the functions of this module read them.
"""

from hyperplane.history.comparison import RunComparison, compare_runs
from hyperplane.history.figures import ComputationUsage, TaskUsage, WorkerUsage
from hyperplane.history.run_record import PlanSummary, RunRecord
from hyperplane.history.store import list_runs, read_run
from hyperplane.history.timeline import RunTimeline, TaskGroupTimes, WorkerTimeline

__all__ = [
    "ComputationUsage",
    "PlanSummary",
    "RunComparison",
    "RunRecord",
    "RunTimeline",
    "TaskGroupTimes",
    "TaskUsage",
    "WorkerTimeline",
    "WorkerUsage",
    "compare_runs",
    "list_runs",
    "read_run",
]


def __dir__() -> list[str]:
    return list(__all__)
