"""Which chunks of a step are there already, as committed shards of what it saves."""

from __future__ import annotations

from pathlib import Path

from hyperplane.errors import HyperplaneError
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.programs import folder_of
from hyperplane.jobs.states import Job
from hyperplane.jobs.store import JobStore
from hyperplane.storage import missing_shards


def of(step: Step, job: Job, store: JobStore) -> set[int]:
    """The chunks whose shard is committed, by an earlier job just like this one.

    None when nothing, or something else, is there; and none when the last job of these steps had
    other parameters, or there was none: what is there is made of something else then.
    """
    if not store.is_again(job):
        return set()
    chunks = set(range(step.chunk_count))
    output = step.output or ""
    # A path is one of the folder that the step runs in.
    url = output if "://" in output else str(Path(folder_of(job.pipeline, step), output))
    try:
        return chunks - set(missing_shards(url))
    except HyperplaneError:
        return set()
