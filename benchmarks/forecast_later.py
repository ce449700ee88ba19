"""Check forecasts by operations that were written on 2026-11-30 at 15:05.

    python -m benchmarks.forecast_later [--json FILE] [WORKLOAD ...]

The tables are those of benchmarks.forecast and benchmarks.forecast_checks. The jobs were written
for a check of the model of that day; the present one was chosen with their runs, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hyperplane
from benchmarks import forecast, forecast_checks, forecast_operations


def _events() -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(forecast.FOLDER / "events")


def _readings() -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(forecast_checks.FOLDER / "readings", calculate_divisions=True)


def local_hours() -> Any:
    """Count rows by the hour of another time zone."""
    times = _events().time.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    return times.dt.hour.value_counts()


def items_with() -> Any:
    """Count the rows whose text has some digits, by a column of three values."""
    events = _events()
    return events[events["item"].str.contains("99")].groupby("flag").size()


def forward_filled() -> Any:
    """Fill gaps from the row before, also across partitions, and average."""
    readings = _readings()[["temperature", "pressure"]]
    return readings.where(readings > 10).ffill().mean()


def totals_of_orders() -> Any:
    """Join the sums of groups with another table."""
    sums = _events().groupby("order").value.sum(split_out=4).to_frame().reset_index()
    joined = sums.merge(forecast._orders(), on="order")
    return joined.groupby("priority")[["value", "total"]].mean()


def sorted_users() -> Any:
    """Sort rows with a helper of this package, and take the first ones."""
    events = _events()[["user", "value", "quantity"]]
    return hyperplane.dataframe.sort_values(events, ["user", "value"]).quantity.sum()


def hourly_flags() -> Any:
    """Count values in windows of time with a helper of this package."""
    return hyperplane.dataframe.window_counts(_events(), "time", "1h", "flag")


def rolling_grid() -> Any:
    """Mean of seven days of a grid over time, and its largest value."""
    import dask.array as da
    import xarray as xr

    grid = da.random.default_rng(21).random((600, 200, 300), chunks=(50, 200, 300))
    return xr.DataArray(grid, dims=("time", "lat", "lon")).rolling(time=7).mean().max()


def least_squares() -> Any:
    """Coefficients of a linear model of a tall array."""
    import dask.array as da

    matrix = da.random.default_rng(22).random((2_000_000, 30), chunks=(100_000, 30))
    target = matrix.sum(axis=1) + da.random.default_rng(23).random(2_000_000, chunks=100_000)
    return da.linalg.lstsq(matrix, target)[0]


def largest_of_columns() -> Any:
    """The 50 largest values of each column."""
    import dask.array as da

    numbers = da.random.default_rng(24).random((40_000, 6000), chunks=(4000, 3000))
    return da.topk(numbers, 50, axis=0).mean()


def _prefix(word: str) -> str:
    return word[:5]


def _count_more(count: int, _: str) -> int:
    return count + 1


def _add(left: int, right: int) -> int:
    return left + right


def words_by_prefix() -> Any:
    """Count words by their first letters."""
    import dask.bag as db

    words = db.read_text(str(forecast.FOLDER / "text" / "*.txt")).str.split().flatten()
    return words.foldby(_prefix, _count_more, 0, _add, 0)


def _fit(part: int) -> Any:
    frame = forecast._load_frame(part)
    design = np.column_stack([frame.quantity, frame.user, np.ones(len(frame))])
    return np.linalg.lstsq(design, frame.value, rcond=None)[0]


def mean_of_models() -> Any:
    """Average of linear models that delayed functions fit to files."""
    import dask

    models = [dask.delayed(_fit)(part) for part in range(forecast.FILES)]
    return dask.delayed(np.mean)(models, axis=0)


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        local_hours, items_with, forward_filled, totals_of_orders, sorted_users, hourly_flags,
        rolling_grid, least_squares, largest_of_columns, words_by_prefix, mean_of_models,
    )
}  # fmt: skip


if __name__ == "__main__":
    forecast_checks.main(
        WORKLOADS, str(__doc__), forecast_operations.LAYOUTS, forecast_operations.make_data
    )
