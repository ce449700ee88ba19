"""Records of the runs of steps, and of the clusters that they have started."""

from __future__ import annotations

from hyperplane.core.errors import HyperplaneError, check
from hyperplane.core.optional import is_installed
from hyperplane.core.public_calls import check_call
from hyperplane.history import RunRecord
from hyperplane.history.run_texts import RunList
from hyperplane.history.selection import find_limit_faults, find_text_faults
from hyperplane.jobs.store.jobs_home import has_store, open_store, this_machine


@check_call
def list_step_runs(
    pipeline: str | None = None, *, step: str | None = None, limit: int | None = None
) -> list[RunRecord]:
    """Return the records of the steps of this machine's jobs, and of clusters that they started.

    Parameters
    ----------
    pipeline, step : str, optional
        Only runs of this pipeline, and of this step.
    limit : int, optional
        Maximum number of records.

    Returns
    -------
    list of RunRecord
        Newest first; prints as a table. The last 50 of each step and of its clusters are kept. The
        record of a step has no ``cluster``, and for each pool that its attempts had a
        :class:`~hyperplane.history.WorkerUsage` with the memory of all its processes.

    Raises
    ------
    RequestError
        With every fault of the call.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step, list_step_runs, submit
    >>> step = Step(name="hello", kind="command", argv=("true",))
    >>> submit(Pipeline.from_steps("records", [step])).wait()
    'done'
    >>> [(run.label, run.exit_reason) for run in list_step_runs("records", limit=1)]
    [('records/hello', 'done')]
    """
    names = (("pipeline", pipeline), ("step", step))
    check([*find_text_faults(names), *find_limit_faults(limit)])
    runs = open_store().runs(this_machine(), pipeline=pipeline, step=step, limit=limit)
    return RunList(runs)


def read_step_runs() -> list[RunRecord]:
    """Return the same records; none without the packages for jobs, or before the first job."""
    if not is_installed("sqlalchemy"):
        return []
    try:
        return list_step_runs() if has_store() else []
    except HyperplaneError:  # the records of clusters can be shown without those of jobs
        return []
