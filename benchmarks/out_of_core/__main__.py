"""Jobs on four times the memory of the workers: hyperplane, plain Dask, Polars and DuckDB.

    python -m benchmarks.out_of_core [--processes 1 2] [--jobs unique sort ...] [--engines ...]

Each run is a separate process: hyperplane starts a cluster of ``initialize_cluster`` with 1 GB and
one thread for each process; DuckDB has the same memory and threads. Polars has no such limit. The
data is written once to ``--folder``. A result must have the rows of DuckDB's, whose summary is kept
in the folder; sorted rows also their order.

The table has the outcome, CPU seconds of the process tree, the peak RSS of the largest worker (of
the process, for engines of one process), the seconds for which workers were paused, the workers
that were lost, the bytes that Dask spilled, and wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_seconds
from benchmarks.out_of_core.data import write_shop
from benchmarks.out_of_core.jobs import ENGINES, JOBS, Job, Tables

MEMORY = 10**9
_NUMBERS = re.compile(r"\d+")
#: The columns of the table and the digits of their numbers.
FIGURES = {"cpu_s": 0, "peak_mb": 0, "paused_s": 1, "lost": 0, "spilled_mb": 0, "wall_s": 0}


class _Observer(threading.Thread):
    """Samples the workers of a cluster and counts those that are lost."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(daemon=True)
        from distributed.diagnostics.plugin import SchedulerPlugin

        observer = self

        class Removals(SchedulerPlugin):
            def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
                del scheduler, worker, kwargs
                observer.lost += 1

        self.lost, self.paused = 0, 0.0
        self.scheduler = scheduler
        scheduler.add_plugin(Removals(), name="benchmark-removals")
        self._end = threading.Event()

    def run(self) -> None:
        """Sample four times a second; the kernel keeps the peaks of processes in between."""
        while not self._end.wait(0.25):
            for state in list(self.scheduler.workers.values()):
                self.paused += 0.25 * ("paused" in str(state.status))

    def end(self) -> dict[str, float]:
        """Return the figures."""
        self._end.set()
        self.join()
        return {"paused_s": self.paused, "lost": self.lost}


