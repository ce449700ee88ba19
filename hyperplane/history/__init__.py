"""Records of what runs of clusters took: memory, time, spilled bytes, restarts.

When a cluster closes, its owner writes one record; ``hyperplane history`` and the functions of this
module read them.
"""

from hyperplane.history.run_record import PlanSummary, RunRecord, TaskUsage, WorkerUsage
from hyperplane.history.store import list_runs, read_run

__all__ = ["PlanSummary", "RunRecord", "TaskUsage", "WorkerUsage", "list_runs", "read_run"]


def __dir__() -> list[str]:
    return list(__all__)
