"""Synthetic web log with hexadecimal ids and skewed users, written once and reused by later runs.

    python -m benchmarks.web_log /tmp/web --rows 10000000

Twelve columns in sixty Parquet files, in no order of time. The numbers of requests of users follow
Zipf's law with exponent 1.3: a quarter of the requests are of one user. A twentieth of the
countries, sizes and times are missing, and a few users are not in the table of two million users.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

FILES = 60
USERS, PATHS, SESSIONS = 2_000_000, 5_000, 3_000_000
DAYS = 30
MICROSECONDS = 86_400_000_000
COUNTRIES = [f"country {number}" for number in range(60)]
PLANS = ["free", "basic", "team", "company"]
METHODS = ["GET", "POST", "PUT", "DELETE"]
AGENTS = [f"Mozilla/5.0 (device {number}) AppleWebKit/537.36" for number in range(40)]


def hexadecimal(numbers: np.ndarray, salt: int = 1) -> pl.Series:
    """Return sixteen hexadecimal digits for each number, different for different numbers."""
    with np.errstate(over="ignore"):
        mixed = (numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        mixed = mixed * np.uint64(0xD6E8FEB86659FD93)
    raw = mixed.byteswap().tobytes()
    digits = np.frombuffer(raw.hex().encode(), dtype="S16")
    return pl.Series(digits.astype("U16"), dtype=pl.String)


def requests(rows: int, seed: int) -> pl.DataFrame:
    """Return the requests of one file."""
    random = np.random.default_rng(seed)
    users = random.zipf(1.3, rows) % (USERS + USERS // 100)
    sessions = (users * 7 + random.integers(0, 5, rows)) % SESSIONS
    at = np.datetime64("2026-01-01", "us").astype(np.int64) + random.integers(
        0, DAYS * MICROSECONDS, rows
    )

    def choose(values: list[str]) -> pl.Series:
        weights = 1 / np.arange(1, len(values) + 1)
        numbers = random.choice(len(values), rows, p=weights / weights.sum())
        return pl.Series(values).gather(numbers)

    def with_missing(values: pl.Series) -> pl.Series:
        return values.set(pl.Series(random.random(rows) < 0.05), None)

    return pl.DataFrame(
        {
            "request": hexadecimal(np.arange(rows) + seed * rows, salt=3),
            "user": hexadecimal(users),
            "session": hexadecimal(sessions, salt=2),
            "time": with_missing(pl.Series(at)).cast(pl.Datetime("us")),
            "path": choose([f"/shop/item/{number}" for number in range(PATHS)]),
            "method": choose(METHODS),
            "status": pl.Series(random.choice([200, 301, 404, 500], rows), dtype=pl.Int16),
            "bytes": with_missing(pl.Series(random.integers(100, 10**6, rows))),
            "seconds": pl.Series(random.lognormal(-2, 1, rows)),
            "country": with_missing(choose(COUNTRIES)),
            "referrer": choose([f"https://example.org/{number}" for number in range(200)]),
            "agent": choose(AGENTS),
        }
    )


def write_users(folder: Path, files: int = 4) -> None:
    """Write the table of users: id, plan, country of residence and score, in several files."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    order = random.permutation(USERS)
    users = pl.DataFrame(
        {
            "user": hexadecimal(order),
            "plan": pl.Series(PLANS).gather(random.integers(0, len(PLANS), USERS)),
            "residence": pl.Series(COUNTRIES).gather(random.integers(0, len(COUNTRIES), USERS)),
            "score": random.random(USERS),
        }
    )
    for part in range(files):
        users.gather_every(files, part).write_parquet(folder / f"{part}.parquet")


def write_web_log(folder: Path, rows: int = 10_000_000) -> Path:
    """Write ``parquet/`` and ``users/`` below the folder unless they exist; return the folder."""
    done = folder / f"web-{rows}.done"
    if done.exists():
        return folder
    (folder / "parquet").mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        frame = requests(rows // FILES, seed=number)
        frame.write_parquet(folder / "parquet" / f"{number:02}.parquet")
    write_users(folder / "users")
    done.touch()
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    print(write_web_log(arguments.folder, arguments.rows))
