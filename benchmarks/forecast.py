"""Compare forecasts with runs: peak memory of the largest worker process, and CPU seconds.

    python -m benchmarks.forecast [--json FILE] [WORKLOAD ...]

Each job is forecast for three layouts of one node and then run on a cluster of each. The kernel
records the peak of every worker process (VmHWM). Data is made on first use in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import hyperplane

#: Processes and threads.
LAYOUTS = ((1, 2), (2, 1), (3, 1))
FOLDER = Path(tempfile.gettempdir(), "hyperplane-benchmark-forecast")
FILES, ROWS = 24, 400_000
#: Workloads that were written for a check of the model of 2026-11-28.
FRESH = {
    "join_small", "cumulated", "largest_rows", "group_median", "text_lengths", "count_values",
    "write_columns", "helper_group", "array_product", "array_standard", "bag_fold",
    "delayed_frames",
}  # fmt: skip


def make_data() -> None:
    """Write an event log, a table of orders and text."""
    if (FOLDER / "complete").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in ("events", "orders", "text"):
        (FOLDER / name).mkdir(parents=True)
    random = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(5000)])
    for part in range(FILES):
        first = part * ROWS
        events = pd.DataFrame(
            {
                "order": np.arange(first, first + ROWS) // 4,
                "user": random.zipf(1.5, ROWS) % 100_000,
                "value": random.random(ROWS),
                "quantity": random.integers(1, 50, ROWS),
                "flag": random.choice(["a", "b", "c"], ROWS),
                "item": np.char.add("item-", random.integers(0, 10**6, ROWS).astype(str)),
                "time": pd.Timestamp("2024-01-01")
                + pd.to_timedelta(np.arange(first, first + ROWS), unit="s"),
            }
        )
        events.to_parquet(FOLDER / "events" / f"part-{part:04}.parquet")
        orders = pd.DataFrame(
            {
                "order": np.arange(first // 4, (first + ROWS) // 4),
                "priority": random.integers(0, 5, ROWS // 4),
                "total": random.random(ROWS // 4),
            }
        )
        orders.to_parquet(FOLDER / "orders" / f"part-{part:04}.parquet")
        lines = random.choice(words, (20_000, 12))
        text = "\n".join(" ".join(line) for line in lines)
        (FOLDER / "text" / f"part-{part:04}.txt").write_text(text)
    (FOLDER / "complete").touch()


def _events() -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(FOLDER / "events")


def _orders() -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(FOLDER / "orders")


def filter_count() -> Any:
    """Count the rows that a filter keeps."""
    events = _events()
    return events[events.value > 0.5].quantity.count()


def group_few() -> Any:
    """Group by a column of three values."""
    events = _events()
    changed = events.assign(amount=events.value * events.quantity)
    return changed.groupby("flag").agg({"amount": ["sum", "mean"], "quantity": "max"})


def group_many() -> Any:
    """Group by a column of as many values as a quarter of the rows."""
    return _events().groupby("order").value.sum()


def merge() -> Any:
    """Join two tables that are ordered by the key."""
    joined = _events()[["order", "value", "quantity"]].merge(_orders(), on="order")
    return joined.groupby("priority").value.sum()


def distinct() -> Any:
    """Distinct rows of two columns."""
    return _events()[["user", "flag"]].drop_duplicates()


def write() -> Any:
    """Write a filtered table."""
    events = _events()
    target = FOLDER / "written"
    return events[events.quantity > 10].to_parquet(target, compute=False)


def sort_write() -> Any:
    """Sort a table by a column and write it."""
    ordered = _events()[["user", "value", "time"]].sort_values("value")
    return ordered.to_parquet(FOLDER / "sorted", compute=False)


def _allocate(part: Any) -> Any:
    block = np.ones(25_000_000)  # 200 MB
    return pd.DataFrame({"mean": [part.value.mean() * block.mean()]})


def function() -> Any:
    """Apply a function that needs 200 MB for a moment to each partition."""
    return _events()[["value"]].map_partitions(_allocate, meta={"mean": float}).sum()


def array_sum() -> Any:
    """Reduce an array of 3.2 GB."""
    import dask.array as da

    numbers = da.random.default_rng(1).random((20_000, 20_000), chunks=(1000, 10_000))
    return ((numbers - 0.5) ** 2).mean(axis=0)


def array_transpose() -> Any:
    """Add an array to its transpose."""
    import dask.array as da

    numbers = da.random.default_rng(1).random((12_000, 12_000), chunks=(2000, 2000))
    return (numbers + numbers.T).sum()


def array_rechunk() -> Any:
    """Rechunk an array from rows to columns."""
    import dask.array as da

    numbers = da.random.default_rng(1).random((10_000, 10_000), chunks=(500, 10_000))
    return numbers.rechunk((10_000, 500)).std(axis=0)


def bag_words() -> Any:
    """Count the words of texts."""
    import dask.bag as db

    return db.read_text(str(FOLDER / "text" / "*.txt")).str.split().flatten().frequencies()


def _load(seed: int) -> Any:
    return np.random.default_rng(seed).random((3000, 1000))


def _correlate(block: Any) -> Any:
    return np.corrcoef(block, rowvar=False)


def delayed_tree() -> Any:
    """Correlate blocks and add the results, as delayed functions."""
    import dask

    parts = [dask.delayed(_correlate)(dask.delayed(_load)(seed)) for seed in range(40)]
    return dask.delayed(sum)(parts)


def join_small() -> Any:
    """Join a table with one of 50 rows."""
    import dask.dataframe as dd

    names = pd.DataFrame({"quantity": range(50), "name": [f"q{each}" for each in range(50)]})
    joined = _events()[["quantity", "value"]].merge(dd.from_pandas(names, npartitions=1))
    return joined.groupby("name").value.mean()


def cumulated() -> Any:
    """Cumulate a column."""
    return _events().value.cumsum().max()


def largest_rows() -> Any:
    """Find the rows with the largest values."""
    return _events()[["order", "user", "value"]].nlargest(1000, "value")


def group_median() -> Any:
    """Median of each group, for which rows are shuffled."""
    return _events()[["user", "value"]].groupby("user").value.median()


def text_lengths() -> Any:
    """Lengths of a column of texts, by their last characters."""
    events = _events()
    changed = events.assign(last=events.item.str.slice(-2), length=events.item.str.len())
    return changed.groupby("last").length.mean()


def count_values() -> Any:
    """Count the values of a column of two tables."""
    import dask.dataframe as dd

    return dd.concat([_events()[["order"]], _orders()[["order"]]]).order.value_counts().max()


def write_columns() -> Any:
    """Write a table with computed columns, and without one."""
    events = _events()
    changed = events.assign(amount=events.value * events.quantity, day=events.time.dt.dayofyear)
    return changed.drop(columns="item").to_parquet(FOLDER / "written", compute=False)


def helper_group() -> Any:
    """Group by a column with a helper of this package."""
    return hyperplane.dataframe.group_agg(_events(), "flag", {"value": ["sum", "std"]})


def array_product() -> Any:
    """Multiply an array with its transpose."""
    import dask.array as da

    numbers = da.random.default_rng(2).random((24_000, 3000), chunks=(2000, 3000))
    return numbers.T.dot(numbers).sum()


def array_standard() -> Any:
    """Standardize an array by its columns, and find the largest value."""
    import dask.array as da

    numbers = da.random.default_rng(2).random((16_000, 9000), chunks=(1000, 3000))
    return abs((numbers - numbers.mean(axis=0)) / numbers.std(axis=0)).max()


def _measure_lines(lines: Any) -> list[int]:
    return [len(line) for line in lines]


def bag_fold() -> Any:
    """Standard deviation of the lengths of lines."""
    import dask.bag as db

    lines = db.read_text(str(FOLDER / "text" / "*.txt"))
    return lines.map_partitions(_measure_lines).std()


def _load_frame(part: int) -> Any:
    return pd.read_parquet(FOLDER / "events" / f"part-{part:04}.parquet")


def _count_users(frame: Any) -> Any:
    return frame.groupby("user").quantity.agg(["sum", "max"])


def delayed_frames() -> Any:
    """Aggregate tables with delayed functions, and concatenate the results."""
    import dask

    parts = [dask.delayed(_count_users)(dask.delayed(_load_frame)(part)) for part in range(FILES)]
    return dask.delayed(pd.concat)(parts)


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        filter_count, group_few, group_many, merge, distinct, write, sort_write, function,
        array_sum, array_transpose, array_rechunk, bag_words, delayed_tree,
        join_small, cumulated, largest_rows, group_median, text_lengths, count_values,
        write_columns, helper_group, array_product, array_standard, bag_fold, delayed_frames,
    )
}  # fmt: skip


def make_plan(processes: int, threads: int) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(
        num_workers=1,
        nprocs=processes,
        nthreads=threads,
        ram_gb_per_proc=6,
        cores_per_worker=max(2, processes * threads),
        engine="local",
        local_fit="exact",
        preflight=False,
    )


def _read_usage() -> tuple[int, float]:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024, time.process_time()


def run(make: Callable[[], Any], plan: hyperplane.ClusterPlan) -> dict[str, Any]:
    """Run a job on a cluster; return what its worker processes took."""
    client, cluster = hyperplane.start(plan)
    try:
        before = client.run(_read_usage)
        began = time.perf_counter()
        client.compute(make()).result()
        wall = time.perf_counter() - began
        after = client.run(_read_usage)
    finally:
        client.close()
        cluster.close()
    return {
        "peak": max(peak for peak, _ in after.values()),
        "empty": max(peak for peak, _ in before.values()),
        "cpu": sum(after[name][1] - before[name][1] for name in after),
        "wall": wall,
    }


def compare(
    name: str, layout: tuple[int, int], make: Callable[[], Any] | None = None
) -> dict[str, Any]:
    """Forecast a job, by default that of the name, run it, and return both."""
    plan = make_plan(*layout)
    folders = [FOLDER / each for each in ("written", "sorted", ".written.hyperplane")]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    # One collection: an array that is rechunked while a cluster runs has another graph.
    job = (make or WORKLOADS[name])()
    found = hyperplane.forecast(job, plan, history=False)
    left = [path for folder in folders for path in folder.rglob("*")]
    assert not left, f"the sample wrote {left}"
    measured = run(lambda: job, plan)
    return {
        "name": name,
        "layout": "x".join(map(str, layout)),
        "peak": found.peak,
        "low": found.low,
        "high": found.high,
        "measured": measured["peak"],
        "empty": measured["empty"],
        "cpu": found.cpu_s,
        "measured_cpu": measured["cpu"],
        "cost": found.cost,
        "mostly": found.largest_term,
        "reasons": found.reasons,
        "refused": found.refused,
        "terms": found.terms,
    }


def _error(row: dict[str, Any]) -> float:
    return float(row["peak"] / row["measured"] - 1)


def _line(row: dict[str, Any]) -> str:
    fresh = "fresh" if row["name"] in FRESH else ""
    if row["refused"] and not row["peak"]:
        return f"| {row['name']} | {row['layout']} | refused: {row['reasons'][0]}"
    inside = "" if row["low"] <= row["measured"] <= row["high"] else " !"
    figures = [f"{row[key] / 1e6:.0f}" for key in ("peak", "low", "high", "measured")]
    return (
        f"| {row['name']} | {row['layout']} | {figures[0]} | {figures[1]}-{figures[2]}{inside} "
        f"| {figures[3]} | {_error(row):+.0%} | {row['cpu']:.1f} | {row['measured_cpu']:.1f} "
        f"| {row['cost'] / row['measured_cpu']:.0%} | {row['mostly']} | {fresh} |"
    )


def main() -> None:
    """Print a table of all workloads and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    parser.add_argument("--json", type=Path, help="file to which figures are added")
    arguments = parser.parse_args()
    make_data()
    titles = ("job", "layout", "forecast MB", "interval", "measured MB", "error", "CPU s")
    print("| " + " | ".join((*titles, "measured CPU s", "cost", "mostly", "")) + " |")
    print("|---" * 11 + "|")
    rows = []
    for name in arguments.workloads or WORKLOADS:
        for layout in LAYOUTS:
            rows.append(compare(name, layout))
            print(_line(rows[-1]), flush=True)
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    summarize(rows)


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print the errors of all runs, and how many peaks were inside their intervals."""
    known = [row for row in rows if row["peak"]]
    errors = [_error(row) for row in known]
    inside = sum(row["low"] <= row["measured"] <= row["high"] for row in known)
    widths = [(row["high"] - row["low"]) / row["peak"] for row in known]
    cpu = [abs(row["cpu"] / row["measured_cpu"] - 1) for row in known]
    cost = [row["cost"] / row["measured_cpu"] for row in known]
    print(
        f"median |error| {median(map(abs, errors)):.1%}, {min(errors):+.0%} to {max(errors):+.0%}; "
        f"{inside} of {len(known)} inside the interval, of a median width of {median(widths):.0%}; "
        f"median |error| of CPU s {median(cpu):.0%}; median cost {median(cost):.1%}"
    )


if __name__ == "__main__":
    main()
