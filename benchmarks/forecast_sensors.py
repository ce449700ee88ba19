"""Check forecasts by jobs on the sensors of a factory, written on 2026-12-01.

    python -m benchmarks.forecast_sensors [--json FILE] [WORKLOAD ...]

No other benchmark uses these tables. The jobs were written before the last figures of the model
were chosen, by an author who had seen no forecast of them: they were only computed, for their
results and their time. Two changes of the model followed their first run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hyperplane
from benchmarks import forecast, forecast_checks

FOLDER = Path(tempfile.gettempdir(), "hyperplane-benchmark-forecast-sensors")
FILES, DEVICES, DAYS = 42, 6000, 42
LINES = ["assembly", "molding", "packing", "paint", "press", "welding"]
#: Names of the written parts of the folder.
TABLES = ("readings", "devices", "calibrations", "limits", "alarms", "repairs")


def _make_readings(random: np.random.Generator, devices: Any, part: int) -> pd.DataFrame:
    """Return the readings of a day; those of the last days of each week are fewer."""
    rows = 200_000 if part % 7 > 4 else 300_000
    seconds = np.sort(random.uniform(0, 86_400, rows))
    chosen = random.integers(0, DEVICES, rows)
    temperature = (40 + chosen % 17 + random.normal(0, 4, rows)).astype("float32")
    load = pd.Series(random.integers(0, 101, rows)).astype("Int32")
    load = load.mask(random.random(rows) < 0.2)
    current = random.gamma(2.0, 3.0, rows).astype("float32")
    current[random.random(rows) < 0.05] = np.nan
    return pd.DataFrame(
        {
            "time": pd.Timestamp("2026-01-05")
            + pd.to_timedelta(part, unit="D")
            + pd.to_timedelta((seconds * 1000).astype("int64"), unit="ms"),
            "device": devices[chosen],
            "line": pd.Categorical.from_codes(chosen % len(LINES), pd.Index(LINES)),
            "temperature": temperature,
            "vibration": random.lognormal(0.0, 0.5, rows) + temperature / 50,
            "current": current,
            "cycles": random.integers(0, 30_000, rows).astype("int16"),
            "load": load,
        }
    )


def _make_alarms(random: np.random.Generator, devices: Any, part: int) -> pd.DataFrame:
    rows = 25_000 if part % 5 else 50_000
    codes = random.integers(100, 160, rows)
    return pd.DataFrame(
        {
            "time": pd.Timestamp("2026-01-05")
            + pd.to_timedelta(np.sort(random.integers(0, 86_400, rows)) + part * 86_400, unit="s"),
            "device": devices[np.minimum(random.zipf(1.3, rows) - 1, DEVICES - 1)],
            "severity": random.choice(["note", "warning", "fault"], rows, p=[0.7, 0.25, 0.05]),
            "value": random.normal(100, 20, rows).round(3),
            "message": [f"E{code}: value outside of its limits" for code in codes],
        }
    )


def _list_repairs(random: np.random.Generator, devices: Any, part: int) -> Iterator[str]:
    for number in range(10_000):
        first, count, minutes = (int(random.integers(0, limit)) for limit in (DEVICES, 4, 600))
        yield json.dumps(
            {
                "id": part * 10_000 + number,
                "device": str(devices[first]),
                "parts": [f"part {each:04}" for each in random.integers(0, 3000, count)],
                "minutes": minutes if minutes > 60 else None,
                "note": "replaced " * (count + 1),
            }
        )


def make_data() -> None:
    """Write readings, devices, their calibrations and limits, alarms and repairs."""
    forecast.make_data()  # has the folder of written files
    if (FOLDER / "complete").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in TABLES:
        (FOLDER / name).mkdir(parents=True)
    random = np.random.default_rng(1201)
    devices = np.array([f"{LINES[each % 6]}-{each * 7919 % 100_003:06}" for each in range(DEVICES)])
    models = random.choice([f"model {each}" for each in range(80)], DEVICES)
    halls = random.integers(1, 9, DEVICES).astype("int16")
    table = pd.DataFrame({"device": devices, "model": models, "hall": halls})
    table.to_parquet(FOLDER / "devices" / "all.parquet")
    for part in range(FILES):
        name = f"{part:03}"
        readings = _make_readings(random, devices, part)
        readings.to_parquet(FOLDER / "readings" / f"{name}.parquet")
        alarms = _make_alarms(random, devices, part)
        alarms.to_csv(FOLDER / "alarms" / f"{name}.csv", index=False)
        lines = "\n".join(_list_repairs(random, devices, part))
        (FOLDER / "repairs" / f"{name}.json").write_text(lines)
        limits = pd.DataFrame(
            {
                "device": devices,
                "day": np.int32(part + 5),
                "limit": random.normal(55, 5, DEVICES).astype("float32"),
                "operator": random.choice(["early", "late", "night"], DEVICES),
            }
        )
        limits.to_parquet(FOLDER / "limits" / f"{name}.parquet")
    for part in range(6):
        calibrations = pd.DataFrame(
            {
                "time": pd.Timestamp("2026-01-04")
                + pd.to_timedelta(random.integers(0, DAYS * 86_400, 30_000), unit="s"),
                "device": devices[random.integers(0, DEVICES, 30_000)],
                "offset": random.normal(0, 0.5, 30_000),
            }
        )
        calibrations.to_parquet(FOLDER / "calibrations" / f"{part}.parquet")
    (FOLDER / "complete").touch()


def _read(name: str) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(FOLDER / name)


def _aggregate(groups: Any) -> Any:
    return groups.max(), groups.min()


def _merge_ranges(largest: Any, smallest: Any) -> Any:
    return largest.max(), smallest.min()


def _subtract(largest: Any, smallest: Any) -> Any:
    return largest - smallest


def ranges_of_lines() -> Any:
    """Difference of the largest and the smallest value, as an aggregation of the user."""
    import dask.dataframe as dd

    difference = dd.Aggregation("difference", _aggregate, _merge_ranges, _subtract)
    readings = _read("readings")[["line", "cycles", "temperature", "current"]]
    groups = readings.assign(cycles=readings.cycles // 1000).groupby(["line", "cycles"])
    return groups[["temperature", "current"]].agg(difference)


def _extract_features(part: pd.DataFrame) -> pd.DataFrame:
    groups = part.groupby("device", sort=False)
    features = part.assign(
        change=groups.temperature.diff(),
        idle=groups.time.diff().dt.total_seconds(),
        rough=part.vibration - part.vibration.rolling(100, min_periods=1).mean(),
    )
    table = features.groupby("device")[["change", "idle", "rough"]].std()
    return table.reset_index()


def features_of_devices() -> Any:
    """Features of each device and day of four weeks by a function, and their quantiles."""
    columns = ["time", "device", "temperature", "vibration"]
    types = {"device": str, "change": float, "idle": float, "rough": float}
    readings = _read("readings").partitions[:28][columns]
    features = readings.map_partitions(_extract_features, meta=types)
    return features[["change", "idle", "rough"]].fillna(0).quantile([0.05, 0.5, 0.95])


def alarms_of_models() -> Any:
    """Count alarms of CSV files by the models of their devices."""
    import dask.dataframe as dd

    alarms = dd.read_csv(
        str(FOLDER / "alarms" / "*.csv"), parse_dates=["time"], blocksize="8MB",
        dtype={"device": "string", "severity": "string", "message": "string", "value": float},
    )  # fmt: skip
    alarms = alarms.assign(code=alarms.message.str.slice(1, 4), hour=alarms.time.dt.hour)
    joined = alarms.merge(_read("devices"), on="device", how="left")
    return joined.groupby(["model", "code"]).agg({"value": ["count", "max"], "hour": "mean"})


def readings_over_limits() -> Any:
    """Join readings of four weeks with the limits of devices and days, and count those above."""
    readings = _read("readings").partitions[:28][["time", "device", "temperature", "current"]]
    readings = readings[readings.time.dt.hour.between(6, 13)]
    readings = readings.assign(day=readings.time.dt.dayofyear).drop(columns="time")
    joined = readings.merge(_read("limits"), on=["device", "day"], broadcast=False)
    over = joined[joined.temperature > joined["limit"]]
    return over.groupby("operator").current.agg(["count", "mean"])


def _remove_spikes(block: Any) -> Any:
    stacked = np.stack([block[:-2], block[1:-1], block[2:]])
    return np.concatenate([block[:1], np.median(stacked, axis=0), block[-1:]])


def frames_without_spikes() -> Any:
    """Median of three frames of a thermal camera, with frames of neighboring blocks."""
    import dask.array as da

    frames = da.random.default_rng(41).integers(
        0, 16_384, (200, 512, 640), dtype="uint16", chunks=(25, 512, 640)
    )
    kelvin = frames.astype("float32") / 100
    smooth = kelvin.map_overlap(_remove_spikes, depth={0: 1}, boundary="nearest", dtype="float32")
    return (kelvin - smooth).std(axis=0).max(axis=1)


def minutes_of_parts() -> Any:
    """Turn lines of JSON into a table of replaced parts, and add up the minutes of each."""
    import dask.bag as db

    repairs = db.read_text(str(FOLDER / "repairs" / "*.json"), files_per_partition=2)
    parts = repairs.map(json.loads).map(_list_parts).flatten()
    table = parts.to_dataframe(meta={"part": str, "device": str, "minutes": float})
    return table.groupby("part").agg({"minutes": ["sum", "mean"], "device": "count"})


def _list_parts(repair: dict[str, Any]) -> list[tuple[str, str, float]]:
    minutes = repair["minutes"]
    time = float("nan") if minutes is None else minutes / len(repair["parts"] or "-")
    return [(part, repair["device"], time) for part in repair["parts"]]


def _load_numbers(part: int) -> Any:
    columns = ["temperature", "vibration", "current", "cycles"]
    table = pd.read_parquet(FOLDER / "readings" / f"{part:03}.parquet", columns=columns)
    return table.fillna({"current": 0}).to_numpy("float64")


def _describe(numbers: Any) -> Any:
    return numbers.mean(axis=0), np.cov(numbers, rowvar=False)


def _combine(parts: Any) -> Any:
    means, covariances = zip(*parts, strict=True)
    return np.mean(means, axis=0), np.linalg.inv(np.mean(covariances, axis=0))


def _count_unusual(numbers: Any, model: Any) -> int:
    mean, precision = model
    deviation = numbers - mean
    distance = np.einsum("ij,jk,ik->i", deviation, precision, deviation)
    return int((distance > 13.3).sum())


def unusual_readings() -> Any:
    """Fit a model to all files with delayed functions, and apply it to the loaded files."""
    from dask.delayed import delayed

    tables = [delayed(_load_numbers)(part) for part in range(FILES)]
    model = delayed(_combine)([delayed(_describe)(table) for table in tables])
    return delayed(list)([delayed(_count_unusual)(table, model) for table in tables])


def correlated_fields() -> Any:
    """Correlation of two fields over time, and its mean in squares of cells."""
    import dask.array as da
    import xarray as xr

    shape, chunks, dims = (360, 300, 400), (40, 300, 400), ("time", "y", "x")
    heat = da.random.default_rng(42).normal(20, 3, shape, chunks=chunks)
    noise = da.random.default_rng(43).normal(0, 2, shape, chunks=chunks)
    fields = xr.Dataset({"heat": (dims, heat), "air": (dims, heat * 0.3 + noise)})
    correlation = xr.corr(fields.heat, fields.air, dim="time")
    return correlation.coarsen(y=10, x=10).mean()


def last_calibrations() -> Any:
    """Join readings with the last calibration of their device, with a helper of this package."""
    readings = _read("readings")[["time", "device", "temperature"]]
    readings = readings[readings.time.dt.hour < 8]
    joined = hyperplane.dataframe.join_asof(
        readings, _read("calibrations"), "time", "device", tolerance="7d"
    )
    return (joined.temperature + joined.offset).mean()


def windows_of_lines() -> Any:
    """Aggregate windows of half an hour of each line, with a helper of this package."""
    functions = {"vibration": "mean", "load": "max", "device": "nunique"}
    return hyperplane.dataframe.window_agg(_read("readings"), "time", "30min", functions, "line")


def write_larger_files() -> Any:
    """Write fewer, larger files with another compression."""
    readings = _read("readings").drop(columns=["current"])
    return readings.repartition(npartitions=14).to_parquet(
        forecast.FOLDER / "written", compression="zstd", write_index=False, compute=False
    )


def save_envelopes() -> Any:
    """Save the envelopes of signals of many channels as a Zarr store, as hyperplane.save does."""
    import dask.array as da

    signals = da.random.default_rng(44).standard_normal(
        (96, 1_200_000), dtype="float32", chunks=(6, 1_200_000)
    )
    squares = signals.reshape((96, 12_000, 100), limit="200MB") ** 2
    envelopes = da.stack([squares.max(axis=2), squares.mean(axis=2)], axis=1)
    return hyperplane.save(
        envelopes.astype("float32"), forecast.FOLDER / "written", format="zarr", compute=False
    )


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        ranges_of_lines, features_of_devices, alarms_of_models, readings_over_limits,
        frames_without_spikes, minutes_of_parts, unusual_readings, correlated_fields,
        last_calibrations, windows_of_lines, write_larger_files, save_envelopes,
    )
}  # fmt: skip


if __name__ == "__main__":
    forecast_checks.main(WORKLOADS, str(__doc__), forecast.LAYOUTS, make_data)
