"""Trials of a search as chunks of a pipeline job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hyperplane.jobs import calls, job_control
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.handle import JobHandle
from hyperplane.ml.search import search_storage
from hyperplane.ml.search.search import Search, join_search
from hyperplane.ml.search.search_plan import SearchPlan, TrialPlacement
from hyperplane.ml.search.trial import Trial, run_trial
from hyperplane.platforms.local.file_locks import exclusive_lock

_STEP = "trial"
#: Distance of the seeds of chunks: more than the number of trials, which is added to a seed.
_SEED_DISTANCE = 1_000_003


def run_as_job(
    search: Search,
    name: str,
    objective: Callable[..., Any],
    placement: TrialPlacement,
    data: Any,
) -> None:
    """Submit a job with one chunk for each remaining trial, and wait until it has ended.

    An interrupt cancels the job. A chunk whose process dies is retried as those of other jobs are.

    Raises
    ------
    JobError
        If the job did not succeed.
    SearchFailed
        If too many trials have failed.
    """
    chunks = search.enqueue_all()
    if chunks == 0:
        return
    step = Step(
        name=_STEP,
        kind="command",
        argv=(sys.executable, "-m", calls.PROGRAM),
        chunks=chunks,
        max_parallel=placement.max_parallel,
    )
    new = job_control.new_job(
        Pipeline.from_steps(f"search-{name}", [step], root=Path.cwd()),
        runner=placement.runner or "local",
        runner_options=dict(placement.runner_options),
    )
    calls.save_call(new, (run_chunk, (search.plan, name, objective, data), {}))
    submitted = job_control.submit_job(new, runner_options=dict(placement.runner_options))
    handle = JobHandle(submitted.id)
    try:
        handle.wait()
    except KeyboardInterrupt:
        handle.cancel()
        raise
    handle.result()
    search.check_failures()


def run_chunk(plan: SearchPlan, name: str, objective: Callable[..., Any], data: Any) -> None:
    """Run one trial in the process of a chunk.

    A chunk that is retried first ends the trial of its earlier attempt: it records the result if
    there is one, and otherwise runs the same values again.
    """
    chunk = f"{os.environ['HYPERPLANE_JOB_ID']}/{os.environ['HYPERPLANE_SHARD_INDEX']}"
    if plan.seed is not None:  # else chunks that begin together would draw the same values
        index = int(os.environ["HYPERPLANE_SHARD_INDEX"])
        plan = replace(plan, seed=plan.seed + _SEED_DISTANCE * (index + 1))
    folder = search_storage.search_folder(name)
    # SQLite locks no rows, so that two chunks could otherwise take the same enqueued values.
    with exclusive_lock(folder / "ask.lock"):
        search = join_search(plan, name, folder)
        asked = None if search.settle_chunk(chunk) else search.ask(chunk)
    if asked is None:
        return
    number, values = asked
    if data is not None:
        objective = partial(objective, data=data)
    result = run_trial(objective, Trial(number, values, _DirectChannel(search, number)))
    search.keep(number, result)
    search.record(number, result)


class _DirectChannel:
    """Connection of a trial with the search that this process has opened."""

    def __init__(self, search: Search, number: int) -> None:
        self._search, self._number = search, number
        self._prune = False

    def report(self, value: float, step: int) -> None:
        self._prune = self._search.report(self._number, value, step)

    def should_prune(self) -> bool:
        return self._prune
