"""Which chunks of a step are there already, as committed shards of what it saves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hyperplane.errors import HyperplaneError
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.states import Job
from hyperplane.jobs.step_command import working_folder
from hyperplane.jobs.store import JobStore

if TYPE_CHECKING:
    from hyperplane.storage.manifest import Manifest

_SHARD_RECORD = re.compile(r"shards-([0-9]+)-[^/]+/records/[0-9]+\.json")


class SavedShards(NamedTuple):
    """What is there of what the chunks of a step save.

    Parameters
    ----------
    chunks : set of int
        The chunks whose shard is committed, by an earlier job just like this one. None when
        nothing, or something else, is there; and none when the last job of these steps had other
        parameters, or there was none: what is there is made of something else then.
    wrong : str
        Why no chunk can save its shard there; empty when nothing is known to be in the way.
    """

    chunks: set[int]
    wrong: str = ""


def find_saved_shards(step: Step, job: Job, store: JobStore) -> SavedShards:
    """What is there of what a step saves.

    Parameters
    ----------
    step : Step
        A step with ``output``.
    job : Job
        Its job.
    store : JobStore
        Where earlier jobs are.
    """
    # It imports pyarrow, which is a third of the start of a supervisor; few steps have an output.
    from hyperplane.storage import missing_shards

    output, count = step.output or "", step.chunk_count
    # A path is one of the folder that the step runs in.
    url = output if "://" in output else str(Path(working_folder(job.pipeline, step), output))
    try:
        published, under_way = _read_output_state(url)
        if published is not None and published.shards != count:
            return SavedShards(set(), _shard_count_message(output, published.shards, count))
        # Of a run in another number of shards each shard is another one.
        if under_way - {count} or not store.is_rerun(job):
            return SavedShards(set())
        return SavedShards(set(range(count)) - set(missing_shards(url)))
    except HyperplaneError:
        return SavedShards(set())


def _read_output_state(url: str) -> tuple[Manifest | None, set[int]]:
    """What is published at a place, and in how many shards something is being saved there."""
    from hyperplane.storage.place import commits_of
    from hyperplane.storage.target import target_of

    target = target_of(url, {})
    commits = commits_of(target)
    found = map(_SHARD_RECORD.fullmatch, commits.shelf.listing(target.beside))
    return commits.state().manifest, {int(match[1]) for match in found if match}


def _shard_count_message(output: str, shards: int | None, count: int) -> str:
    saved = "as a whole" if shards is None else f"in {shards} shards"
    same = "" if shards is None else f"write chunks: {shards}, "
    return (
        f"{output} is there, saved {saved}, and the step makes {count} shards of it: {same}remove "
        "it, name another output, or leave output: out if the step overwrites what is there"
    )