def _describe_worker(dask_worker: Any) -> dict[str, Any]:
    """Return the peak RSS of a worker in MB and the MB that it has spilled; runs in the worker."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    spilled = dask_worker.data.cumulative_metrics["disk-write", "bytes"]
    return {"peak_mb": peak / 1000, "spilled_mb": spilled / 1e6}


@contextmanager
def _start(engine: str, processes: int, figures: dict[str, Any]) -> Iterator[None]:
    """Start an engine with its limits; add the figures of its memory when it has run."""
    if engine == "duckdb":
        import duckdb

        duckdb.sql(f"set memory_limit = '{processes * MEMORY}B'; set threads = {processes}")
        duckdb.sql(f"set temp_directory = '{tempfile.gettempdir()}/duckdb'")
    if engine in ("duckdb", "polars"):
        yield
        status = Path("/proc/self/status").read_text()
        figures["peak_mb"] = int(status.split("VmHWM:")[1].split(None, 1)[0]) / 1000
        return
    if engine == "dask":
        from distributed import Client, LocalCluster

        cluster: Any = LocalCluster(
            n_workers=processes, threads_per_worker=1, memory_limit=MEMORY, dashboard_address=":0"
        )
        client = Client(cluster)
    else:
        import hyperplane

        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=processes, nthreads=1, ram_gb_per_proc=1, local_fit="exact"
        )
    observer = _Observer(cluster.scheduler)
    observer.start()
    try:
        yield
        workers = list(client.run(_describe_worker).values())
        figures["peak_mb"] = max(each["peak_mb"] for each in workers)
        figures["spilled_mb"] = sum(each["spilled_mb"] for each in workers)
    finally:
        figures.update(observer.end())
        client.close()
        cluster.close()


def check_rows(job: Job, target: str) -> list[str]:
    """Return a summary of the rows of a result; AssertionError unless sorted rows are in order."""
    import duckdb
    import polars as pl

    duckdb.sql("set memory_limit = '2GB'; set threads = 1")
    files = sorted(
        (path for path in Path(target).rglob("*.parquet") if not path.name.startswith("_")),
        key=lambda path: [int(number) for number in _NUMBERS.findall(path.name)],
    )
    names = [str(path) for path in files]
    hashed = ", ".join(job.select_hashed())
    (row,) = duckdb.sql(f"select {hashed} from read_parquet({names})").fetchall()
    last: Any = None
    for path in names if job.kind == "sort" else ():
        keys = pl.read_parquet(path, columns=job.keys).select(job.keys)
        if keys.height:
            assert keys.equals(keys.sort(job.keys)), f"{path} is not sorted"
            assert last is None or last <= keys.row(0), f"{path} is not after the file before"
            last = keys.row(-1)
    return [str(value) for value in row]


def run_job(job: str, engine: str, folder: Path, processes: int) -> None:
    """Run one job in this process; print its figures as JSON."""
    figures: dict[str, Any] = {}
    outcome, answer = "right", []
    tables = Tables(folder, JOBS[job].blocks * processes)

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGTERM, stop)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        target = str(Path(scratch, "out"))
        try:
            with _start(engine, processes, figures):
                began, cpu = time.perf_counter(), cpu_seconds()
                try:
                    ENGINES[engine](JOBS[job], tables, target)
                finally:
                    figures["wall_s"] = time.perf_counter() - began
                    figures["cpu_s"] = cpu_seconds() - cpu
        except Exception as error:  # noqa: BLE001 - the outcome of the job
            outcome = type(error).__name__
            print(error, file=sys.stderr)
        else:
            answer = check_rows(JOBS[job], target)
            outcome = _compare(job, engine, folder, processes, answer)
    print(json.dumps({"outcome": outcome, "answer": answer, **figures}), flush=True)


def _compare(job: str, engine: str, folder: Path, processes: int, answer: list[str]) -> str:
    """Return whether an answer is DuckDB's; that of DuckDB is kept."""
    path = folder / f"answer-{job}-{processes}.json"
    if engine == "duckdb":
        path.write_text(json.dumps(answer))
    if not path.exists():
        return "not compared"
    return "right" if json.loads(path.read_text()) == answer else "WRONG"


def run_in_process(
    job: str, engine: str, folder: Path, processes: int, limit_s: float
) -> dict[str, Any]:
    """Run one job in a process of its own; end it after ``limit_s``."""
    command = [sys.executable, "-m", "benchmarks.out_of_core", "--one", job, engine]
    command += ["--folder", str(folder), "--processes", str(processes)]
    environment = {**os.environ, "POLARS_MAX_THREADS": str(processes)}
    if engine == "hyperplane":
        del environment["POLARS_MAX_THREADS"]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            output, _ = process.communicate()
        errors.seek(0)
        text = errors.read()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    figures: dict[str, Any] = json.loads(lines[-1]) if lines else {"outcome": "no figures"}
    if figures["outcome"] not in ("right", "not compared"):
        print(text[-3000:], file=sys.stderr)
    return figures


def main() -> None:
    """Write the data and run the jobs of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "shop"))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["duckdb", "hyperplane"])
    parser.add_argument("--timeout", type=float, default=1800.0)
    parser.add_argument("--one", nargs=2, metavar=("JOB", "ENGINE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        run_job(*arguments.one, arguments.folder, arguments.processes[0])
        return
    for processes in arguments.processes:
        blocks = max(JOBS[job].blocks for job in arguments.jobs) * processes
        write_shop(arguments.folder, blocks)
        for job in arguments.jobs:
            for engine in arguments.engines:
                found = run_in_process(job, engine, arguments.folder, processes, arguments.timeout)
                shown = "  ".join(
                    f"{name} {found[name]:.{digits}f}"
                    for name, digits in FIGURES.items()
                    if name in found
                )
                rows = (found.get("answer") or ["?"])[0]
                name = f"{processes} GB {job:11}{engine:11}{found['outcome']:14}"
                print(f"{name}{shown}  rows {rows}  load {os.getloadavg()[0]:.0f}")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
