"""TPC-H: plain Dask code on a default LocalCluster and on hyperplane's, and Polars and DuckDB.

    python benchmarks/tpch --scale 1 --rounds 3
    python benchmarks/tpch --one-at-a-time --queries q1 q5 q18

Every run is a separate process, alternating (A B A B). All engines read the same files, and every
answer is compared with DuckDB's. CPU seconds and anonymous memory are those of the whole process
tree. The start of the cluster and a first query are a separate column and not part of the figures
of the queries.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from data import tables
from peers import SQL

Figures = dict[str, float]
Engine = tuple[str, dict[str, Any]]

CORES = os.cpu_count() or 1
#: Name -> the engine of run.py and its options.
ENGINES: dict[str, Engine] = {
    "default": ("default", {}),
    "default, one process": ("default", {"n_workers": 1, "threads_per_worker": CORES}),
    "ours, as Dask": ("ours", {"tuning": "dask"}),
    "ours": ("ours", {}),
    "polars": ("polars", {}),
    "duckdb": ("duckdb", {}),
}


def one_at_a_time() -> dict[str, Engine]:
    """Return engines with hyperplane's cluster: no tuning, each setting alone, all settings."""
    from hyperplane import config

    _, profile = config.tuning().find("fast")
    parts: dict[str, dict[str, Any]] = {"server": {"server": profile.server}}
    for key, value in profile.one_process.items():
        parts[key] = {"one_process": {key: value}}
    malloc = {name: value for name, value in profile.environ.items() if "MALLOC" in name}
    parts["MALLOC"] = {"environ": malloc}
    for name in profile.environ.keys() - malloc.keys() - {"POLARS_MAX_THREADS"}:
        parts[name] = {"environ": {name: profile.environ[name]}}
    engines = {"ours, as Dask": ENGINES["ours, as Dask"]}
    for name, part in parts.items():
        settings = {"hyperplane.tuning.profiles.one": part}
        engines[name] = ("ours", {"tuning": "one", "config": settings})
    return {**engines, "ours": ENGINES["ours"]}


def run(engine: Engine, folder: Path, queries: list[str], answers: Path) -> Figures:
    name, options = engine
    command = [sys.executable, str(Path(__file__).with_name("run.py")), name]
    command += ["--folder", str(folder), "--options", json.dumps(options)]
    command += ["--answers", str(answers), "--queries", *queries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{engine} failed:\n{done.stdout}\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def check(answers: Path, engine: str, queries: list[str]) -> None:
    """Compare answers with DuckDB's, ignoring the order of rows."""
    for query in queries:
        expected = pd.read_parquet(answers / f"duckdb-{query}.parquet")
        answer = pd.read_parquet(answers / f"{engine}-{query}.parquet")[list(expected)]
        columns = sorted(expected, key=lambda name: expected[name].dtype.kind == "f")
        answer, expected = (
            frame.sort_values(columns).reset_index(drop=True) for frame in (answer, expected)
        )
        pd.testing.assert_frame_equal(answer, expected, check_dtype=False, rtol=1e-9)


def print_table(kind: str, results: dict[str, list[Figures]], queries: list[str]) -> None:
    """Print medians, and the geometric mean of the ratios to the first engine."""

    def median(name: str, key: str) -> float:
        return statistics.median(figures[f"{key} {kind}"] for figures in results[name])

    base = next(iter(results))
    starts = [] if kind == "peak" else ["start"]
    unit = "MB" if kind == "peak" else "s"
    print(f"\n{kind} [{unit}], medians; ratio: geometric mean of {base} / engine")
    print(f"{'':30}" + "".join(f"{key:>8}" for key in [*starts, *queries]) + "   ratio  with start")
    for name in results:
        row = [median(name, key) for key in [*starts, *queries]]
        ratios = [median(base, query) / median(name, query) for query in queries]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        total = sum(median(base, key) for key in [*starts, *queries]) / sum(row)
        shown = f"{total:10.2f}" if starts else ""
        print(f"{name:30}" + "".join(f"{each:8.2f}" for each in row) + f"{mean:8.2f}{shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", nargs="+", default=list(SQL), choices=list(SQL))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--one-at-a-time", action="store_true", help="each setting alone")
    cache = Path(tempfile.gettempdir()) / "hyperplane-tpch"
    parser.add_argument("--cache", type=Path, default=cache, help="folder of the tables")
    arguments = parser.parse_args()
    folder = tables(arguments.cache, arguments.scale)
    engines = {name: ENGINES[name] for name in arguments.engines}
    if arguments.one_at_a_time:
        engines = one_at_a_time()
    results: dict[str, list[Figures]] = {name: [] for name in engines}
    with tempfile.TemporaryDirectory() as answers:
        run(ENGINES["duckdb"], folder, arguments.queries, Path(answers))
        for _ in range(arguments.rounds):
            for name, engine in engines.items():
                results[name].append(run(engine, folder, arguments.queries, Path(answers)))
                check(Path(answers), engine[0], arguments.queries)
    print(f"scale {arguments.scale}, {arguments.rounds} rounds, {CORES} cores", end="")
    print(f", load {os.getloadavg()[0]:.1f}; answers equal DuckDB's")
    for kind in ("cpu", "wall", "peak"):
        print_table(kind, results, arguments.queries)


if __name__ == "__main__":
    main()
