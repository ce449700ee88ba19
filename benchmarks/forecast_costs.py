"""Cost of forecasts of jobs that take a minute of CPU time, and their error of CPU seconds.

    python -m benchmarks.forecast_costs [--json FILE] [JOB ...]

The data of ``benchmarks.forecast`` is read many times: each of its files has further names. Each
job is forecast for one node of two processes, and then run on a cluster of it. The jobs of
``benchmarks.forecast`` take a few seconds, beside which the start of the process of the sample is
much.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hyperplane
from benchmarks import forecast
from benchmarks.forecast import FOLDER

LAYOUT = (2, 1)
#: Names of each file.
COPIES = 80


def link_data() -> None:
    """Give each file of the event log and of the texts further names."""
    forecast.make_data()
    for name, pattern in (("events", "*.parquet"), ("text", "*.txt")):
        target = FOLDER / f"{name}-linked"
        if len(list(target.glob(pattern))) == forecast.FILES * COPIES:
            continue
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for copy in range(COPIES):
            for file in (FOLDER / name).glob(pattern):
                (target / f"{copy:03}-{file.name}").hardlink_to(file)


def _read(copies: int) -> Any:
    import dask.dataframe as dd

    files = sorted((FOLDER / "events-linked").glob("*.parquet"))[: copies * forecast.FILES]
    return dd.read_parquet([str(file) for file in files])


def group_texts() -> Any:
    """Mean length of texts by their last characters."""
    events = _read(80)
    changed = events.assign(last=events.item.str.slice(-2), length=events.item.str.len())
    return changed.groupby("last").length.mean()


def group_times() -> Any:
    """Group by the day of a time and a column of three values."""
    events = _read(50)
    changed = events.assign(day=events.time.dt.dayofyear, amount=events.value * events.quantity)
    return changed.groupby(["day", "flag"]).agg({"amount": ["sum", "std"], "user": "max"})


def distinct_users() -> Any:
    """Distinct rows of two columns."""
    return _read(65)[["user", "flag"]].drop_duplicates()


def _smooth(part: Any) -> Any:
    rolled = part.value.rolling(500).median()
    return pd.DataFrame({"largest": [rolled.max()]})


def rolling_medians() -> Any:
    """Apply a function of pandas to each partition."""
    return _read(30)[["value"]].map_partitions(_smooth, meta={"largest": float}).max()


def write_days() -> Any:
    """Write a table with computed columns."""
    events = _read(18)
    changed = events.assign(day=events.time.dt.dayofyear, code=events["item"].str.upper())
    return changed.to_parquet(FOLDER / "written", compute=False)


def helper_group() -> Any:
    """Group by a column of many values with a helper of this package."""
    files = sorted((FOLDER / "events-linked").glob("*.parquet"))
    events = hyperplane.dataframe.read([str(file) for file in files])
    return hyperplane.dataframe.group_agg(events, "user", {"value": ["sum", "std"], "item": "max"})


def array_waves() -> Any:
    """Mean of a function of an array, by columns."""
    import dask.array as da

    numbers = da.random.default_rng(3).random((400_000, 10_000), chunks=(5000, 2500))
    return (da.sin(numbers) * numbers).mean(axis=0)


def _load(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(4000, 1200))


def _decompose(block: Any) -> Any:
    return np.linalg.svd(block, compute_uv=False)


def delayed_svd() -> Any:
    """Decompose blocks and add the results, as delayed functions."""
    import dask

    parts = [dask.delayed(_decompose)(dask.delayed(_load)(seed)) for seed in range(120)]
    return dask.delayed(sum)(parts)


def bag_words() -> Any:
    """Count the words of texts."""
    import dask.bag as db

    files = sorted((FOLDER / "text-linked").glob("*.txt"))[: 40 * forecast.FILES]
    texts = db.read_text([str(file) for file in files])
    return texts.str.upper().str.split().flatten().frequencies()


JOBS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        group_texts, group_times, distinct_users, rolling_medians, write_days, helper_group,
        array_waves, delayed_svd, bag_words,
    )
}  # fmt: skip


def main() -> None:
    """Print a table of all jobs and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []], metavar="JOB")
    parser.add_argument("--json", type=Path, help="file to which figures are added")
    arguments = parser.parse_args()
    link_data()
    print("| job | CPU s | forecast CPU s | error | cost s | cost | peak MB | forecast MB |")
    print("|---" * 8 + "|")
    rows = []
    for name in arguments.jobs or JOBS:
        row = forecast.compare(name, LAYOUT, JOBS[name])
        rows.append(row)
        print(
            f"| {name} | {row['measured_cpu']:.0f} | {row['cpu']:.0f} "
            f"| {row['cpu'] / row['measured_cpu'] - 1:+.0%} | {row['cost']:.1f} "
            f"| {row['cost'] / row['measured_cpu']:.1%} | {row['measured'] / 1e6:.0f} "
            f"| {row['peak'] / 1e6:.0f} |",
            flush=True,
        )
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
    forecast.summarize(rows)


if __name__ == "__main__":
    main()
