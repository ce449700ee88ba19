"""Reading files: Dask's readers, hyperplane, pandas, Polars and DuckDB.

Each run is a separate process with two threads, alternating. The data is written once; imports are
not measured. CPU seconds are those of the process and its children.

    python benchmarks/readers.py --rounds 5
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import abab

THREADS = 2
WANTED = ["f0", "f1", "i0", "s0"]
AVRO_COLUMNS = ["user", "kind", "value", "time"]


def make(folder: Path, rows: int) -> None:
    """Write wide Parquet, raw Parquet similar to TPC-H, CSV and Avro files."""
    import fastavro
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng = np.random.default_rng(0)
    for name in ("wide", "raw", "csv", "avro"):
        (folder / name).mkdir(parents=True)
    part = rows // 8
    words = np.array([f"word-{i}" for i in range(5_000)])
    for number in range(8):
        wide = {f"f{i}": rng.random(part) for i in range(30)}
        wide |= {f"i{i}": rng.integers(0, 10**6, part) for i in range(20)}
        wide |= {f"s{i}": words[rng.integers(0, 5_000, part)] for i in range(10)}
        parquet.write_table(pa.table(wide), folder / "wide" / f"{number}.parquet")
        prices = pa.array(rng.integers(400, 10**7, part) / 4).cast(pa.decimal128(15, 2))
        days = pa.array(rng.integers(8_000, 10_000, part), pa.int32()).cast(pa.date32())
        raw = dict.fromkeys([f"price{i}" for i in range(4)], prices) | {"day": days}
        parquet.write_table(pa.table(raw), folder / "raw" / f"{number}.parquet")
        text = pa.table({name: wide[name] for name in ("f0", "f1", "f2", "i0", "i1", "s0", "s1")})
        csv.write_csv(text, folder / "csv" / f"{number}.csv")
    schema = {
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "user", "type": "long"},
            {"name": "kind", "type": "string"},
            {"name": "value", "type": ["null", "double"]},
            {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
    for number in range(4):
        count = rows // 40
        records = [
            {"user": int(u), "kind": str(k), "value": float(v), "time": 1_700_000_000_000_000 + t}
            for t, (u, k, v) in enumerate(
                zip(
                    rng.integers(0, 10**5, count),
                    words[rng.integers(0, 9, count)],
                    rng.random(count),
                    strict=True,
                )
            )
        ]
        with (folder / "avro" / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, records, codec="deflate")


def usual(job: str, folder: str) -> Any:
    import dask.bag
    import dask.dataframe as dd

    if job == "wide":
        return dd.read_parquet(f"{folder}/wide", columns=WANTED).max().compute()
    if job == "raw":
        frame = dd.read_parquet(f"{folder}/raw")
        prices = [name for name in frame.columns if name != "day"]
        frame = frame.assign(day=dd.to_datetime(frame.day)).astype(dict.fromkeys(prices, float))
        return frame.max().compute()
    if job == "csv":
        return dd.read_csv(f"{folder}/csv/*.csv").max().compute()
    if job == "csv two columns":
        return dd.read_csv(f"{folder}/csv/*.csv", usecols=["f0", "s0"]).max().compute()
    return dask.bag.read_avro(f"{folder}/avro/*.avro").to_dataframe().max().compute()


def ours(job: str, folder: str) -> Any:
    from hyperplane.collections.frames.read import read

    if job == "wide":
        return read(f"{folder}/wide", WANTED).max().compute()
    if job in ("csv", "csv two columns"):
        columns = ["f0", "s0"] if "two" in job else None
        return read(f"{folder}/csv/*.csv", columns).max().compute()
    return read(f"{folder}/{job}").max().compute()


def pandas(job: str, folder: str) -> Any:
    import fastavro
    import pandas as pd

    if job == "wide":
        return pd.read_parquet(f"{folder}/wide", columns=WANTED).max()
    if job == "raw":
        frame = pd.read_parquet(f"{folder}/raw")
        prices = [name for name in frame.columns if name != "day"]
        return (
            frame.assign(day=pd.to_datetime(frame.day)).astype(dict.fromkeys(prices, float)).max()
        )
    if job.startswith("csv"):
        columns = ["f0", "s0"] if "two" in job else None
        files = sorted(Path(folder, "csv").glob("*.csv"))
        return pd.concat([pd.read_csv(file, usecols=columns) for file in files]).max()
    records: list[Any] = []
    for file in sorted(Path(folder, "avro").glob("*.avro")):
        with file.open("rb") as opened:
            records += fastavro.reader(opened)
    return pd.DataFrame(records).max()


def polars(job: str, folder: str) -> Any:
    import polars as pl

    if job == "avro":
        files = sorted(Path(folder, "avro").glob("*.avro"))
        return pl.concat([pl.read_avro(file) for file in files]).max().row(0)
    if job.startswith("csv"):
        rows = pl.scan_csv(f"{folder}/csv/*.csv")
        return (rows.select("f0", "s0") if "two" in job else rows).max().collect().row(0)
    rows = pl.scan_parquet(f"{folder}/{job}/*.parquet")
    return (rows.select(WANTED) if job == "wide" else rows).max().collect().row(0)


def duckdb(job: str, folder: str) -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": THREADS})
    if job == "avro":
        raise NotImplementedError("DuckDB reads Avro with an extension that must be downloaded")
    kind = "csv" if job.startswith("csv") else "parquet"
    files = f"{folder}/{job.split()[0]}/*.{kind}"
    names = {"wide": WANTED, "csv two columns": ["f0", "s0"]}.get(job)
    if names is None:
        described = connection.sql(f"describe select * from '{files}'").fetchall()
        names = [row[0] for row in described]
    maxima = ", ".join(f"max({name})" for name in names)
    return connection.sql(f"select {maxima} from '{files}'").fetchall()


FORMS: dict[str, Callable[[str, str], Any]] = {
    "usual": usual,
    "ours": ours,
    "pandas": pandas,
    "polars": polars,
    "duckdb": duckdb,
}
JOBS = ("wide", "raw", "csv", "csv two columns", "avro")


def _cpu() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_form(form: str, folder: str) -> None:
    """Run all jobs with one library; print the figures of each."""
    import dask
    import dask.bag
    import dask.dataframe

    import hyperplane.collections.frames.read  # noqa: F401 - imports are not measured

    dask.config.set(scheduler="threads", num_workers=THREADS)
    figures = {}
    for job in JOBS:
        try:
            FORMS[form](job, f"{folder}/few")  # initialization on first use is not measured
        except NotImplementedError:
            figures |= {f"{job} cpu": math.nan, f"{job} wall": math.nan}
            continue
        cpu, wall = _cpu(), time.perf_counter()
        FORMS[form](job, folder)
        figures[f"{job} cpu"] = _cpu() - cpu
        figures[f"{job} wall"] = time.perf_counter() - wall
    print(json.dumps(figures))


def main() -> None:
    """Write the data, run all libraries alternately, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--one", nargs=2, metavar=("FORM", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.one:
        run_form(*arguments.one)
        return
    with tempfile.TemporaryDirectory(prefix="hyperplane-readers-") as folder:
        make(Path(folder), arguments.rows)
        make(Path(folder, "few"), 400)
        commands = {form: [__file__, "--one", form, folder] for form in FORMS}
        results = abab.run_alternately(commands, arguments.rounds)
    abab.print_report(f"Readers, {arguments.rows} rows", results, "ours", "usual")
    print(f"\n{'medians':28}" + "".join(f"{form:>12}" for form in FORMS))
    for key in results["ours"]:
        row = "".join(f"{statistics.median(results[form][key]):12.3f}" for form in FORMS)
        print(f"{key:28}{row}")


if __name__ == "__main__":
    sys.exit(main())
