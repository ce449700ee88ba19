"""Sizes of a job's steps: those of their pools, and of pools that earlier runs choose."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.automatic_pool import SizedStep, size_step, uses_auto
from hyperplane.jobs.execution.failure_kinds import MEMORY
from hyperplane.jobs.execution.run_recording import StepRunRecorder
from hyperplane.jobs.store.job_records import Attempt, Job
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.submission.submission_snapshot import SubmissionSnapshot, measure_pools

#: Most records of a step that are read.
_MOST_RECORDS = 30


class StepSizes:
    """Sizes of the steps of one job, which grow after a lack of memory.

    Parameters
    ----------
    store : JobStore
        Store of the records of earlier runs.
    job : Job
        The job.
    snapshot : SubmissionSnapshot
        Settings and pools that the job was submitted with.
    """

    def __init__(self, store: JobStore, job: Job, snapshot: SubmissionSnapshot) -> None:
        self._store, self._job, self._snapshot = store, job, snapshot
        self._recorder = StepRunRecorder(store, job)
        self._automatic: dict[str, Step] = {}
        self._sized: dict[str, SizedStep] = {}
        self._has_pool = {step.name for step in job.pipeline.steps if step.resources.pool}

    def add(self, step: Step) -> Step:
        """Return a step with the sizes of its first attempt, before the job runs."""
        if not uses_auto(step):
            return self._snapshot.with_pool_resources(step)
        self._automatic[step.name] = step
        return self._choose(step)

    def _choose(self, step: Step) -> Step:
        records = self._store.runs(
            self._job.machine,
            pipeline=self._job.pipeline.name,
            step=step.name,
            limit=_MOST_RECORDS,
        )
        pools = self._snapshot.pools or measure_pools(None)
        sized = size_step(step, records, pools, self._snapshot.settings.default_pool)
        resized = self._snapshot.with_pool_resources(sized.step)
        self._sized[step.name] = SizedStep(resized, sized.reasons)
        return resized

    def resize(self, step: Step) -> Step:
        """Return a step with the sizes of its next attempt."""
        sized = self._sized.get(step.name)
        return step if sized is None else sized.step

    def reasons(self, step: str) -> tuple[str, ...]:
        """Return what was chosen for a step, and why; nothing if its sizes are given."""
        sized = self._sized.get(step)
        return () if sized is None else sized.reasons

    def pool_of(self, step: Step) -> str:
        """Return the name of the pool whose sizes a step has; empty without a pool."""
        if step.name not in self._has_pool:
            return ""
        wanted = (step.resources.cores, step.resources.ram_gb)
        for name, pool in (self._snapshot.pools or measure_pools(None)).items():
            if (pool.cores, pool.ram_gb) == wanted:
                return name
        return step.resources.pool or ""

    def record(self, step: Step, attempt: Attempt, command: AttemptCommand) -> Attempt:
        """Record an attempt that has ended, and return it; a lack of memory enlarges the next."""
        self._recorder.record(step, attempt, command, self.pool_of(step))
        if attempt.fault == MEMORY and step.name in self._automatic:
            self._choose(self._automatic[step.name])
        return attempt
