"""Pools that ``pool: auto`` would be now, for the steps of a job that is not submitted."""

from __future__ import annotations

from dataclasses import replace

from hyperplane import config
from hyperplane.jobs.execution.automatic_pool import SizedStep, size_step, uses_auto
from hyperplane.jobs.step_runs import read_step_runs
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.submission.submission_snapshot import measure_pools


def size_pipeline(job: Job) -> dict[str, SizedStep]:
    """Return the steps of a job that say ``auto``, by their names, with the pools chosen now."""
    automatic = [step for step in job.pipeline.steps if uses_auto(step)]
    if not automatic:
        return {}
    records, pools, default = read_step_runs(), measure_pools(None), config.jobs().default_pool
    return {
        step.name: size_step(
            step,
            [
                record
                for record in records
                if (record.pipeline, record.step) == (job.pipeline.name, step.name)
            ],
            pools,
            default,
        )
        for step in automatic
    }


def with_sizes(job: Job) -> Job:
    """Return a job whose steps name the pools that are chosen now."""
    sized = size_pipeline(job)
    if not sized:
        return job
    steps = tuple(
        sized[step.name].step if step.name in sized else step for step in job.pipeline.steps
    )
    pipeline = job.pipeline.model_copy(update={"steps": steps})
    return replace(job, definition=pipeline.to_json())
