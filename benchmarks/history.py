"""Compare forecasts from the records of earlier runs with measured runs of other sizes.

    python -m benchmarks.history [--json FILE] [WORKLOAD ...]

Each job runs with half of the data of ``benchmarks.forecast`` (size 1), again with the same, with
1.5 and with 2 times as much. Before each later run it is forecast from the records of those before.
Peaks are those of the kernel (VmHWM) for the largest worker process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import dask

import hyperplane
from benchmarks import forecast as forecasts
from hyperplane import history

#: Processes and threads.
LAYOUT = (2, 1)
SIZES = (1.0, 1.0, 1.5, 2.0)
OUTPUT = Path(tempfile.gettempdir(), "hyperplane-benchmark-history")
#: Workloads that were run after the constants of the forecast were chosen.
FRESH = {"array_mean", "cumulated", "group_median", "text_lengths"}


def _files(name: str, size: float, suffix: str = "parquet") -> list[str]:
    count = round(size * forecasts.FILES / 2)
    return [str(forecasts.FOLDER / name / f"part-{part:04}.{suffix}") for part in range(count)]


def _events(size: float) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(_files("events", size))


def _orders(size: float) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(_files("orders", size))


def filter_count(size: float) -> Any:
    """Count the rows that a filter keeps."""
    events = _events(size)
    return events[events.value > 0.5].quantity.count()


def group_few(size: float) -> Any:
    """Group by a column of three values."""
    events = _events(size)
    changed = events.assign(amount=events.value * events.quantity)
    return changed.groupby("flag").agg({"amount": ["sum", "mean"], "quantity": "max"})


def group_many(size: float) -> Any:
    """Group by a column of as many values as a quarter of the rows."""
    return _events(size).groupby("order").value.sum()


def merge(size: float) -> Any:
    """Join two tables that are ordered by the key."""
    joined = _events(size)[["order", "value", "quantity"]].merge(_orders(size), on="order")
    return joined.groupby("priority").value.sum()


def distinct(size: float) -> Any:
    """Distinct rows of two columns."""
    return _events(size)[["user", "flag"]].drop_duplicates()


def write(size: float) -> Any:
    """Write a filtered table."""
    events = _events(size)
    return events[events.quantity > 10].to_parquet(OUTPUT / "written", compute=False)


def sort_write(size: float) -> Any:
    """Sort a table by a column and write it."""
    ordered = _events(size)[["user", "value", "time"]].sort_values("value")
    return ordered.to_parquet(OUTPUT / "sorted", compute=False)


def function(size: float) -> Any:
    """Apply a function that needs 200 MB for a moment to each partition."""
    meta = {"mean": float}
    return _events(size)[["value"]].map_partitions(forecasts._allocate, meta=meta).sum()


def array_sum(size: float) -> Any:
    """Reduce an array of 1.6 GB."""
    import dask.array as da

    numbers = da.random.default_rng(1).random((round(size * 10_000), 20_000), chunks=(1000, 10_000))
    return ((numbers - 0.5) ** 2).mean(axis=0)


def array_transpose(size: float) -> Any:
    """Add an array to its transpose, in rows of blocks."""
    import dask.array as da

    rows = round(size * 4) * 2000
    numbers = da.random.default_rng(1).random((rows, 8000), chunks=(2000, 2000))
    return (numbers.T.dot(numbers)).sum()


def bag_words(size: float) -> Any:
    """Count the words of texts."""
    import dask.bag as db

    return db.read_text(_files("text", size, "txt")).str.split().flatten().frequencies()


def array_mean(size: float) -> Any:
    """Standardize an array by its columns and reduce it."""
    import dask.array as da

    numbers = da.random.default_rng(2).random((round(size * 8) * 1000, 9000), chunks=(1000, 3000))
    return abs((numbers - numbers.mean(axis=0)) / numbers.std(axis=0)).max()


def cumulated(size: float) -> Any:
    """Cumulate a column."""
    return _events(size).value.cumsum().max()


def group_median(size: float) -> Any:
    """Median of each group, for which rows are shuffled."""
    return _events(size)[["user", "value"]].groupby("user").value.median()


def _measure_lines(lines: Any) -> list[int]:
    return [len(line) for line in lines]


def text_lengths(size: float) -> Any:
    """Standard deviation of the lengths of lines."""
    import dask.bag as db

    lines = db.read_text(_files("text", size, "txt")).map_partitions(_measure_lines)
    return lines.std()


WORKLOADS: dict[str, Callable[[float], Any]] = {
    each.__name__: each
    for each in (
        filter_count, group_few, group_many, merge, distinct, write, sort_write, function,
        array_sum, array_transpose, bag_words, array_mean, cumulated, group_median, text_lengths,
    )
}  # fmt: skip


def run(name: str, size: float, plan: hyperplane.ClusterPlan) -> dict[str, Any]:
    """Run a job on a new cluster; return what its record has of it, and what was measured."""
    shutil.rmtree(OUTPUT / "written", ignore_errors=True)
    shutil.rmtree(OUTPUT / "sorted", ignore_errors=True)
    client, cluster = hyperplane.start(plan)
    try:
        client.compute(WORKLOADS[name](size)).result()
        usage = client.run(forecasts._read_usage)
    finally:
        client.close()
        cluster.close()
    found = max(history.read_run("latest").computations, key=lambda each: each.seconds)
    return {
        "peak": max(peak for peak, _ in usage.values()),
        "recorded": found.peak,
        "empty": found.empty,
        "cpu": found.cpu_seconds,
        "seconds": found.seconds,
        "input": found.input,
        "structure": found.structure,
    }


def compare(name: str, plan: hyperplane.ClusterPlan) -> list[dict[str, Any]]:
    """Run a job in all sizes, and forecast each run but the first from those before."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        first: dict[float, Any] = {}
        for number, size in enumerate(SIZES):
            found = hyperplane.forecast(WORKLOADS[name](size), plan) if number else None
            measured = run(name, size, plan)
            if not number:
                first = {
                    each: hyperplane.forecast(WORKLOADS[name](each), plan) for each in set(SIZES)
                }
                rows.append({"name": name, "size": size, "runs": 0, **measured})
                continue
            for runs, each in ((1, first[size]), (number, found)):
                if number == 1 and runs == 1 and each is found:
                    continue
                row = {"name": name, "size": size, "runs": runs, **measured}
                row |= {"forecast": each.peak, "low": each.low, "high": each.high}
                row |= {"forecast_cpu": each.cpu_s, "sampled": each.sampled, "cost": each.cost}
                rows.append(row)
    return rows


