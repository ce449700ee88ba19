"""Check forecasts by jobs that were written for a check of the model of 2026-11-29, 21:07.

    python -m benchmarks.forecast_checks [--json FILE] [WORKLOAD ...]

They have other data and other operations than those of benchmarks.forecast: readings of sensors of
which a few have most rows, the sensors, images as arrays, and requests as lines of JSON.
One change of the model followed, at 21:27, because of ``blur_images``: the borders of blocks of an
array are a class by themselves. ``grid_gradient`` and ``smooth_grid`` were written after it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import forecast

#: Processes and threads.
LAYOUTS = ((1, 2), (2, 1))
FOLDER = Path(tempfile.gettempdir(), "hyperplane-benchmark-checks")
FILES, ROWS, SENSORS = 20, 300_000, 40_000
STATES = ["on", "off", "idle", "broken"]


def make_data() -> None:
    """Write readings, sensors, prices and requests."""
    if (FOLDER / "complete").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in ("readings", "sensors", "prices", "requests"):
        (FOLDER / name).mkdir(parents=True)
    random = np.random.default_rng(7)
    sensors = pd.DataFrame(
        {
            "sensor": np.arange(SENSORS),
            "site": random.choice([f"site {each}" for each in range(300)], SENSORS),
            "limit": random.random(SENSORS),
        }
    )
    for part, rows in enumerate(np.array_split(np.arange(SENSORS), 4)):
        sensors.iloc[rows].to_parquet(FOLDER / "sensors" / f"{part:03}.parquet")
    for part in range(FILES):
        seconds = np.arange(part * ROWS, (part + 1) * ROWS)
        time = pd.Timestamp("2025-03-01") + pd.to_timedelta(seconds, unit="s")
        readings = pd.DataFrame(
            {
                "sensor": np.minimum(random.pareto(0.6, ROWS), SENSORS - 1).astype("int64"),
                "temperature": random.normal(20, 5, ROWS).astype("float32"),
                "pressure": random.normal(1000, 10, ROWS),
                "state": pd.Categorical(random.choice(STATES, ROWS)),
                "batch": np.char.add("batch ", random.integers(0, 50_000, ROWS).astype(str)),
            },
            index=pd.Index(time, name="time"),
        )
        readings.to_parquet(FOLDER / "readings" / f"{part:03}.parquet")
        prices = pd.DataFrame({"price": random.random(ROWS // 60)}, index=readings.index[::60])
        prices.to_parquet(FOLDER / "prices" / f"{part:03}.parquet")
        codes = random.choice([200, 301, 404, 500], 15_000, p=[0.9, 0.04, 0.05, 0.01])
        lines = [
            json.dumps({"path": f"/item/{item}", "code": int(code), "bytes": int(item) * 7})
            for code, item in zip(codes, random.integers(0, 20_000, 15_000), strict=True)
        ]
        (FOLDER / "requests" / f"{part:03}.json").write_text("\n".join(lines))
    (FOLDER / "complete").touch()


def _read(name: str) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(FOLDER / name, calculate_divisions=name in ("readings", "prices"))


def count_distinct() -> Any:
    """Number of different batches of each sensor, in several partitions."""
    return _read("readings").groupby("sensor").batch.nunique(split_out=10).max()


def distinct_rows() -> Any:
    """Distinct rows of two columns, in several partitions."""
    readings = _read("readings")[["sensor", "batch"]]
    return readings.drop_duplicates(split_out=8).sensor.sum()


def nearest_price() -> Any:
    """Join each reading with the last price before it."""
    import dask.dataframe as dd

    readings = _read("readings")[["sensor", "pressure"]]
    joined = dd.merge_asof(readings, _read("prices"), left_index=True, right_index=True)
    return (joined.pressure * joined.price).sum()


def rolling_mean() -> Any:
    """Rolling mean over the borders of partitions."""
    return _read("readings")[["temperature", "pressure"]].rolling(600).mean().max()


def count_batches() -> Any:
    """Count the values of a text column, in several partitions."""
    return _read("readings").batch.value_counts(split_out=6).nlargest(20)


def pivot_states() -> Any:
    """Mean pressure of each sensor and state."""
    readings = _read("readings")
    readings = readings.assign(state=readings.state.cat.set_categories(STATES))
    return readings.pivot_table(index="sensor", columns="state", values="pressure", aggfunc="mean")


def join_sites() -> Any:
    """Join with a table on a key of which a few values have most rows."""
    joined = _read("readings")[["sensor", "pressure", "batch"]].merge(
        _read("sensors"), on="sensor", broadcast=False
    )
    return joined.groupby("site").pressure.max()


def _rank(frame: Any) -> Any:
    return frame.pressure.rank().max()


def apply_ranks() -> Any:
    """Apply a function to each group of rows, for which rows are shuffled."""
    readings = _read("readings")[["state", "sensor", "pressure"]]
    readings = readings.assign(group=readings.sensor % 64)
    return readings.groupby("group")[["pressure"]].apply(_rank, meta=("pressure", float)).sum()


def sort_texts() -> Any:
    """Sort by a text column, and count changes."""
    ordered = _read("readings")[["batch", "temperature"]].sort_values("batch", npartitions=20)
    return ordered.temperature.diff().abs().sum()


def reindex_sorted() -> Any:
    """Shuffle rows by a column by which they are sorted already."""
    readings = _read("readings").reset_index()[["time", "sensor", "pressure"]]
    return readings.set_index("time", npartitions=20).pressure.cumsum().max()


def _images(seed: int) -> Any:
    import dask.array as da

    return da.random.default_rng(seed).random((12, 3000, 2500), chunks=(1, 3000, 2500))


def _blur(block: Any) -> Any:
    return (block + np.roll(block, 1, axis=1) + np.roll(block, -1, axis=1)) / 3


def blur_images() -> Any:
    """Blur images with rows of the neighbouring blocks."""
    images = _images(3).rechunk({1: 1500})
    return images.map_overlap(_blur, depth={1: 8}, boundary="reflect", dtype=float).std()


def image_histogram() -> Any:
    """Cumulate images, and count their values."""
    import dask.array as da

    return da.histogram(_images(4).cumsum(axis=0), bins=200, range=(0, 12))[0]


def requests_by_code() -> Any:
    """Sum of bytes of each code, of lines of JSON."""
    import dask.bag as db

    lines = db.read_text(str(FOLDER / "requests" / "*.json")).map(json.loads)
    return lines.foldby(
        lambda each: each["code"],
        lambda total, each: total + each["bytes"],
        0,
        lambda a, b: a + b,
        0,
    )


def grid_gradient() -> Any:
    """Gradient of a grid, for which blocks need the borders of those beside and below them."""
    import dask.array as da

    grid = da.random.default_rng(8).random((12_000, 8000), chunks=(3000, 2000))
    rows, columns = da.gradient(grid)
    return (rows**2 + columns**2).max()


def smooth_grid() -> Any:
    """Smooth a grid three times."""
    import dask.array as da

    grid = da.random.default_rng(9).random((9000, 9000), chunks=(1500, 9000))
    for _ in range(3):
        grid = grid.map_overlap(_blur, depth={0: 2}, boundary="none", dtype=float)
    return grid.mean()


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        count_distinct, distinct_rows, nearest_price, rolling_mean, count_batches, pivot_states,
        join_sites, apply_ranks, sort_texts, reindex_sorted, blur_images, image_histogram,
        requests_by_code, grid_gradient, smooth_grid,
    )
}  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    measured = f"{row['measured'] / 1e6:.0f}"
    if not row["peak"]:
        return f"| `{row['name']}` | {row['layout']} | refused | | {measured} | | |"
    outside = "" if row["low"] <= row["measured"] <= row["high"] else " (outside)"
    low, high, peak = (f"{row[key] / 1e6:.0f}" for key in ("low", "high", "peak"))
    return (
        f"| `{row['name']}` | {row['layout']} | {peak} | {low} to {high}{outside} | {measured} "
        f"| {row['peak'] / row['measured'] - 1:+.0%} | {'refused' if row['refused'] else ''} |"
    )


def main(
    workloads: dict[str, Callable[[], Any]],
    description: str,
    layouts: Sequence[tuple[int, int]],
    make_data: Callable[[], None],
) -> None:
    """Print a table of all jobs and a summary."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("workloads", nargs="*", choices=[*workloads, []], metavar="WORKLOAD")
    parser.add_argument("--json", type=Path, help="file to which figures are added")
    arguments = parser.parse_args()
    make_data()
    print("| job | layout | forecast | interval | measured | error | |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name in arguments.workloads or workloads:
        for layout in layouts:
            rows.append(forecast.compare(name, layout, workloads[name]))
            print(_line(rows[-1]), flush=True)
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    forecast.summarize(rows)


if __name__ == "__main__":
    main(WORKLOADS, str(__doc__), LAYOUTS, make_data)
