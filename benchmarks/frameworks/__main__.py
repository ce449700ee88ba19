"""The same scan, group-by, join, sort and linear regression with six frameworks.

    python -m benchmarks.frameworks [--rows 5000000] [--rounds 3] [--jobs scan ...] [--json FILE]

Every run is a separate process, the frameworks alternate, and the answers are compared. Ray and
Spark run in the environments of ``make ray`` and ``make spark``. CPU seconds and memory are those
of the whole process tree; a run on one of the 16 files happens before the measurement, and the
start of a cluster is a separate column. Lines are those of the function of a job.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.event_log import write_event_log
from benchmarks.measure import cpu_seconds, measure

ROOT = Path(__file__).parents[2]
JOBS = ("scan", "group", "join", "sort", "train")


class Framework(NamedTuple):
    """A framework: the module of its jobs, and the environment that has it."""

    module: str
    environment: str = ".venv"


FRAMEWORKS = {
    "hyperplane": Framework("jobs_dask"),
    "dask": Framework("jobs_dask"),
    "ray": Framework("jobs_ray_data", ".venv-ray"),
    "spark": Framework("jobs_spark", ".venv-spark"),
    "polars": Framework("jobs_one_process"),
    "duckdb": Framework("jobs_one_process"),
}


def _load_jobs(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.frameworks.{FRAMEWORKS[name].module}")


def run_job(job: str, name: str, folder: Path) -> None:
    """Run one job with one framework in this process; print its figures and its answer as JSON."""
    module = _load_jobs(name)
    run = getattr(module, f"{job}_{name}")
    start = getattr(module, f"start_{name}", contextlib.nullcontext)
    began, cpu = time.perf_counter(), cpu_seconds()
    with start():
        figures = {"start_s": time.perf_counter() - began, "start_cpu_s": cpu_seconds() - cpu}
        run(str(folder / "parquet" / "00.parquet"), folder)
        answer, measured = measure(lambda: run(str(folder / "parquet" / "*.parquet"), folder))
        lines = len(inspect.getsource(run).splitlines())
        print(json.dumps({**figures, **measured, "lines": lines, "answer": answer}))


def _run_in_process(job: str, name: str, folder: Path) -> dict[str, Any]:
    python = ROOT / FRAMEWORKS[name].environment / "bin" / "python"
    command = [str(python), "-m", "benchmarks.frameworks", "--one", job, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if done.returncode or line is None:
        sys.exit(f"{job} with {name} failed:\n{done.stdout}\n{done.stderr}")
    figures: dict[str, Any] = json.loads(line)
    return figures


def compare(job: str, names: list[str], folder: Path, rounds: int) -> dict[str, Any]:
    """Run one job with all frameworks that have it alternately; print and return medians."""
    names = [name for name in names if hasattr(_load_jobs(name), f"{job}_{name}")]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            results[name].append(_run_in_process(job, name, folder))
    answers = {json.dumps(figures["answer"]) for each in results.values() for figures in each}
    agreed = "answers agree" if len(answers) == 1 else f"ANSWERS DIFFER: {answers}"
    print(f"\n{job}: medians of {rounds}, {os.cpu_count()} cores, {agreed}")
    columns = ["wall_s", "cpu_s", "peak_mb", "growth_mb", "lines", "start_s", "start_cpu_s"]
    print(f"{'':12}" + "".join(f"{column:>13}" for column in columns))
    medians = {}
    for name, each in results.items():
        medians[name] = {
            column: statistics.median(figures[column] for figures in each) for column in columns
        }
        print(f"{name:12}" + "".join(f"{value:13.2f}" for value in medians[name].values()))
    sys.stdout.flush()
    return medians


def main() -> None:
    """Run the comparison of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--folder", type=Path, help="where the log is kept for later runs")
    parser.add_argument("--json", type=Path, help="file for the medians")
    parser.add_argument("--one", nargs=3, metavar=("JOB", "FRAMEWORK", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.one:
        job, name, folder = arguments.one
        run_job(job, name, Path(folder))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_event_log(arguments.folder or Path(scratch), arguments.rows)
        print(f"{arguments.rows:,} rows, {platform.platform()}")
        found = {
            job: compare(job, arguments.frameworks, folder, arguments.rounds)
            for job in arguments.jobs
        }
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
