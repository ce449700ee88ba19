"""Common jobs on an event log and a web log: plain Dask, hyperplane, pandas, Polars and DuckDB.

    python -m benchmarks.dataframes [--rows 20000000] [--rounds 3] [--jobs windows counts ...]
    python -m benchmarks.dataframes --rows 10000000 --jobs web_join web_top web_duplicates

Every run is a separate process, the engines alternate, and the answers are compared. CPU seconds
and memory are those of the whole process tree. Imports and a run on a small part of the data happen
before the measurement; the start of a cluster is a separate column.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import event_log_csv, event_log_jobs, event_log_rows, web_log_jobs
from benchmarks.event_log import write_event_log
from benchmarks.event_log_jobs import ENGINES, Job
from benchmarks.measure import cpu_seconds, measure, wait_until_cold
from benchmarks.web_log import write_web_log

JOBS: dict[str, dict[str, Job]] = {
    job: {engine: getattr(module, f"{job}_{engine}") for engine in ENGINES}
    for module, jobs in (
        (event_log_jobs, ("windows", "counts")),
        (event_log_rows, ("top", "filter", "duplicates", "join", "sort")),
        (event_log_csv, ("csv",)),
        (web_log_jobs, ("web_join", "web_top", "web_duplicates")),
    )
    for job in jobs
}


def run_job(job: str, engine: str, folder: Path) -> None:
    """Run one job with one engine in this process; print its figures and its answer as JSON."""
    run, start = JOBS[job][engine], ENGINES[engine]
    began, cpu = time.perf_counter(), cpu_seconds()
    with start():
        figures = {"start_s": time.perf_counter() - began, "start_cpu_s": cpu_seconds() - cpu}
        run(folder, "00.parquet")
        wait_until_cold()
        answer, measured = measure(lambda: run(folder, "*.parquet"))
    print(json.dumps({**figures, **measured, "answer": answer}))


def _run_in_process(job: str, engine: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.dataframes", "--one", job, engine, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{job} with {engine} failed:\n{done.stdout}\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(job: str, engines: list[str], folder: Path, rounds: int) -> None:
    """Run one job with all engines alternately; print medians."""
    results: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            results[engine].append(_run_in_process(job, engine, folder))
    answers = {json.dumps(figures["answer"]) for each in results.values() for figures in each}
    agreed = "answers agree" if len(answers) == 1 else f"ANSWERS DIFFER: {answers}"
    print(f"\n{job}: medians of {rounds}, {os.cpu_count()} cores, {agreed}")
    columns = ["cpu_s", "wall_s", "peak_mb", "growth_mb", "start_s", "start_cpu_s"]
    print(f"{'':12}" + "".join(f"{column:>13}" for column in columns) + f"{'cpu, ours=1':>13}")
    cpu = {name: statistics.median(f["cpu_s"] for f in each) for name, each in results.items()}
    for engine, each in results.items():
        medians = [statistics.median(figures[column] for figures in each) for column in columns]
        relative = cpu[engine] / cpu["hyperplane"] if "hyperplane" in cpu else 1.0
        print(f"{engine:12}" + "".join(f"{m:13.2f}" for m in medians) + f"{relative:13.2f}")
    sys.stdout.flush()


def main() -> None:
    """Run the comparison of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--folder", type=Path, help="where the logs are kept for later runs")
    parser.add_argument("--one", nargs=3, metavar=("JOB", "ENGINE", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.one:
        job, engine, folder = arguments.one
        run_job(job, engine, Path(folder))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        for job in arguments.jobs:
            write = write_web_log if job.startswith("web_") else write_event_log
            data = write(folder / write.__name__.removeprefix("write_"), arguments.rows)
            compare(job, arguments.engines, data, arguments.rounds)


if __name__ == "__main__":
    main()
