"""Steps whose first pool is chosen by a forecast, in real jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from job_cases import LIMIT, is_alive, kill_supervisor, wait_until

from hyperplane import config
from hyperplane.cli.job_render import show_local
from hyperplane.jobs import Pipeline, Step, list_step_runs, submit
from hyperplane.jobs.execution.failure_kinds import MEMORY
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("published_pools")]
#: A program that sums random numbers in a cluster, or in its own process.
SUMS = """
import os
import dask.array as da

def total():
    print("rows", os.environ["ROWS"])
    shape = int(os.environ["ROWS"]), 1_000
    return da.random.default_rng(0).random(shape, chunks=(4_000, 1_000)).sum()

written = da.ones(4).store([0], compute=False)

if __name__ == "__main__":
    if "HYPERPLANE_CLUSTER" in os.environ:
        import hyperplane
        client, cluster = hyperplane.initialize_cluster()
    print(total().compute() > 0)
    if "HYPERPLANE_CLUSTER" in os.environ:
        client.close()
        cluster.close()
"""
#: A program that needs more memory than the collection that it names.
GROWS = """
import time
import dask.array as da
import hyperplane

total = da.ones((1_000, 1_000), chunks=(100, 1_000)).sum()

def allocate(size):
    block = bytearray(size)
    time.sleep(2)
    return len(block)

if __name__ == "__main__":
    client, cluster = hyperplane.initialize_cluster()
    try:
        print(client.submit(allocate, 600_000_000, key="allocate-1").result())
    finally:
        client.close()
        cluster.close()
"""
CLUSTER = {
    "pool": "auto", "num_workers": 1, "nprocs": 1, "nthreads": 1, "cores_per_worker": 1,
    "engine": "local", "local_fit": "exact", "oom": "raise",
}  # fmt: skip


def new_step(name, path, target, **options):
    fields = {"kind": "python", "path": path, "forecast": f"{path}:{target}", "depends_on": ()}
    return Step(name=name, **{**fields, **options})


def run(folder, *steps, **parameters):
    pipeline = Pipeline.from_steps(steps[0].name, steps, root=folder)  # with its separate records
    job = submit(pipeline, parameters=parameters)
    job.wait(LIMIT)
    return job


def files_of(job, step):
    return next(Path(open_store().get(job.id).folder, "steps").glob(f"*-{step}"))


def log_of(job, step, number=1):
    return (files_of(job, step) / f"attempt-{number}.log").read_text()


@pytest.mark.slow
@pytest.mark.cluster
def test_the_first_attempt_has_the_pool_of_the_forecast_and_the_next_run_that_of_the_record(
    tmp_path,
):
    (tmp_path / "sums.py").write_text(SUMS)
    step = new_step("total", "sums.py", "total", resources={"pool": "auto"}, cluster=CLUSTER)
    job = run(tmp_path, step, rows="24000")
    assert job.status == DONE
    log = log_of(job, "total")
    assert log.startswith("resources.pool: auto is 4_32: up to ")
    assert "in all processes by the forecast of sums.py:total\n" in log
    assert "in a process by the forecast of sums.py:total\n" in log
    assert "forecast: rows 24000\n" in log
    of_step, of_cluster = sorted(list_step_runs("total"), key=lambda record: record.cluster)
    ((worker,), (process,)) = of_step.workers, of_cluster.workers
    assert (worker.name, worker.limit) == ("4_32", 7 * 10**9)
    ram = float(re.search(r"ram_gb_per_proc (\S+):", log)[1])
    assert process.limit == pytest.approx(ram * 10**9)
    assert process.peak < process.limit
    assert worker.peak < int(config.pools()["4_32"].allocatable_ram_gb * 10**9)
    again = run(tmp_path, step, rows="24000")
    assert log_of(again, "total").count("at most in 1 earlier run") == 2
    assert not (files_of(again, "total") / "forecast.json").exists()


@pytest.mark.slow
def test_a_forecast_that_fails_or_is_refused_leaves_the_default_pool(tmp_path):
    (tmp_path / "sums.py").write_text(SUMS)
    (tmp_path / "fails.py").write_text("import sys\nif __name__ != '__main__': 1 / 0")
    steps = [
        new_step("refused", "sums.py", "written", resources={"pool": "auto"}),
        new_step("failed", "fails.py", "total", resources={"pool": "auto"}),
        new_step("many", "sums.py", "total", resources={"pool": "auto"}, chunks=2),
    ]
    job = run(tmp_path, *steps, rows="24000")
    assert job.status == DONE
    start = "resources.pool: auto is 16_16: no run of this step is recorded as complete, and "
    start += "the forecast of "
    refused, failed = log_of(job, "refused"), log_of(job, "failed")
    assert refused.startswith(f"{start}sums.py:written failed (")
    assert "would write to their target" in refused
    assert failed.startswith(f"{start}fails.py:total failed (")
    assert "line 2: ZeroDivisionError: division by zero" in failed
    logs = [log_of(job, f"many/chunk-0000{chunk}") for chunk in (0, 1)]
    assert all(log.startswith("resources.pool: auto is 4_32: up to ") for log in logs)
    assert [log.count("forecast: rows 24000") for log in logs] in ([1, 0], [0, 1])


@pytest.mark.slow
@pytest.mark.cluster
def test_after_a_forecast_that_was_too_low_the_retry_has_more_memory(tmp_path):
    (tmp_path / "grows.py").write_text(GROWS)
    job = run(tmp_path, new_step("grow", "grows.py", "total", cluster=CLUSTER, retries=3))
    assert job.status == DONE
    attempts = open_store().attempts(job.id)
    assert (attempts[0].status, attempts[0].fault) == (FAILED, MEMORY)
    sizes = [
        float(re.search(r"ram_gb_per_proc (\S+):", log_of(job, "grow", attempt.number))[1])
        for attempt in attempts
    ]
    assert "by the forecast of grows.py:total" in log_of(job, "grow")
    assert "out of memory with" in log_of(job, "grow", 2)
    assert sizes[1] >= 1.5 * sizes[0]


@pytest.mark.slow
def test_a_job_cancelled_after_its_supervisor_was_killed_ends_the_forecast(tmp_path):
    mark = tmp_path / "pid"
    (tmp_path / "hangs.py").write_text(
        f"import os, time\nopen({str(mark)!r}, 'w').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)"
    )
    step = new_step("hang", "hangs.py", "total", resources={"pool": "auto"})
    job = submit(Pipeline.from_steps("hang", [step], root=tmp_path))
    wait_until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    assert kill_supervisor()
    assert is_alive(int(mark.read_text()))
    job.cancel()
    assert job.wait(LIMIT) == CANCELLED
    wait_until(lambda: not is_alive(int(mark.read_text())))


def test_a_dry_run_says_that_the_step_is_forecast_later_and_files_have_the_default(
    tmp_path, capsys
):
    (tmp_path / "sums.py").write_text(SUMS)
    step = new_step("total", "sums.py", "total", resources={"pool": "auto"}, cluster=CLUSTER)
    job = new_job(Pipeline.from_steps("dry", [step], root=tmp_path))
    show_local(job, as_json=True)
    assert "until sums.py:total is forecast, when the step starts" in capsys.readouterr().out
    for name, options in (("slurm", {}), ("kubernetes", {"image": "x"})):
        texts = "".join(document.text for document in render(name, job, **options))
        assert not re.search(r"\bauto\b|sums\.py:total", texts)
