"""Whether the upper end of a forecast holds in runs of shuffles.

    python -m benchmarks.forecast_shuffles [--json FILE] [--first N] [--last N]

Thirty cases: rows that are shuffled by a skewed key, joined, sorted and grouped, and an array that
is rechunked, with different sizes, numbers of output partitions, and one to three processes. Each
is forecast and then run on a new cluster. The memory is that of the largest worker process (VmHWM).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import dask

import hyperplane
from benchmarks.forecast import FOLDER, make_data, make_plan, run

#: Processes and threads.
LAYOUTS = ((2, 1), (3, 1), (1, 2))
FILES, PARTITIONS = (6, 12, 24), (8, 24, 60)


@dataclass(frozen=True)
class ShuffleCase:
    """A shuffle of a number of files to a number of partitions."""

    operation: str
    files: int
    partitions: int
    layout: tuple[int, int]

    def __str__(self) -> str:
        processes, threads = self.layout
        return f"{self.operation} {self.files}/{self.partitions} {processes}x{threads}"


def _read(name: str, files: int) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet([FOLDER / name / f"part-{part:04}.parquet" for part in range(files)])


def shuffle(files: int, partitions: int) -> Any:
    """Shuffle by a key of which a few values have many rows."""
    events = _read("events", files)[["user", "value", "time"]]
    return events.shuffle("user", npartitions=partitions).value.sum()


def join(files: int, partitions: int) -> Any:
    """Join two tables of which none is small."""
    events = _read("events", files)[["order", "value", "flag"]]
    joined = events.merge(_read("orders", files), on="order", npartitions=partitions)
    return joined.groupby("priority").value.sum()


def sort(files: int, partitions: int) -> Any:
    """Sort by a column."""
    events = _read("events", files)[["user", "value", "item"]]
    return events.sort_values("value", npartitions=partitions).user.sum()


def group(files: int, partitions: int) -> Any:
    """Group by many keys, for which rows are shuffled."""
    events = _read("events", files)[["order", "value"]]
    return events.groupby("order").value.median(split_out=partitions).max()


def rechunk(files: int, partitions: int) -> Any:
    """Rechunk an array from rows to columns."""
    import dask.array as da

    size = 600 * files // 2
    numbers = da.random.default_rng(1).random((size, 6000), chunks=(size // files, 6000))
    return numbers.rechunk((size, 6000 // partitions)).std(axis=0)


OPERATIONS: dict[str, Callable[[int, int], Any]] = {
    each.__name__: each for each in (shuffle, join, sort, group, rechunk)
}


def list_cases() -> list[ShuffleCase]:
    """Return thirty cases: each operation with each layout, in two sizes."""
    cases = []
    for number, (operation, layout) in enumerate(
        (operation, layout) for layout in LAYOUTS for operation in OPERATIONS
    ):
        for turn in range(2):
            files = FILES[(number + turn) % len(FILES)]
            partitions = PARTITIONS[(number // 2 + 2 * turn) % len(PARTITIONS)]
            cases.append(ShuffleCase(operation, files, partitions, layout))
    return cases


def compare(case: ShuffleCase) -> dict[str, Any]:
    """Forecast a shuffle, run it, and return both."""
    plan = make_plan(*case.layout)

    def make() -> Any:
        # As with a client: without one, chunks would be moved by tasks.
        with dask.config.set({"array.rechunk.method": "p2p"}):
            return OPERATIONS[case.operation](case.files, case.partitions)

    found = hyperplane.forecast(make(), plan, history=False)
    measured = run(make, plan)
    return {
        "name": str(case), "peak": found.peak, "low": found.low, "high": found.high,
        "measured": measured["peak"], "empty": measured["empty"], "shuffled": found.shuffled,
        "reasons": found.reasons,
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    mark = "" if row["measured"] <= row["high"] else " !"
    figures = [f"{row[key] / 1e6:.0f}" for key in ("shuffled", "peak", "low", "high", "measured")]
    shuffled, peak, low, high, measured = figures
    return f"| `{row['name']}` | {shuffled} | {peak} | {low} to {high} | {measured}{mark} |"


def main() -> None:
    """Print a table of all cases and a summary."""
    cases = list_cases()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="number of the first case")
    parser.add_argument("--last", type=int, default=len(cases), help="number of the last case")
    parser.add_argument("--json", type=Path, help="file to which figures are added")
    arguments = parser.parse_args()
    make_data()
    print("| case | shuffled MB | forecast MB | interval | measured MB |")
    print("|---" * 5 + "|")
    rows = []
    for case in cases[arguments.first - 1 : arguments.last]:
        rows.append(compare(case))
        print(_line(rows[-1]), flush=True)
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    known = [row for row in rows if row["peak"]]
    held = sum(row["measured"] <= row["high"] for row in known)
    errors = [row["peak"] / row["measured"] - 1 for row in known]
    print(
        f"the upper end holds in {held} of {len(known)} runs; median |error| "
        f"{median(map(abs, errors)):.1%}, {min(errors):+.0%} to {max(errors):+.0%}"
    )


if __name__ == "__main__":
    main()
