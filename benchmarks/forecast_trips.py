"""Forecasts of jobs on trips of taxis, on tables that no other benchmark uses.

    python -m benchmarks.forecast_trips [--json FILE] [WORKLOAD ...]

Written on 2026-12-01 as a check of the model of that time. Later figures were chosen with its runs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hyperplane
from benchmarks import forecast, forecast_checks

FOLDER = Path(tempfile.gettempdir(), "hyperplane-benchmark-forecast-trips")
FILES, ROWS, ZONES, DRIVERS = 40, 250_000, 260, 60_000


def make_data() -> None:
    """Write trips in no order of time, drivers, and events as lines of JSON."""
    forecast.make_data()  # has the folder of written files
    if (FOLDER / "complete").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in ("trips", "drivers", "events"):
        (FOLDER / name).mkdir(parents=True)
    random = np.random.default_rng(20261201)
    zones = np.array([f"zone {number:03}" for number in range(ZONES)])
    drivers = np.array([f"{number * 2654435761 % 2**32:08x}" for number in range(DRIVERS)])
    for part in range(FILES):
        tips = pd.Series(random.gamma(1.0, 2.0, ROWS)).astype("Float64")
        tips[random.random(ROWS) < 0.3] = pd.NA
        trips = pd.DataFrame(
            {
                "pickup": pd.Timestamp("2025-01-01")
                + pd.to_timedelta(random.integers(0, 365 * 86_400, ROWS), unit="s"),
                "zone": zones[np.minimum(random.zipf(1.4, ROWS) - 1, ZONES - 1)],
                "driver": drivers[random.integers(0, DRIVERS, ROWS)],
                "distance": random.exponential(3.0, ROWS).astype("float32"),
                "fare": random.gamma(3.0, 5.0, ROWS),
                "tip": tips,
                "passengers": random.integers(1, 7, ROWS).astype("int8"),
                "card": random.random(ROWS) < 0.7,
            }
        )
        trips.to_parquet(FOLDER / "trips" / f"{part:03}.parquet")
        lines = [
            json.dumps({"zone": int(zone), "kind": "ride" if zone % 3 else "wait", "at": at})
            for at, zone in enumerate(random.integers(0, ZONES, 12_000))
        ]
        (FOLDER / "events" / f"{part:03}.json").write_text("\n".join(lines))
    for part in range(8):
        some = drivers[part::8]
        table = pd.DataFrame({"driver": some, "rating": random.random(len(some)), "since": 2000})
        table.to_parquet(FOLDER / "drivers" / f"{part}.parquet")
    (FOLDER / "complete").touch()


def _read(name: str) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(FOLDER / name)


def fares_of_zones() -> Any:
    """Smallest and largest fare of each zone, and their variance."""
    return _read("trips").groupby("zone").fare.agg(["min", "max", "var"])


def tips_filled() -> Any:
    """Mean tip for each number of passengers, without missing and extreme ones."""
    trips = _read("trips")
    return trips.assign(tip=trips.tip.fillna(0.0).clip(0, 20)).groupby("passengers").tip.mean()


def hours_of_zones() -> Any:
    """Count trips for each zone and hour of the year, in several partitions."""
    trips = _read("trips")[["pickup", "zone"]]
    return trips.assign(hour=trips.pickup.dt.floor("h")).groupby(["zone", "hour"]).size(split_out=4)


def rated_trips() -> Any:
    """Join with the drivers on a text, and average."""
    trips = _read("trips")[["driver", "fare", "passengers"]]
    joined = trips.merge(_read("drivers"), on="driver", how="left", broadcast=False)
    return joined.groupby("passengers")[["rating", "fare"]].mean()


def first_trips() -> Any:
    """The first row of each driver."""
    return _read("trips").groupby("driver")[["fare", "zone"]].first(split_out=3)


def in_order_of_time() -> Any:
    """Put all rows in the order of time, and compare with the row before."""
    ordered = _read("trips")[["pickup", "fare", "passengers"]].set_index("pickup", npartitions=20)
    return ordered.fare.diff().abs().max()


def write_by_passengers() -> Any:
    """Write files for each number of passengers."""
    trips = _read("trips").drop(columns=["driver"])
    return trips.to_parquet(forecast.FOLDER / "written", partition_on=["passengers"], compute=False)


def helper_pairs() -> Any:
    """Distinct pairs of driver and zone, with a helper of this package."""
    return hyperplane.dataframe.drop_duplicates(_read("trips"), ["driver", "zone"])


def coarse_images() -> Any:
    """Average images over squares of four times four values."""
    import dask.array as da

    images = da.random.default_rng(31).random((24, 4000, 3000), chunks=(2, 4000, 3000))
    return da.coarsen(np.mean, images, {1: 4, 2: 4}).max(axis=0)


def covariance() -> Any:
    """Covariance of the columns of a tall matrix in two chunks of columns."""
    import dask.array as da

    matrix = da.random.default_rng(32).random((300_000, 120), chunks=(25_000, 60))
    return da.cov(matrix, rowvar=False)


def distinct_zones() -> Any:
    """Distinct zones of some lines of JSON."""
    import dask.bag as db

    events = db.read_text(str(FOLDER / "events" / "*.json")).map(json.loads)
    return events.filter(lambda each: each["kind"] == "ride").pluck("zone").distinct()


def _spectra(seed: int) -> Any:
    signal = np.random.default_rng(seed).normal(size=(300, 20_000))
    return {"power": np.abs(np.fft.rfft(signal, axis=1)) ** 2, "mean": signal.mean()}


def _merge(parts: Any) -> Any:
    return sum(part["power"].mean(axis=0) for part in parts), [part["mean"] for part in parts]


def mean_spectra() -> Any:
    """Average the spectra of signals with delayed functions, in two levels."""
    import dask

    parts = [dask.delayed(_spectra)(seed) for seed in range(48)]
    groups = [dask.delayed(_merge)(parts[first : first + 6]) for first in range(0, 48, 6)]
    return dask.delayed(list)(groups)


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        fares_of_zones, tips_filled, hours_of_zones, rated_trips, first_trips, in_order_of_time,
        write_by_passengers, helper_pairs, coarse_images, covariance, distinct_zones, mean_spectra,
    )
}  # fmt: skip


if __name__ == "__main__":
    forecast_checks.main(WORKLOADS, str(__doc__), forecast.LAYOUTS, make_data)
