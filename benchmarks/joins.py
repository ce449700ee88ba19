"""Semi, as-of and skewed joins, and joins of large tables: hyperplane, plain Dask, Polars, DuckDB.

    python -m benchmarks.joins [--rows 3000000] [--rounds 2] [--jobs semi asof skewed]
    python -m benchmarks.joins --jobs unique many --processes 1 --memory 1GB --rows 60000000

Every run is a separate process, the engines alternate (A B C A B C), and the answers are compared.
The clusters of hyperplane and Dask have two processes with one thread each; Polars and DuckDB have
as many threads. ``--memory`` limits each worker, and DuckDB to this amount times ``--processes``;
Polars has no such limit. Jobs of large tables are described in ``benchmarks.large_joins``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_joins import JOBS as LARGE_JOBS
from benchmarks.large_joins import write_large_tables
from benchmarks.measure import measure, wait_until_cold
from hyperplane.core.units import parse_bytes

Answer = list[int]
ENGINES = ("hyperplane", "dask", "polars", "duckdb")
FILES = 8


def write_tables(folder: Path, rows: int) -> None:
    """Write trades in order of time, quotes, a few symbols, and orders of which most are of one."""
    import pandas as pd

    generator = np.random.default_rng(1)
    symbols = 20_000
    times = np.sort(generator.integers(0, 86_400 * 10**6, rows)).astype("datetime64[us]")
    frame = pd.DataFrame({"time": times, "symbol": generator.integers(0, symbols, rows)})
    frame["price"] = generator.random(rows)
    frame["hot"] = np.where(generator.random(rows) < 0.6, 7, frame["symbol"])
    (folder / "trades").mkdir()
    for number, part in enumerate(np.array_split(np.arange(rows), FILES)):
        frame.iloc[part].to_parquet(folder / "trades" / f"{number}.parquet")
    quotes = frame.iloc[:: max(1, rows // 200_000)][["time", "symbol"]].reset_index(drop=True)
    quotes.assign(bid=np.arange(len(quotes))).to_parquet(folder / "quotes.parquet")
    chosen = generator.choice(symbols, symbols // 10)
    pd.DataFrame({"symbol": chosen, "note": "n"}).to_parquet(folder / "chosen.parquet")
    products = pd.DataFrame({"hot": np.arange(symbols), "weight": np.arange(symbols) % 7})
    (folder / "products").mkdir()
    for number, part in enumerate(np.array_split(np.arange(symbols), 2)):
        products.iloc[part].to_parquet(folder / "products" / f"{number}.parquet")


def semi_hyperplane(folder: Path) -> Answer:
    """Count and sum the trades of some symbols."""
    from hyperplane.dataframe import join, read

    joined = join(read(folder / "trades"), read(folder / "chosen.parquet"), "symbol", how="semi")
    return _count(joined, "symbol")


def semi_dask(folder: Path) -> Answer:
    """Count and sum the trades of some symbols."""
    import dask.dataframe as dd

    trades, chosen = (dd.read_parquet(folder / name) for name in ("trades", "chosen.parquet"))
    return _count(trades.merge(chosen[["symbol"]], on="symbol", how="leftsemi"), "symbol")


def semi_polars(folder: Path) -> Answer:
    """Count and sum the trades of some symbols."""
    import polars as pl

    trades, chosen = pl.scan_parquet(folder / "trades"), pl.scan_parquet(folder / "chosen.parquet")
    return _count_polars(trades.join(chosen, on="symbol", how="semi"), "symbol")


def asof_hyperplane(folder: Path) -> Answer:
    """Sum the last bids before the trades."""
    from hyperplane.dataframe import join_asof, read

    sides = read(folder / "trades", ["time", "symbol", "price"]), read(folder / "quotes.parquet")
    return _count(join_asof(*sides, "time", "symbol"), "bid")


def asof_dask(folder: Path) -> Answer:
    """Sum the last bids before the trades; both sides must be sorted."""
    import dask.dataframe as dd

    trades = dd.read_parquet(folder / "trades", columns=["time", "symbol", "price"])
    quotes = dd.read_parquet(folder / "quotes.parquet")
    left, right = (side.set_index("time", sorted=True) for side in (trades, quotes))
    joined = dd.merge_asof(left, right, left_index=True, right_index=True, by="symbol")
    return _count(joined, "bid")


def asof_polars(folder: Path) -> Answer:
    """Sum the last bids before the trades; both sides must be sorted."""
    import polars as pl

    trades = pl.scan_parquet(folder / "trades").select("time", "symbol", "price")
    quotes = pl.scan_parquet(folder / "quotes.parquet")
    joined = trades.join_asof(quotes, on="time", by="symbol", check_sortedness=False)
    return _count_polars(joined, "bid")


def skewed_hyperplane(folder: Path) -> Answer:
    """Shuffle trades, 60 % of which have one key, and sum a column of the other side."""
    import dask.dataframe as dd

    from hyperplane.dataframe import join

    trades, products = (dd.read_parquet(folder / name) for name in ("trades", "products"))
    return _count(join(trades, products, "hot"), "weight")


def skewed_dask(folder: Path) -> Answer:
    """Shuffle trades, 60 % of which have one key, and sum a column of the other side."""
    import dask.dataframe as dd

    trades, products = (dd.read_parquet(folder / name) for name in ("trades", "products"))
    joined = trades.merge(products, on="hot", broadcast=False, shuffle_method="p2p")
    return _count(joined, "weight")


def skewed_polars(folder: Path) -> Answer:
    """Join trades, 60 % of which have one key, and sum a column of the other side."""
    import polars as pl

    trades, products = (pl.scan_parquet(folder / name) for name in ("trades", "products"))
    return _count_polars(trades.join(products, on="hot"), "weight")


def _count(joined: Any, column: str) -> Answer:
    """Return the number of rows and the sum of a column, which alone partitions have."""
    import pandas as pd

    meta = pd.DataFrame({"rows": pd.Series(dtype="int64"), "total": pd.Series(dtype="int64")})
    parts = joined[[column]].map_partitions(_count_partition, column, meta=meta).compute()
    return [int(parts["rows"].sum()), int(parts["total"].sum())]


def _count_partition(frame: Any, column: str) -> Any:
    import pandas as pd

    return pd.DataFrame({"rows": [len(frame)], "total": [int(frame[column].sum())]})


def _count_polars(rows: Any, column: str) -> Answer:
    import polars as pl

    answer = rows.select(pl.len(), pl.col(column).sum()).collect(engine="streaming").row(0)
    return [int(value) for value in answer]


JOBS: dict[str, dict[str, Callable[[Path], Answer]]] = {
    "semi": {"hyperplane": semi_hyperplane, "dask": semi_dask, "polars": semi_polars},
    "asof": {"hyperplane": asof_hyperplane, "dask": asof_dask, "polars": asof_polars},
    "skewed": {"hyperplane": skewed_hyperplane, "dask": skewed_dask, "polars": skewed_polars},
    **LARGE_JOBS,
}


@dataclass(frozen=True)
class Limits:
    """Worker processes with one thread each; their memory as text, empty for Dask's default."""

    processes: int
    memory: str


