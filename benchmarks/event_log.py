"""Synthetic event log with realistic skew, written once and reused by later runs.

    python -m benchmarks.event_log /tmp/log --rows 20000000

Users (five million) and event types follow Zipf's law. Events cover thirty days; a tenth of them
arrive up to an hour late. The files are in order of arrival.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

FILES, ROW_GROUPS = 16, 2
TYPES = ["view", "click", "search", "cart", "login", "buy", "share", "refund"]
DAYS = 30
USERS = 5_000_000
MICROSECONDS = 86_400_000_000


def events(rows: int, start: float, end: float, seed: int) -> pl.DataFrame:
    """Return events between two fractions of the thirty days."""
    random = np.random.default_rng(seed)
    span = DAYS * MICROSECONDS
    at = np.sort(random.uniform(start * span, end * span, rows))
    late = random.random(rows) < 0.1
    at[late] -= random.uniform(0, MICROSECONDS / 24, late.sum())
    weights = 1 / np.arange(1, len(TYPES) + 1)
    kinds = random.choice(len(TYPES), rows, p=weights / weights.sum())
    return pl.DataFrame(
        {
            "user": (USERS ** random.random(rows)).astype(np.int64) * 2_654_435_761 % 10**9,
            "time": (np.datetime64("2026-01-01", "us").astype(np.int64) + at.astype(np.int64)),
            "type": pl.Series(kinds.astype(np.uint32)).replace_strict(
                dict(enumerate(TYPES)), return_dtype=pl.String
            ),
            "value": random.lognormal(2, 1, rows).round(3),
            "items": random.integers(1, 20, rows),
        }
    ).with_columns(pl.col("time").cast(pl.Datetime("us")))


def write_users(folder: Path, number: int = 200_000, files: int = 8) -> None:
    """Write a table of some users and their countries, in several files."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    ranks = np.unique((USERS ** random.random(number * 8)).astype(np.int64))
    ranks = np.sort(random.permutation(ranks)[:number])
    users = pl.DataFrame(
        {
            "user": ranks * 2_654_435_761 % 10**9,
            "country": [f"country {i % 50}" for i in range(len(ranks))],
        }
    ).unique("user", maintain_order=True)
    for part in range(files):
        users.gather_every(files, part).write_parquet(folder / f"{part}.parquet")


def write_event_log(folder: Path, rows: int = 20_000_000) -> Path:
    """Write ``parquet/`` and ``csv/`` below the folder unless they exist; return the folder."""
    done = folder / f"{rows}.done"
    if done.exists():
        return folder
    (folder / "parquet").mkdir(parents=True, exist_ok=True)
    (folder / "csv").mkdir(exist_ok=True)
    each = rows // FILES
    for number in range(FILES):
        frame = events(each, number / FILES, (number + 1) / FILES, seed=number)
        frame.write_parquet(
            folder / "parquet" / f"{number:02}.parquet", row_group_size=-(-each // ROW_GROUPS)
        )
        frame.write_csv(folder / "csv" / f"{number:02}.csv")
    write_users(folder / "users")
    done.touch()
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=20_000_000)
    arguments = parser.parse_args()
    print(write_event_log(arguments.folder, arguments.rows))
