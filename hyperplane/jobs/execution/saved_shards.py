"""Find chunks of a step whose output is already saved as committed shards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hyperplane.core.errors import HyperplaneError
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.step_command import working_folder
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.job_store import JobStore

if TYPE_CHECKING:
    from hyperplane.storage.manifest import Manifest

_SHARD_RECORD = re.compile(r"shards-([0-9]+)-[^/]+/records/[0-9]+\.json")


class SavedShards(NamedTuple):
    """Saved shards of a step's output.

    Parameters
    ----------
    chunks : set of int
        Chunks whose shard was committed by an earlier run of the same steps. Empty if there was no
        such run, or the last one had other parameters: its shards have other content.
    conflict : str
        Why the step cannot save its shards to this output; empty if no conflict is known.
    """

    chunks: set[int]
    conflict: str = ""


def find_saved_shards(step: Step, job: Job, store: JobStore) -> SavedShards:
    """Find the saved shards of a step with ``output``."""
    # Imported here: pyarrow takes a third of a supervisor's start time, and few steps have an
    # output.
    from hyperplane.storage import missing_shards

    output, count = step.output or "", step.chunk_count
    # Paths are relative to the step's working folder.
    url = output if "://" in output else str(Path(working_folder(job.pipeline, step), output))
    try:
        published, in_progress = _read_output_state(url)
        if published is not None and published.shards != count:
            return SavedShards(set(), _shard_count_message(output, published.shards, count))
        # With another number of shards, each shard has other content.
        if in_progress - {count} or not store.is_rerun(job):
            return SavedShards(set())
        return SavedShards(set(range(count)) - set(missing_shards(url)))
    except HyperplaneError:
        return SavedShards(set())


def _read_output_state(url: str) -> tuple[Manifest | None, set[int]]:
    """Return the published manifest, and the shard counts of saves in progress."""
    from hyperplane.objectstore.save_target import resolve_target
    from hyperplane.storage.commit_protocol import commit_protocol_for

    target = resolve_target(url, {})
    commits = commit_protocol_for(target)
    matches = map(_SHARD_RECORD.fullmatch, commits.store_files.list_files(target.metadata_folder))
    return commits.read_state().manifest, {int(match[1]) for match in matches if match}


def _shard_count_message(output: str, shards: int | None, count: int) -> str:
    saved = "as a whole" if shards is None else f"in {shards} shards"
    same = "" if shards is None else f"set the number of chunks to {shards}, "
    return (
        f"{output} already exists, saved {saved}, but the step saves {count} shards: {same}remove "
        "the saved data, set another output, or omit the key 'output' if the step overwrites "
        "existing data"
    )
