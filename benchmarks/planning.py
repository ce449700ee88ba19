"""Planning of many Parquet files: ``hyperplane.dataframe.read`` and plain Dask.

Each run is a separate process, alternating, and plans a group-by of all files without computing it:
reading of the footers, and the task graph. Imports are not measured. Memory is the peak of the
process minus its memory before.

    python benchmarks/planning.py --files 10000 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import abab

ROWS, NUMBERS, TEXTS = 1_000, 8, 4


def make(folder: Path, files: int) -> None:
    """Write files of 12 columns and 1,000 rows."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    for file in range(files):
        first = file * ROWS
        numbers = {f"number_{i}": np.arange(first + i, first + i + ROWS) for i in range(NUMBERS)}
        texts = {f"text_{i}": [f"value {row}" for row in range(ROWS)] for i in range(TEXTS)}
        parquet.write_table(pa.table(numbers | texts), folder / f"part-{file:05d}.parquet")


def run_once(how: str, folder: str) -> None:
    """Run one measurement in this process; print it as JSON."""
    import dask.dataframe as dd

    from hyperplane import dataframe

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    cpu = time.process_time()
    if how == "hyperplane":
        result = dataframe.group_agg(
            dataframe.read(folder), "text_0", {"number_1": "sum"}
        ).optimize()
    else:
        result = dd.read_parquet(folder).groupby("text_0").number_1.sum().optimize()
    assert len(dict(result.__dask_graph__()))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = (peak - before) * 1024 / 1e6
    print(json.dumps({"time [s]": seconds, "CPU [s]": cpu, "memory [MB]": memory}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", nargs=2, metavar=("HOW", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        run_once(*arguments.once)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), arguments.files)
        commands = {
            name: [__file__, "--once", name, folder] for name in ("plain Dask", "hyperplane")
        }
        results = abab.run_alternately(commands, arguments.rounds)
    print(f"Plan of a group-by of {arguments.files} files, {arguments.rounds} rounds, medians")
    print(f"{'':14}{'plain Dask':>12}{'hyperplane':>12}")
    for key, ours in results["hyperplane"].items():
        theirs = results["plain Dask"][key]
        print(f"{key:14}{statistics.median(theirs):12.2f}{statistics.median(ours):12.2f}")


if __name__ == "__main__":
    main()
