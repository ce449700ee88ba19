"""Saving a dataframe to a local disk: ``hyperplane.save`` against Dask's ``to_parquet``.

The dataframe is persisted in one worker process with two threads. Each measurement is a separate
process that writes to a new folder, and then saves the unchanged dataframe again.

    python benchmarks/storage.py --size 1GB --partitions 16 --rounds 5
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from typing import Any

import abab

ROW = 8 + 8 + 8 + 8


def block(number: int, rows: int) -> Any:
    """Return one partition: integers, floats, times and a column of few values."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(number)
    return pd.DataFrame(
        {
            "id": np.arange(rows) + number * rows,
            "value": rng.normal(size=rows),
            "at": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**9, rows), "us"),
            "kind": rng.integers(0, 9, rows),
        }
    )


def run_once(how: str, folder: str, size: int, partitions: int) -> None:
    """Run one measurement in this process; print it as JSON."""
    import dask.dataframe as dd
    from distributed import wait

    import hyperplane

    with contextlib.redirect_stdout(None):
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=1, nthreads=2, ram_gb_per_proc=8
        )
    rows = size // ROW // partitions
    df = dd.from_map(block, range(partitions), rows=rows, meta=block(0, 1)).persist()
    wait(df)
    figures = {}
    with tempfile.TemporaryDirectory(dir=folder) as target:
        began = time.perf_counter()
        if how == "ours":
            hyperplane.save(df, f"{target}/out")
        else:
            df.to_parquet(f"{target}/out")
        figures["time [s]"] = time.perf_counter() - began
        began = time.perf_counter()
        if how == "ours":
            assert not hyperplane.save(df, f"{target}/out").changed
        else:
            df.to_parquet(f"{target}/out", overwrite=True)
        figures["the same again [s]"] = time.perf_counter() - began
        assert len(dd.read_parquet(f"{target}/out")) == rows * partitions
    client.close()
    cluster.close()
    print(json.dumps(figures))


def main() -> None:
    from hyperplane.core.units import parse_bytes

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk to measure")
    parser.add_argument("--once", choices=("ours", "dask"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        size = parse_bytes(arguments.size)
        run_once(arguments.once, arguments.folder, size, arguments.partitions)
        return
    shared = ["--size", arguments.size, "--partitions", str(arguments.partitions), "--folder"]
    command = [__file__, *shared, arguments.folder, "--once"]
    results = abab.run_alternately(
        {name: [*command, name] for name in ("ours", "dask")}, arguments.rounds
    )
    title = f"{arguments.size} in {arguments.partitions} partitions"
    abab.print_report(title, results, "ours", "dask")


if __name__ == "__main__":
    main()