def main() -> None:
    """Print a table of all workloads and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    parser.add_argument("--json", type=Path, help="file to which figures are added")
    arguments = parser.parse_args()
    forecasts.make_data()
    OUTPUT.mkdir(exist_ok=True)
    # Without a cluster, some collections choose another method of shuffles when they are made.
    dask.config.set({"dataframe.shuffle.method": "p2p"})
    plan = forecasts.make_plan(*LAYOUT)
    print(
        "| job | size | from runs | forecast MB | interval | measured MB | error | CPU s | error |"
    )
    print("|---" * 9 + "|")
    rows: list[dict[str, Any]] = []
    for name in arguments.workloads or WORKLOADS:
        for row in compare(name, plan):
            rows.append(row)
            print(_line(row), flush=True)
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    summarize(rows)


def _line(row: dict[str, Any]) -> str:
    fresh = " (fresh)" if row["name"] in FRESH else ""
    if not row["runs"]:
        return f"| {row['name']}{fresh} | {row['size']:g} | | | | {row['peak'] / 1e6:.0f} | | | |"
    inside = "" if row["low"] <= row["peak"] <= row["high"] else " !"
    sampled = " (sampled)" if row["sampled"] else ""
    return (
        f"| {row['name']}{fresh} | {row['size']:g} | {row['runs']}{sampled} "
        f"| {row['forecast'] / 1e6:.0f} | {row['low'] / 1e6:.0f}-{row['high'] / 1e6:.0f}{inside} "
        f"| {row['peak'] / 1e6:.0f} | {row['forecast'] / row['peak'] - 1:+.0%} "
        f"| {row['cpu']:.1f} | {row['forecast_cpu'] / row['cpu'] - 1:+.0%} |"
    )


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print the errors by the number of runs and the size."""
    known = [row for row in rows if row["runs"] and not row["sampled"]]
    for kind in sorted({(row["size"], row["runs"]) for row in known}):
        some = [row for row in known if (row["size"], row["runs"]) == kind]
        errors = [row["forecast"] / row["peak"] - 1 for row in some]
        inside = sum(row["low"] <= row["peak"] <= row["high"] for row in some)
        widths = [(row["high"] - row["low"]) / row["forecast"] for row in some]
        cpu = [abs(row["forecast_cpu"] / row["cpu"] - 1) for row in some]
        print(
            f"size {kind[0]:g} from {kind[1]} runs: median |error| {median(map(abs, errors)):.1%}, "
            f"{min(errors):+.0%} to {max(errors):+.0%}; {inside} of {len(some)} inside, median "
            f"width {median(widths):.0%}; median |error| of CPU s {median(cpu):.0%}"
        )


if __name__ == "__main__":
    main()
