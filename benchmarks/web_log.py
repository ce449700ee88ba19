"""A synthetic web log in Parquet files: 12 columns, text ids, skewed users, nulls, unordered times.

python -m benchmarks.web_log FOLDER [--rows 10200000] [--files 60]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

COLUMNS = (
    "request", "session", "user", "at", "path", "status", "bytes", "seconds", "country", "agent",
    "price", "cached",
)  # fmt: skip
_USERS, _PATHS, _AGENTS = 2_000_000, 5_000, 40
_COUNTRIES = ("DE", "FR", "US", "IN", "BR", "JP", "GB", "NG")


def write_web_log(folder: Path, rows: int = 10_200_000, files: int = 60, seed: int = 0) -> None:
    """Write the files 00.parquet, 01.parquet and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = np.linspace(0, rows, files + 1).astype(int)
    for number in range(files):
        table = _make_rows(int(edges[number + 1] - edges[number]), seed * 10_000 + number)
        parquet.write_table(table, folder / f"{number:02}.parquet")


def _make_rows(count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    paths = pa.array([f"/shop/{n % 97}/item-{n}?ref={n * 7919 % 1000}" for n in range(_PATHS)])
    agents = pa.array([f"Mozilla/5.0 (X11; Linux x86_64) Agent/{n}.0" for n in range(_AGENTS)])
    users = pc.cast(pa.array(rng.zipf(1.3, count) % _USERS), pa.string())
    month = 30 * 86_400 * 10**6
    times = np.datetime64("2026-01-01", "us") + rng.integers(0, month, count)
    columns = (
        _make_hex(rng, count, 16),
        _make_hex(rng, count, 8),
        pc.binary_join_element_wise("u", pc.utf8_lpad(users, 8, "0"), ""),
        pa.array(times, pa.timestamp("us"), mask=rng.random(count) < 0.001),
        paths.take(pa.array(rng.zipf(1.5, count) % _PATHS)),
        pa.array(rng.choice([200, 204, 301, 404, 500], count, p=[0.8, 0.05, 0.05, 0.08, 0.02])),
        pa.array(rng.lognormal(8, 2, count).astype("int64")),
        pa.array(rng.exponential(0.2, count), mask=rng.random(count) < 0.05),
        pa.array(_COUNTRIES).take(pa.array(rng.integers(0, len(_COUNTRIES), count))),
        pc.if_else(
            pa.array(rng.random(count) < 0.1),
            None,
            agents.take(pa.array(rng.integers(0, _AGENTS, count))),
        ),
        pa.array(rng.integers(0, 10**5, count) / 100, mask=rng.random(count) < 0.3),
        pa.array(rng.random(count) < 0.5),
    )
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def _make_hex(rng: np.random.Generator, count: int, size: int) -> pa.Array:
    """Return random texts of ``2 * size`` hexadecimal digits."""
    digits = np.frombuffer(rng.bytes(count * size).hex().encode(), f"S{2 * size}")
    return pc.cast(pa.array(digits), pa.string())


def main() -> None:
    """Write the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_200_000)
    parser.add_argument("--files", type=int, default=60)
    arguments = parser.parse_args()
    write_web_log(arguments.folder, arguments.rows, arguments.files)


if __name__ == "__main__":
    main()
