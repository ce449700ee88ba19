"""Check forecasts by operations that were written for a check of the model of 2026-11-30, 02:24.

    python -m benchmarks.forecast_operations [--json FILE] [WORKLOAD ...]

The tables are those of benchmarks.forecast and benchmarks.forecast_checks, the operations are
others: what users of Dask, xarray and this package do besides joins and sums. The last three, which
save their result, were added later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

import hyperplane
from benchmarks import forecast, forecast_checks

#: Processes and threads.
LAYOUTS = ((1, 2), (2, 1), (3, 1))


def make_data() -> None:
    """Write the tables of the other benchmarks."""
    forecast.make_data()
    forecast_checks.make_data()


def _events() -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(forecast.FOLDER / "events")


def _readings() -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(forecast_checks.FOLDER / "readings", calculate_divisions=True)


def monthly_anomaly() -> Any:
    """Largest deviation of a grid over time from the mean of its month."""
    import dask.array as da
    import xarray as xr

    days = pd.date_range("2020-01-01", periods=720, freq="D")
    grid = da.random.default_rng(11).random((720, 240, 360), chunks=(60, 240, 360))
    data = xr.DataArray(grid, {"time": days}, ("time", "lat", "lon"))
    months = data.groupby("time.month")
    return abs(months - months.mean()).max()


def resample_means() -> Any:
    """Mean of each ten minutes, by the index."""
    return _readings()[["temperature", "pressure"]].resample("10min").mean().max()


def melt_values() -> Any:
    """Turn two columns into rows, and average them by the name of the column."""
    import dask.dataframe as dd

    long = dd.melt(_readings(), id_vars=["sensor"], value_vars=["temperature", "pressure"])
    return long.groupby("variable").value.mean()


def indicator_sums() -> Any:
    """Columns of zeros and ones for the values of a column, and their sums."""
    import dask.dataframe as dd

    readings = _readings()
    states = readings.state.cat.set_categories(forecast_checks.STATES)
    return dd.get_dummies(states.to_frame()).sum()


def split_items() -> Any:
    """Split texts into words, one row for each, and count them."""
    words = _events().item.str.split("-").explode()
    return words.value_counts().nlargest(10)


def describe_columns() -> Any:
    """Mean, deviation and quantiles of three columns."""
    return _events()[["value", "quantity", "user"]].describe()


def spectrum() -> Any:
    """Largest value of the spectrum of columns that are in several chunks."""
    import dask.array as da

    signal = da.random.default_rng(12).random((8192, 4000), chunks=(1024, 4000))
    return abs(da.fft.rfft(signal.rechunk((8192, 500)), axis=0)).max()


def compressed_svd() -> Any:
    """Singular values of a tall matrix, by random projections."""
    import dask.array as da

    matrix = da.random.default_rng(13).random((200_000, 200), chunks=(20_000, 200))
    _, values, _ = da.linalg.svd_compressed(matrix, k=10, seed=1)
    return values


def top_rows() -> Any:
    """Three largest values of each group, with a helper of this package."""
    events = _events()[["flag", "value", "order"]]
    return hyperplane.dataframe.top_n_per_group(events, "flag", "value", 3)


def join_orders() -> Any:
    """Join two tables with a helper of this package."""
    events = _events()[["order", "value"]]
    joined = hyperplane.dataframe.join(events, forecast._orders(), on="order")
    return joined.total.sum()


def _read_counts(part: int) -> Any:
    path = forecast_checks.FOLDER / "readings" / f"{part:03}.parquet"
    return pd.read_parquet(path, columns=["sensor", "batch"]).groupby("batch").sensor.agg(["size"])


def _add(left: Any, right: Any) -> Any:
    return left.add(right, fill_value=0)


def delayed_pairs() -> Any:
    """Counts of files, added in pairs by delayed functions."""
    import dask

    counts = [dask.delayed(_read_counts)(part) for part in range(forecast_checks.FILES)]
    while len(counts) > 1:
        pairs = [
            dask.delayed(_add)(*counts[at : at + 2]) if at + 1 < len(counts) else counts[at]
            for at in range(0, len(counts), 2)
        ]
        counts = pairs
    return counts[0]


def save_columns() -> Any:
    """Save a table with computed columns, most of them numbers, as hyperplane.save does it."""
    events = _events()
    changed = events.assign(amount=events.value * events.quantity, day=events.time.dt.dayofyear)
    url = forecast.FOLDER / "written"
    return hyperplane.save(changed.drop(columns="item"), url, compute=False)


def save_texts() -> Any:
    """Save a table whose texts are changed."""
    events = _events()[["item", "user", "value"]]
    url = forecast.FOLDER / "written"
    return hyperplane.save(events.assign(item=events.item.str.upper()), url, compute=False)


def _describe_line(line: str) -> dict[str, Any]:
    words = line.split()
    return {"words": len(words), "first": words[0] if words else "", "line": line.rstrip()}


def save_records() -> Any:
    """Save a bag of dicts as JSON lines."""
    import dask.bag as db

    records = db.read_text(str(forecast.FOLDER / "text" / "*.txt")).map(_describe_line)
    return hyperplane.save(records, forecast.FOLDER / "written", format="jsonl", compute=False)


def _sum_lengths(words: Any) -> int:
    return sum(len(word) for word in words)


def long_lines() -> Any:
    """The lines with the longest words, of a bag."""
    import dask.bag as db

    lines = db.read_text(str(forecast.FOLDER / "text" / "*.txt")).str.split()
    return lines.map(_sum_lengths).topk(20)


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        monthly_anomaly, resample_means, melt_values, indicator_sums, split_items,
        describe_columns, spectrum, compressed_svd, top_rows, join_orders, delayed_pairs,
        long_lines, save_columns, save_texts, save_records,
    )
}  # fmt: skip


if __name__ == "__main__":
    forecast_checks.main(WORKLOADS, str(__doc__), LAYOUTS, make_data)
