"""Many small jobs, as programs that send thousands do."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from scale import FULL, scaled

from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, OPEN
from hyperplane.jobs.store.jobs_home import open_store

JOBS, AT_MOST = scaled(40, 1_000), scaled(10, 100)


@pytest.mark.skipif(not FULL, reason="all jobs of tests have one supervisor: at full scale")
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_many_jobs_with_some_in_flight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at_once = tmp_path / "several at once"
    (tmp_path / "job.sh").write_text(  # the first wait for each other, however slow the machine is
        f"mkdir {tmp_path}/$NUMBER\nuntil test -e '{at_once}'; do sleep 0.05; done\n"
    )
    pipeline = Pipeline.from_steps("many", [Step(name="job", kind="bash", path="job.sh")])
    store, jobs, most = open_store(), [], 0
    while len(jobs) < JOBS:
        ours = {job.id for job in jobs}  # other tests leave jobs of other machines
        waiting = [job for job in store.find(statuses=OPEN) if job.id in ours]
        most = max(most, sum(job.status == IN_PROGRESS for job in waiting))
        if most > 1:
            at_once.touch()
        for _ in range(min(AT_MOST - len(waiting), JOBS - len(jobs))):
            jobs.append(submit(pipeline, parameters={"number": len(jobs)}, max_retries=0))
        time.sleep(0.05)
    assert Counter(job.wait(120) for job in jobs) == {DONE: JOBS}
    assert 1 < most <= AT_MOST
    assert sum(path.is_dir() for path in tmp_path.iterdir()) == JOBS
