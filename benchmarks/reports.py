"""Seconds and bytes of the reports of a run of many tasks, and of the largest records.

    python -m benchmarks.reports [--tasks 100000]
    python -m benchmarks.reports --largest

The first runs a graph of that many small tasks on two processes, and writes the report of the run,
and that of a job whose step has started this cluster. The second makes
reports of records with the most workers, operations, computations and times that a record can have,
for a run, and for a job with as many of them as its report shows and 10,000 attempts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dask

import hyperplane
from benchmarks.recording import make_graph
from hyperplane.history import (
    ComputationUsage,
    PlanSummary,
    RunRecord,
    RunTimeline,
    TaskGroupTimes,
    TaskUsage,
    WorkerTimeline,
    WorkerUsage,
    read_run,
)
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.store.tables import ATTEMPTS
from hyperplane.reports import save_job_report, save_report

GB = 10**9


def make_largest(number: int = 0) -> RunRecord:
    """Return a record with the most of everything, with long names."""
    name = "read-parquet-of-a-long-name-" * 3
    timeline = RunTimeline(
        started=1e9, part_seconds=15, total=[GB] * 240, spilled=[GB] * 240, processes=[1000] * 240,
        workers=[
            WorkerTimeline(
                f"worker-{each}", [GB + 10**6 * part for part in range(240)],
                [(part * 90.0, part * 90.0 + 40) for part in range(40)],
                [(part * 90.0, part * 90.0 + 60) for part in range(40)],
                [part * 90.0 for part in range(40)], [part * 90.0 for part in range(40)],
            )
            for each in range(32)
        ],
        groups=[TaskGroupTimes(f"{name}{each}", each * 10, 3600, 9, 1, 90) for each in range(200)],
    )  # fmt: skip
    return RunRecord(
        name=f"20260101-00{number:04d}-largest", cluster="largest", started=1e9 + number,
        ended=1e9 + 3600, exit_reason="closed",
        plan=PlanSummary(nodes=10, nprocs=100, nthreads=1, spill=0.7, pause=0.8),
        workers=tuple(
            WorkerUsage(f"worker-{each}", 1, 2 * GB, 2 * GB, 3 * GB, GB, 9, 9, 2,
                        {"out of memory": 1, "other": 1})
            for each in range(1000)
        ),
        tasks=tuple(
            TaskUsage(f"{name}{each}", 100, 1, 9, 1, GB, GB, GB, GB) for each in range(1000)
        ),
        computations=tuple(ComputationUsage(f"{name}{each}", str(each)) for each in range(200)),
        timeline=timeline,
    )  # fmt: skip


def add_job(attempts: int) -> Job:
    """Store a job of a step in many chunks that has ended."""
    step = Step(name="load", kind="command", argv=("true",), chunks=attempts)
    job = new_job(Pipeline.from_steps("many", [step]))
    job = replace(job, status=DONE, submitted=1e9, started=1e9, ended=1e9 + 3600)
    store = open_store()
    store.add(job)
    rows = [
        asdict(Attempt(job.id, "load", chunk, 1, DONE, 1e9 + chunk / 10, 1e9 + chunk / 10 + 60))
        for chunk in range(attempts)
    ]
    with store._engine.begin() as connection:  # a transaction for each would take minutes
        connection.execute(ATTEMPTS.insert(), rows)
    return job


def measure(name: str, save: Callable[[Path], Path]) -> None:
    """Write a report, and print the seconds and the bytes that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        cpu = time.process_time()
        size = save(Path(folder, "report.html")).stat().st_size
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    print(f"{name}: {size / 1e6:.3f} MB in {seconds:.2f} s, {cpu:.2f} CPU s", flush=True)


def run_tasks(tasks: int) -> RunRecord:
    """Run a graph of small tasks on a cluster that is recorded; return its record."""
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(
            num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=1, engine="local",
            local_fit="exact", preflight=False,
        )
    )  # fmt: skip
    began = time.monotonic()
    client.compute(make_graph(tasks)).result()
    print(f"{tasks:,} tasks ran for {time.monotonic() - began:.0f} s", flush=True)
    client.close()
    cluster.close()
    return read_run("latest")


def store_records(job: Job, records: list[RunRecord]) -> None:
    """Store records as those of the clusters of a step."""
    names: dict[str, Any] = {"job": job.id, "pipeline": "many", "step": "load"}
    for record in records:
        open_store().save_run(record.model_copy(update=names), job.machine)


def main() -> None:
    """Measure the reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--largest", action="store_true", help="of records of the largest size")
    arguments = parser.parse_args()
    home = tempfile.mkdtemp()
    os.environ["XDG_STATE_HOME"] = home
    with dask.config.set({"hyperplane.jobs.home": home}):
        record = make_largest() if arguments.largest else run_tasks(arguments.tasks)
        counted = sum(task.count for task in record.tasks)
        print(f"a record of {counted:,} tasks, {len(record.to_json()) / 1e6:.3f} MB")
        measure("report of the run", lambda file: save_report(record, file))
        job = add_job(10_000 if arguments.largest else 1)
        store_records(
            job, [make_largest(number) for number in range(20)] if arguments.largest else [record]
        )
        measure("report of the job", lambda file: save_job_report(job.id, file))


if __name__ == "__main__":
    main()
