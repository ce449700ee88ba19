"""Which chunks of a step are there already, as committed shards of what it saves."""

from __future__ import annotations

from hyperplane.errors import HyperplaneError
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.states import Job
from hyperplane.storage import missing_shards


def of(step: Step, job: Job) -> set[int]:
    """The chunks whose shard is committed; none when nothing, or something else, is there."""
    chunks = range(step.chunks or len(step.foreach or ()))
    for run in (job.run_id, None):
        try:
            return set(chunks) - set(missing_shards(step.output or "", run=run))
        except HyperplaneError:
            continue
    return set()
