"""CSV files of five kinds: plain Dask, hyperplane, Polars and DuckDB.

Numbers, hexadecimal ids, long texts, texts in quotes with line ends, and many columns, each in
several files. A job counts the values of all columns, so that every value is parsed. Each run is a
separate process with two threads, alternating; imports and the first use of each library are not
measured. The figures are CPU seconds and the peak of the process.

    python benchmarks/csv_kinds.py --rounds 3 --mb 400
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import abab

THREADS, FILES = 2, 8
KINDS = ("numbers", "ids", "texts", "quoted", "columns")


def _table(kind: str, rows: int, seed: int) -> Any:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(seed)
    if kind == "numbers":
        table = {f"n{i}": rng.integers(-(10**6), 10**9, rows) for i in range(5)}
        return pd.DataFrame(table | {f"f{i}": rng.normal(0, 10.0**i, rows) for i in range(5)})
    if kind == "ids":
        table = {
            f"id{i}": [f"{value:016x}" for value in rng.integers(0, 2**63, rows)] for i in range(4)
        }
        return pd.DataFrame(table | {"n": rng.integers(0, 100, rows)})
    if kind == "columns":
        return pd.DataFrame(
            {f"c{i}": rng.integers(0, 10**6, rows) / 4 for i in range(150)}
            | {f"d{i}": rng.integers(0, 100, rows) for i in range(100)}
            | {f"t{i}": rng.choice(["red", "green", "blue"], rows) for i in range(50)}
        )
    words = np.array(["lorem", "ipsum", "dolor", "sit", "amet", "été", "naïve", "42"])
    picked = words[rng.integers(0, len(words), (rows, 40))]
    texts = [" ".join(row) for row in picked]
    if kind == "quoted":
        texts = [f'{text[:90]}\n"{text[90:99]}", and\n{text[100:]}' for text in texts]
    return pd.DataFrame({"n": rng.integers(0, 10**6, rows), "text": texts})


def make(folder: Path, megabytes: float) -> None:
    """Write the files of each kind, together about this size."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        sample = _table(kind, 1_000, 0).to_csv(index=False)
        rows = max(10, int(megabytes * 1e6 / FILES / (len(sample.encode()) / 1_000)))
        for number in range(FILES):
            path = folder / kind / f"{number}.csv"
            _table(kind, rows, number).to_csv(path, index=False)


def dask(kind: str, folder: str) -> Any:
    import dask.dataframe as dd

    # With line ends in values, Dask reads a file in one partition only.
    blocks = {"blocksize": None} if kind == "quoted" else {}
    return int(dd.read_csv(f"{folder}/{kind}/*.csv", **blocks).count().sum().compute())


def hyperplane(kind: str, folder: str) -> Any:
    from hyperplane.collections.frames.read import read

    options = {"multiline": True} if kind == "quoted" else {}
    return int(read(f"{folder}/{kind}/*.csv", **options).count().sum().compute())


def polars(kind: str, folder: str) -> Any:
    import polars as pl

    rows = pl.scan_csv(f"{folder}/{kind}/*.csv")
    return sum(rows.count().collect(engine="streaming").row(0))


def duckdb(kind: str, folder: str) -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": THREADS})
    files = f"read_csv('{folder}/{kind}/*.csv')"
    names = [row[0] for row in connection.sql(f"describe select * from {files}").fetchall()]
    counts = ", ".join(f'count("{name}")' for name in names)
    return sum(connection.sql(f"select {counts} from {files}").fetchall()[0])


LIBRARIES: dict[str, Callable[[str, str], Any]] = {
    "dask": dask,
    "hyperplane": hyperplane,
    "polars": polars,
    "duckdb": duckdb,
}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run_once(library: str, kind: str, folder: str) -> None:
    """Run one job with one library; print its figures."""
    import dask
    import dask.dataframe

    import hyperplane.collections.frames.read  # noqa: F401 - imports are not measured

    dask.config.set(scheduler="threads", num_workers=THREADS)
    LIBRARIES[library](kind, f"{folder}/few")  # initialization on first use is not measured
    before = _cpu()
    answer = LIBRARIES[library](kind, folder)
    figures = {"cpu": _cpu() - before, "answer": answer}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({**figures, "peak": peak}))


def main() -> None:
    """Write the data, run all libraries alternately, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=float, default=400.0)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--one", nargs=3, metavar=("LIBRARY", "KIND", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.one:
        run_once(*arguments.one)
        return
    with tempfile.TemporaryDirectory(prefix="hyperplane-csv-") as folder:
        make(Path(folder), arguments.mb)
        make(Path(folder, "few"), 0.1)
        print(f"CPU seconds (peak MB), {arguments.mb:g} MB of each kind")
        print(f"{'':10}" + "".join(f"{name:>16}" for name in LIBRARIES) + "   ours/best  dask/ours")
        for kind in arguments.kinds:
            commands = {name: [__file__, "--one", name, kind, folder] for name in LIBRARIES}
            results = abab.run_alternately(commands, arguments.rounds)
            if len({value for each in results.values() for value in each["answer"]}) > 1:
                print(f"{kind}: different answers", {n: r["answer"] for n, r in results.items()})
            cpu = {name: statistics.median(each["cpu"]) for name, each in results.items()}
            cells = "".join(
                f"{cpu[name]:9.2f} ({statistics.median(each['peak']):4.0f})"
                for name, each in results.items()
            )
            best = min(cpu["polars"], cpu["duckdb"])
            print(
                f"{kind:10}{cells}{cpu['hyperplane'] / best:12.1f}"
                f"{cpu['dask'] / cpu['hyperplane']:11.1f}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
