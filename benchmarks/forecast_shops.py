"""Check forecasts by jobs of an analyst of an online shop, written on 2026-12-01.

    python -m benchmarks.forecast_shops [--json FILE] [WORKLOAD ...]

No other benchmark uses these tables. The jobs are a usual mix of tables, arrays, lines of JSON and
functions, without unusual cases. They were written while the last figures of the model were chosen,
by an author who had seen no forecast of them: they were only computed, for their results, their
time and their memory.
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

FOLDER = Path(tempfile.gettempdir(), "hyperplane-benchmark-forecast-shops")
FILES, CUSTOMERS, PRODUCTS = 40, 350_000, 9000
CHANNELS = ["app", "market", "phone", "web"]
COUNTRIES = ["AT", "BE", "CH", "DE", "DK", "ES", "FR", "IT", "NL", "PL", "PT", "SE"]


def _make_receipts(random: np.random.Generator, part: int, first: int) -> pd.DataFrame:
    """Return the receipts of nine days in the order of time."""
    rows = int(random.integers(200_000, 300_001))
    seconds = np.sort(random.integers(0, 9 * 86_400, rows)) + part * 9 * 86_400
    customers = (CUSTOMERS * random.beta(0.8, 2.0, rows)).astype("int64")
    products = (PRODUCTS * random.beta(0.7, 3.0, rows)).astype("int64")
    discount = pd.Series(random.uniform(0, 0.5, rows).round(2)).astype("Float64")
    return pd.DataFrame(
        {
            "receipt": np.arange(first, first + rows),
            "time": pd.Timestamp("2025-02-01") + pd.to_timedelta(seconds, unit="s"),
            "customer": customers,
            "account": np.char.add("user", np.char.zfill((customers * 7 % 10**7).astype(str), 7)),
            "product": np.char.add("SKU-", np.char.zfill((products * 11).astype(str), 6)),
            "price": random.lognormal(2.8, 0.9, rows).round(2),
            "count": random.geometric(0.6, rows),
            "discount": discount.mask(random.random(rows) < 0.6),
            "channel": pd.Categorical(random.choice(CHANNELS, rows, p=[0.35, 0.1, 0.05, 0.5])),
            "country": random.choice(COUNTRIES, rows),
        }
    )


def make_data() -> None:
    """Write receipts, their deliveries, products, and page views as lines of JSON."""
    forecast.make_data()  # has the folder of written files
    if (FOLDER / "complete").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in ("receipts", "deliveries", "products", "views"):
        (FOLDER / name).mkdir(parents=True)
    random = np.random.default_rng(2512)
    names = np.array([f"SKU-{each * 11:06}" for each in range(PRODUCTS)])
    products = pd.DataFrame(
        {
            "product": names,
            "category": random.choice([f"category {each}" for each in range(45)], PRODUCTS),
            "cost": random.lognormal(2.2, 0.8, PRODUCTS).round(2),
            "weight": random.gamma(2.0, 400.0, PRODUCTS).astype("float32"),
        }
    )
    products.to_parquet(FOLDER / "products" / "all.parquet", index=False)
    receipt = 1_000_000
    for part in range(FILES):
        name = f"{part:03}"
        receipts = _make_receipts(random, part, receipt)
        receipts.to_parquet(FOLDER / "receipts" / f"{name}.parquet", index=False)
        sent = np.sort(random.choice(receipts.receipt.to_numpy(), 120_000, replace=False))
        deliveries = pd.DataFrame(
            {
                "receipt": random.permutation(sent),
                "carrier": random.choice(["courier", "locker", "post", "shop"], len(sent)),
                "days": random.gamma(2.0, 1.5, len(sent)),
                "returned": random.random(len(sent)) < 0.08,
            }
        )
        deliveries.to_parquet(FOLDER / "deliveries" / f"{name}.parquet", index=False)
        receipt += len(receipts)
        chosen = names[(PRODUCTS * random.beta(0.7, 3.0, 16_000)).astype("int64")]
        visitors = random.integers(0, CUSTOMERS, len(chosen))
        lines = [
            json.dumps(
                {
                    "visitor": int(visitor),
                    "page": f"/products/{product}" if visitor % 4 else "/basket",
                    "browser": "Firefox" if visitor % 3 else "Safari",
                    "milliseconds": int(visitor) * 13 % 4000,
                }
            )
            for visitor, product in zip(visitors, chosen, strict=True)
        ]
        (FOLDER / "views" / f"{name}.json").write_text("\n".join(lines))
    (FOLDER / "complete").touch()


def _read(name: str, **options: Any) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(FOLDER / name, **options)


def revenue_of_countries() -> Any:
    """Sum and mean of the revenue of each channel and country, without small receipts."""
    receipts = _read("receipts")
    receipts = receipts[(receipts.price > 8) & (receipts["count"] < 5)]
    receipts = receipts.assign(revenue=receipts.price * receipts["count"])
    groups = receipts.groupby(["channel", "country"], observed=True)
    return groups.agg({"revenue": ["sum", "mean"], "receipt": "count"})


def spending_of_accounts() -> Any:
    """Sum, count and last time of the receipts of each account."""
    groups = _read("receipts").groupby("account")
    return groups.agg({"price": "sum", "receipt": "count", "time": "max"})


def revenue_of_hours() -> Any:
    """Revenue after discounts of each hour of the year, and how much of it is of phone calls."""
    receipts = _read("receipts", index="time", calculate_divisions=True)
    paid = receipts.price * receipts["count"] * (1 - receipts.discount.fillna(0.0))
    changed = receipts.assign(paid=paid.astype("float64"))
    changed = changed.assign(phone=changed.paid.where(changed.channel == "phone", 0.0))
    return changed[["paid", "phone", "count"]].resample("1h").sum()


def buyers_of_categories() -> Any:
    """Count different pairs of customer and product of each category, without cheap products."""
    receipts = _read("receipts")
    pairs = receipts[receipts.price > 20][["customer", "product"]].drop_duplicates()
    joined = pairs.merge(_read("products"), on="product", how="left")
    return joined.groupby("category").agg({"customer": "count", "weight": "mean"})


def returns_of_carriers() -> Any:
    """Join receipts of the app with their late deliveries, and compare carriers."""
    receipts = _read("receipts")[["receipt", "price", "count", "channel"]]
    deliveries = _read("deliveries")
    late = deliveries[deliveries.days > 4]
    joined = receipts[receipts.channel == "app"].merge(late, on="receipt")
    lost = joined.assign(lost=joined.price * joined.returned)
    return lost.groupby("carrier").agg({"lost": "sum", "days": "mean", "returned": "sum"})


def _list_gaps(part: pd.DataFrame) -> Any:
    ordered = part.sort_values("time")
    gaps = ordered.groupby(level=0).time.diff().dt.total_seconds() / 86_400
    return gaps.dropna().reset_index(drop=True).rename("gap")


def gaps_of_customers() -> Any:
    """Put receipts in the order of customers, and average the days between those of each."""
    receipts = _read("receipts")[["customer", "time", "country"]]
    receipts = receipts[receipts.country.isin(["AT", "CH", "DE"])]
    return receipts.set_index("customer").map_partitions(_list_gaps, meta=("gap", "float64")).mean()


def _score(part: pd.DataFrame) -> pd.DataFrame:
    logarithms = np.log1p(part.price * part["count"])
    ranks = part.groupby("product").price.rank(pct=True)
    return part[["receipt", "account", "product"]].assign(
        score=(logarithms - logarithms.mean()) / logarithms.std(),
        rank=ranks.astype("float32"),
        night=part.time.dt.hour.isin([22, 23, 0, 1, 2, 3, 4]),
    )


def write_scores() -> Any:
    """Compute scores of the last receipts with a function, and write them as files."""
    scores = _read("receipts").partitions[18:].map_partitions(_score)
    return scores.to_parquet(forecast.FOLDER / "written", write_index=False, compute=False)


def largest_of_products() -> Any:
    """The largest five receipts of each product, with a helper of this package."""
    receipts = _read("receipts")[["product", "price", "account", "time"]]
    return hyperplane.dataframe.top_n_per_group(receipts, "product", "price", 5)


def empty_shelves() -> Any:
    """Mean of the stock while there is some, and the share of days without, of each product."""
    import dask.array as da
    import xarray as xr

    stock = da.random.default_rng(51).normal(40, 30, (PRODUCTS, 14_600), chunks=(1800, 4867))
    table = xr.DataArray(stock, dims=("product", "day")).clip(0)
    some = table > 0
    return xr.Dataset({"mean": table.where(some).mean("day"), "empty": 1 - some.mean("day")})


def median_of_stock() -> Any:
    """Median stock of each product in each of four stores, from blocks of days."""
    import dask.array as da

    stock = da.random.default_rng(52).random((1800, PRODUCTS * 4), "float32", chunks=(150, -1))
    return da.median(stock.rechunk((-1, 6000)), axis=0)


def repeated_views() -> Any:
    """The twenty pairs of visitor and product with most page views that took some time."""
    import dask.bag as db

    views = db.read_text(str(FOLDER / "views" / "*.json")).map(json.loads)
    kept = views.filter(lambda each: each["milliseconds"] > 500 and each["page"] != "/basket")
    return kept.pluck(["visitor", "page"]).frequencies().topk(20, key=1)


def _summarize_file(part: int) -> pd.DataFrame:
    columns = ["account", "price", "count", "time"]
    receipts = pd.read_parquet(FOLDER / "receipts" / f"{part:03}.parquet", columns=columns)
    receipts["revenue"] = receipts.price * receipts["count"]
    groups = receipts.groupby("account")
    return groups.agg(revenue=("revenue", "sum"), orders=("price", "size"), last=("time", "max"))


def _combine_summaries(parts: list[pd.DataFrame]) -> pd.DataFrame:
    functions = {"revenue": "sum", "orders": "sum", "last": "max"}
    return pd.concat(parts).groupby(level=0).agg(functions)


def _count_segments(summary: pd.DataFrame) -> Any:
    classes = [pd.qcut(summary[name].rank(), 4, labels=False) for name in ("revenue", "last")]
    return summary.groupby(classes).orders.agg(["count", "mean"])


def segments_of_accounts() -> Any:
    """Segments of accounts by revenue and last receipt, with delayed functions in two levels."""
    from dask.delayed import delayed

    parts = [delayed(_summarize_file)(part) for part in range(10, FILES)]
    groups = [delayed(_combine_summaries)(parts[first::3]) for first in range(3)]
    return delayed(_count_segments)(delayed(_combine_summaries)(groups))


WORKLOADS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        revenue_of_countries, spending_of_accounts, revenue_of_hours, buyers_of_categories,
        returns_of_carriers, gaps_of_customers, write_scores, largest_of_products, empty_shelves,
        median_of_stock, repeated_views, segments_of_accounts,
    )
}  # fmt: skip


if __name__ == "__main__":
    forecast_checks.main(WORKLOADS, str(__doc__), forecast.LAYOUTS, make_data)
