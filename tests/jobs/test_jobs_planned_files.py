"""A plan of very many files for 1,000 tasks, of which half are lost: a simulated runner."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest
from scale import scaled

import hyperplane
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.execution.job_folder import claim_job
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.store.job_records import DONE, FAILED, PENDING
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.submission.submission_environment import capture_environment
from hyperplane.jobs.submission.submission_snapshot import save_snapshot
from hyperplane.jobs.supervisor import Supervisor
from hyperplane.shards import plan as plan_module

TASKS, FILES = scaled(100, 1_000), scaled(10_000, 1_000_000)


class EndedProcess:
    """A task that has ended with an exit code."""

    def __init__(self, command, code):
        self.command, self.code, self.ended = command, code, time.time()

    async def wait_until_running(self):
        """Return at once."""

    async def wait(self):
        return self.code

    def exit_code(self):
        return self.code

    def end_time(self):
        return self.ended

    async def end(self, grace):
        return self.code


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_only_lost_tasks_of_a_plan_are_submitted_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = random.Random(0)
    files = [(f"s3://b/{n:07d}", int(sizes.lognormvariate(14, 1))) for n in range(FILES)]
    monkeypatch.setattr(plan_module, "iterate_file_sizes", lambda urls, options: iter(files))
    plan = hyperplane.plan_shards("s3://b", TASKS, tmp_path / "plan.parquet")
    assert plan.imbalance < 1.2
    submitted, lost, processed = Counter(), set(range(1, TASKS, 2)), Counter()

    async def start(runner, command, step, memory_factor):
        chunk = int(command.step_variables["HYPERPLANE_SHARD_INDEX"])
        submitted[chunk] += 1
        if chunk in lost:
            return EndedProcess(command, 137)
        processed.update(hyperplane.planned_files(plan.url, TASKS, chunk))
        return EndedProcess(command, 0)

    monkeypatch.setattr(LocalRunner, "start", start)
    step = Step(name="convert", kind="command", argv=("true",), chunks=TASKS, max_parallel=TASKS)
    job = new_job(Pipeline.from_steps("convert", [step]), max_retries=0)
    store, submission = open_store(), capture_environment()

    def run(claim):
        supervisor = Supervisor(store, submission, only=job.id, claim=claim)
        supervisor.receive({job.id: submission})
        asyncio.run(supervisor.run())
        return store.get(job.id).status

    # Claimed before it is pending: the supervisor of other tests would run it.
    claim = claim_job(job.folder_path)
    save_snapshot(job, submission.environment, {}, [])
    store.add(job)
    assert run(claim) == FAILED
    first = submitted.copy()
    assert first == Counter(range(TASKS))
    expected = sorted(lost)
    lost.clear()
    claim = claim_job(job.folder_path)
    store.update(job.id, status=PENDING, submitted=time.time(), ended=0.0, tries=0)
    assert run(claim) == DONE
    assert sorted((submitted - first).elements()) == expected
    assert len(processed) == FILES
    assert set(processed.values()) == {1}