@contextlib.contextmanager
def _start(engine: str, limits: Limits) -> Iterator[None]:
    """Start a cluster, except for Polars and DuckDB, which have as many threads."""
    if engine == "duckdb":
        import duckdb

        duckdb.sql(f"set threads = {limits.processes}")
        if limits.memory:
            total = parse_bytes(limits.memory) * limits.processes
            duckdb.sql(f"set memory_limit = '{total}B'")
            duckdb.sql("set temp_directory = '/tmp/duckdb_benchmark'")
    if engine in ("polars", "duckdb"):
        yield
        return
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=limits.processes,
        threads_per_worker=1,
        memory_limit=limits.memory or "auto",
        dashboard_address=None,
    )
    with cluster, Client(cluster) as client:
        client.run(lambda: __import__("hyperplane.dataframe") and None)
        yield


def run_job(job: str, engine: str, folder: Path, limits: Limits) -> None:
    """Run one job twice with one engine in this process; print figures of the second run.

    With limited memory it runs once: what libraries need at first is small then.
    """
    run = JOBS[job][engine]
    with _start(engine, limits):
        if not limits.memory:
            run(folder)
            wait_until_cold()
        answer, measured = measure(lambda: run(folder))
    print(json.dumps({**measured, "answer": answer}))


def _run_in_process(
    job: str, engine: str, folder: Path, limits: Limits, timeout: float
) -> dict[str, Any] | str:
    """Return the figures of a run, or why there are none."""
    command = [sys.executable, "-m", "benchmarks.joins", "--one", job, engine, str(folder)]
    command += ["--processes", str(limits.processes), "--memory", limits.memory]
    environment = {**os.environ, "POLARS_MAX_THREADS": str(limits.processes)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return f"unfinished after {timeout:.0f} s"
    if done.returncode and limits.memory:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:100]
    if done.returncode:
        sys.exit(f"{job} with {engine} failed:\n{done.stdout}\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(
    job: str, engines: list[str], folder: Path, rounds: int, limits: Limits, timeout: float
) -> None:
    """Run one job with all engines alternately; print the figures of all rounds."""
    results: dict[str, list[dict[str, Any]]] = {
        engine: [] for engine in engines if engine in JOBS[job]
    }
    failures: dict[str, str] = {}
    load = os.getloadavg()[0]
    for _ in range(rounds):
        for engine in [name for name in results if name not in failures]:
            figures = _run_in_process(job, engine, folder, limits, timeout)
            if isinstance(figures, str):
                failures[engine] = figures
            else:
                results[engine].append(figures)
    answers = {json.dumps(figures["answer"]) for each in results.values() for figures in each}
    agreed = "answers agree" if len(answers) == 1 else f"ANSWERS DIFFER: {answers}"
    print(f"\n{job}: load {load:.1f} to {os.getloadavg()[0]:.1f}, {agreed}")
    for engine, each in results.items():
        if engine in failures:
            print(f"  {engine:12}{failures[engine]}")
            continue
        shown = [
            f"{name} {' '.join(f'{figures[name]:.2f}' for figures in each)} "
            f"(median {statistics.median(figures[name] for figures in each):.2f})"
            for name in ("wall_s", "cpu_s", "peak_mb")
        ]
        print(f"  {engine:12}" + "  ".join(shown))
    sys.stdout.flush()


def main() -> None:
    """Write the tables and run the jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--files", type=int, default=FILES, help="files of each large table")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--memory", default="", help="memory of each worker, such as 1GB")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    limits = Limits(arguments.processes, arguments.memory)
    if arguments.one:
        job, engine, folder = arguments.one
        run_job(job, engine, Path(folder), limits)
        return
    with tempfile.TemporaryDirectory() as root:
        if not set(arguments.jobs) <= set(LARGE_JOBS):
            write_tables(Path(root), arguments.rows)
        if set(arguments.jobs) & set(LARGE_JOBS):
            write_large_tables(Path(root), arguments.rows, arguments.files)
        for job in arguments.jobs:
            compare(job, arguments.engines, Path(root), arguments.rounds, limits, arguments.timeout)


if __name__ == "__main__":
    main()
