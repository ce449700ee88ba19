"""Sizes of a job's steps: those of their pools, and of pools that runs or forecasts choose."""

from __future__ import annotations

from collections.abc import Mapping

from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.definition.step_rules import AUTO
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.automatic_pool import (
    SizedStep,
    needs_forecast,
    size_step,
    uses_auto,
)
from hyperplane.jobs.execution.cluster_arguments import cluster_variable
from hyperplane.jobs.execution.failure_kinds import MEMORY
from hyperplane.jobs.execution.run_recording import StepRunRecorder
from hyperplane.jobs.execution.step_environment import find_secrets
from hyperplane.jobs.execution.step_forecast import StepForecast
from hyperplane.jobs.store.job_records import Attempt, Job
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.store.tables import CLUSTERS, STEPS
from hyperplane.jobs.submission.submission_snapshot import SubmissionSnapshot, measure_pools

#: Most records of a step, and of its clusters, that are read.
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
    environment : mapping of str to str
        Environment of the submission, which may have secrets.
    """

    def __init__(
        self,
        store: JobStore,
        job: Job,
        snapshot: SubmissionSnapshot,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._store, self._job, self._snapshot = store, job, snapshot
        names = {name for step in job.steps for name in step.secrets}
        secrets, _ = find_secrets(names, environment or {}, snapshot.settings.secrets)
        self._recorder = StepRunRecorder(store, job, [*secrets.values()])
        self._automatic: dict[str, Step] = {}
        self._sized: dict[str, SizedStep] = {}
        self._forecasts: dict[str, StepForecast] = {}
        #: Names of steps that no earlier run sizes.
        self._without_runs: set[str] = set()
        #: Names of pools by step and sizes: chunks of a step may run with earlier sizes of it, and
        #: several pools may have the same sizes.
        self._pools: dict[tuple[str, Resources], str] = {}

    def add(self, step: Step, forecast: StepForecast | None = None) -> Step:
        """Return a step with the sizes of its first attempt, before the job runs.

        ``forecast`` is what an earlier supervisor has forecast for the job.
        """
        if not uses_auto(step) or AUTO in self.pools:
            return self._with_resources(step)
        self._automatic[step.name] = step
        if forecast is not None:
            self._forecasts[step.name] = forecast
        return self._choose(step)

    def lacks_forecast(self, step: str) -> bool:
        """Return whether a step is to be forecast before its next attempt."""
        return step in self._without_runs and step not in self._forecasts

    def set_forecast(self, step: str, forecast: StepForecast) -> None:
        """Choose the sizes of a step's next attempts by a forecast."""
        self._forecasts[step] = forecast
        self._choose(self._automatic[step])

    def requested(self, step: str) -> Step:
        """Return a step with ``auto`` as its pool has it in the pipeline."""
        return self._automatic[step]

    def _choose(self, step: Step) -> Step:
        names = {"pipeline": self._job.pipeline.name, "step": step.name}
        records = [
            record
            for kind in (STEPS, CLUSTERS)
            for record in self._store.runs(
                self._job.machine, **names, kind=kind, limit=_MOST_RECORDS
            )
        ]
        pools = self.pools
        if needs_forecast(step, records):
            self._without_runs.add(step.name)
        else:
            self._without_runs.discard(step.name)
        forecast = self._forecasts.get(step.name)
        sized = size_step(step, records, pools, self._snapshot.settings.default_pool, forecast)
        resized = self._with_resources(sized.step)
        self._sized[step.name] = SizedStep(resized, sized.reasons)
        return resized

    @property
    def pools(self) -> Mapping[str, Resources]:
        """Sizes of the pools among which is chosen."""
        return self._snapshot.pools or measure_pools(None)

    def _with_resources(self, step: Step) -> Step:
        """Return a step with the resources of its pool, whose name is kept here."""
        sized = self._snapshot.with_pool_resources(step)
        self._pools[step.name, sized.resources] = step.resources.pool or ""
        return sized

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
        return self._pools.get((step.name, step.resources), step.resources.pool or "")

    def memory_factor(self, step: Step, memory_faults: int) -> float:
        """Return the factor of a step's memory after so many attempts that ran out of memory.

        A pool that earlier runs choose has grown already.
        """
        automatic = self._automatic.get(step.name)
        if automatic is not None and automatic.resources.pool == AUTO:
            return 1.0
        return (step.more_memory or 1.0) ** memory_faults

    def cluster_variable(self, step: Step, memory_faults: int) -> dict[str, str]:
        """Return the variable of a step's cluster, whose memory grows once for each of them."""
        automatic = self._automatic.get(step.name)
        is_sized = automatic is not None and (automatic.cluster or {}).get("pool") == AUTO
        return cluster_variable(step, 0 if is_sized else memory_faults)

    def record(self, step: Step, attempt: Attempt, command: AttemptCommand) -> Attempt:
        """Record an attempt that has ended, and return it; a lack of memory enlarges the next."""
        self._recorder.record(step, attempt, command, self.pool_of(step))
        if attempt.fault == MEMORY and step.name in self._automatic:
            self._choose(self._automatic[step.name])
        return attempt
