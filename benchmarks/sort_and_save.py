"""Jobs that write Parquet files, also beyond memory: hyperplane, plain Dask, Polars and DuckDB.

    python -m benchmarks.sort_and_save [--rows 10200000] [--rounds 3] [--jobs save sort]
    python -m benchmarks.sort_and_save --jobs sort --processes 1 --memory 1GB --rows 40800000
    python -m benchmarks.sort_and_save --jobs duplicates groups --processes 2 --memory 1GB

Each run is a separate process and the engines alternate. Saved and sorted rows are compared with
those of the source, distinct rows and groups with those of the other engines. CPU seconds and
memory are those of the whole process tree; imports and the start of a cluster are not measured.
``--memory`` limits each worker, and the memory of DuckDB, to this amount times ``--processes``;
Polars has no such limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.exchange_jobs import JOBS as EXCHANGE_JOBS
from benchmarks.exchange_jobs import summarize_keys
from benchmarks.measure import measure
from benchmarks.web_log import write_web_log

BY = ("user", "time")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Limits:
    """Worker processes, and the memory of each as text; the defaults of each engine if empty."""

    processes: int
    memory: str


@contextlib.contextmanager
def start_dask(limits: Limits) -> Iterator[None]:
    """Start a local cluster of plain Dask."""
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"dashboard_address": None}
    if limits.memory:
        options |= {
            "n_workers": limits.processes,
            "threads_per_worker": 1,
            "memory_limit": limits.memory,
        }
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.run(lambda: __import__("dask.dataframe") and None)
        yield


@contextlib.contextmanager
def start_hyperplane(limits: Limits) -> Iterator[None]:
    """Start a cluster of hyperplane; with limits, a plain one of the same size as for Dask."""
    import hyperplane

    if limits.memory:
        with start_dask(limits):
            yield
        return
    with contextlib.redirect_stdout(None):
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=1, nthreads=os.cpu_count() or 1, ram_gb_per_proc=8
        )
    yield
    client.close()
    cluster.close()


@contextlib.contextmanager
def start_duckdb(limits: Limits) -> Iterator[None]:
    """Set the limits of DuckDB."""
    import duckdb

    if limits.memory:
        from hyperplane.core.units import parse_bytes

        total = parse_bytes(limits.memory) * limits.processes
        duckdb.sql(f"set memory_limit = '{total}B'; set threads = {limits.processes}")
        duckdb.sql("set temp_directory = '/tmp/duckdb_benchmark'")
    yield


@contextlib.contextmanager
def start_polars(limits: Limits) -> Iterator[None]:
    """Import Polars."""
    import polars  # noqa: F401

    yield


def save_dask(source: str, target: str) -> None:
    """Read all files and write them again."""
    import dask.dataframe as dd

    dd.read_parquet(source).to_parquet(target)


def save_hyperplane(source: str, target: str) -> None:
    """Read all files and write them again."""
    import hyperplane

    hyperplane.save(hyperplane.dataframe.read(source), target, format="parquet")


def save_polars(source: str, target: str) -> None:
    """Read all files and write one file for each."""
    import polars as pl

    Path(target).mkdir()
    for path in sorted(Path(source).parent.glob("*.parquet")):
        pl.scan_parquet(path).sink_parquet(Path(target, path.name), compression="snappy")


def save_duckdb(source: str, target: str) -> None:
    """Read all files and write one file for each."""
    import duckdb

    Path(target).mkdir()
    for path in sorted(Path(source).parent.glob("*.parquet")):
        duckdb.sql(
            f"copy (from '{path}') to '{target}/{path.name}' (format parquet, compression snappy)"
        )


def sort_dask(source: str, target: str) -> None:
    """Sort all rows by two columns and write them."""
    import dask.dataframe as dd

    dd.read_parquet(source).sort_values(list(BY)).to_parquet(target)


def sort_hyperplane(source: str, target: str) -> None:
    """Sort all rows by two columns and write them."""
    import hyperplane

    rows = hyperplane.dataframe.sort_values(hyperplane.dataframe.read(source), list(BY))
    hyperplane.save(rows, target, format="parquet")


def sort_polars(source: str, target: str) -> None:
    """Sort all rows by two columns and write them."""
    import polars as pl

    Path(target).mkdir()
    rows = pl.scan_parquet(source).sort(BY, nulls_last=True)
    rows.sink_parquet(Path(target, "0.parquet"), compression="snappy", engine="streaming")


def sort_duckdb(source: str, target: str) -> None:
    """Sort all rows by two columns and write them."""
    import duckdb

    Path(target).mkdir()
    order = ", ".join(f'"{name}" nulls last' for name in BY)
    duckdb.sql(
        f"copy (from '{source}' order by {order}) to '{target}/0.parquet' "
        "(format parquet, compression snappy)"
    )


ENGINES: dict[str, Callable[[Limits], contextlib.AbstractContextManager[None]]] = {
    "dask": start_dask,
    "hyperplane": start_hyperplane,
    "polars": start_polars,
    "duckdb": start_duckdb,
}
JOBS: dict[str, dict[str, Callable[[str, str], None]]] = {
    "save": {
        "dask": save_dask,
        "hyperplane": save_hyperplane,
        "polars": save_polars,
        "duckdb": save_duckdb,
    },
    "sort": {
        "dask": sort_dask,
        "hyperplane": sort_hyperplane,
        "polars": sort_polars,
        "duckdb": sort_duckdb,
    },
    **EXCHANGE_JOBS,
}


def check_rows(job: str, source: str, target: str) -> Any:
    """Return a summary of the written rows, which is the same for all engines.

    An AssertionError is raised unless saved and sorted rows are those of the source, in order.
    """
    import duckdb
    from pyarrow import dataset

    def summarize(glob: str) -> Any:
        fields = "count(*), sum(hash(request)), sum(bytes), count(country), count(time)"
        return duckdb.sql(f"select {fields} from '{glob}'").fetchall()

    files = dataset.dataset(target, format="parquet").files
    written = [path for path in files if not Path(path).name.startswith("_")]
    folder = os.path.commonpath([Path(path).parent for path in written])
    if job in EXCHANGE_JOBS:
        return summarize_keys(job, f"{folder}/*.parquet")
    assert summarize(source) == summarize(f"{folder}/*.parquet")
    if job == "sort":
        import polars as pl

        last: tuple[Any, ...] | None = None
        numbers = {path: int(_NUMBERS.findall(Path(path).name)[0]) for path in written}
        for path in sorted(written, key=numbers.__getitem__):
            keys = pl.read_parquet(path, columns=list(BY))
            if not keys.height:
                continue
            assert keys.equals(keys.sort(BY, nulls_last=True), null_equal=True)
            assert last is None or last <= keys.row(0)[:1]
            last = keys.row(-1)[:1]
    return None


def run_job(job: str, engine: str, source: str, limits: Limits) -> None:
    """Run one job with one engine in this process; print its figures as JSON."""
    with tempfile.TemporaryDirectory(dir=Path(source).parent.parent) as scratch:
        target = str(Path(scratch, "out"))
        with ENGINES[engine](limits):
            _, figures = measure(lambda: JOBS[job][engine](source, target))
        answer = check_rows(job, source, target)
    print(json.dumps({**figures, "answer": answer}))


def compare(
    job: str, engines: list[str], source: str, rounds: int, limits: Limits, timeout: float
) -> None:
    """Run one job with all engines alternately; print medians."""
    results: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
    outcome = dict.fromkeys(engines, "")
    command = [sys.executable, "-m", "benchmarks.sort_and_save", "--source", source]
    command += ["--processes", str(limits.processes), "--memory", limits.memory]
    for _ in range(rounds):
        for engine in [name for name in engines if not outcome[name]]:
            try:
                done = subprocess.run(
                    [*command, "--one", job, engine],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=timeout,
                )
            except subprocess.TimeoutExpired:
                outcome[engine] = f"unfinished after {timeout:.0f} s"
                continue
            if done.returncode:
                outcome[engine] = (done.stderr.strip().splitlines() or ["failed"])[-1][:80]
            else:
                results[engine].append(json.loads(done.stdout.splitlines()[-1]))
    answers = {json.dumps(figures["answer"]) for each in results.values() for figures in each}
    agreed = "rows agree" if len(answers) < 2 else f"ROWS DIFFER: {answers}"
    print(f"\n{job}, {limits}: medians of {rounds}, {os.cpu_count()} cores, {agreed}")
    columns = ["cpu_s", "wall_s", "peak_mb", "growth_mb"]
    print(f"{'':12}" + "".join(f"{column:>12}" for column in columns))
    for engine, each in results.items():
        if outcome[engine]:
            print(f"{engine:12}  {outcome[engine]}")
            continue
        medians = [statistics.median(figures[column] for figures in each) for column in columns]
        print(f"{engine:12}" + "".join(f"{value:12.2f}" for value in medians))
    sys.stdout.flush()


def main() -> None:
    """Run the comparison of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--memory", default="", help="memory of each worker, such as 1GB")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--source", default="", help="a glob of files that exist already")
    parser.add_argument("--one", nargs=2, metavar=("JOB", "ENGINE"))
    arguments = parser.parse_args()
    limits = Limits(arguments.processes, arguments.memory)
    if arguments.one:
        run_job(*arguments.one, arguments.source, limits)
        return
    with tempfile.TemporaryDirectory() as scratch:
        source = arguments.source
        if not source:
            folder = write_web_log(Path(scratch, "log"), arguments.rows)
            source = f"{folder}/parquet/*.parquet"
        for job in arguments.jobs:
            compare(job, arguments.engines, source, arguments.rounds, limits, arguments.timeout)


if __name__ == "__main__":
    main()
