"""The jobs with Ray Data, on a cluster of one worker node of all cores."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.frameworks.answers import (
    Answer,
    fitted,
    list_files,
    read_sorted,
    rounded,
)


@contextlib.contextmanager
def start_ray() -> Iterator[None]:
    import hyperplane

    cores = os.cpu_count() or 1
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=cores, cores_per_worker=cores, ram_gb_per_proc=8,
        local_fit="exact", engine="ray:local", engine_options={"dashboard": False},
    )  # fmt: skip
    client, cluster = hyperplane.start(plan)
    context = importlib.import_module("ray.data").DataContext.get_current()
    assert client.ray.is_initialized()
    context.enable_progress_bars = False
    yield
    client.close()
    cluster.close()


def scan_ray(events: str, folder: Path) -> Answer:
    from ray.data import read_parquet
    from ray.data.expressions import col

    rows = read_parquet(list_files(events), columns=["type", "items"]).filter(
        expr=col("type") == "buy"
    )
    rows = rows.materialize()
    return rounded(rows.count(), rows.sum("items"))


def group_ray(events: str, folder: Path) -> Answer:
    from ray.data import read_parquet
    from ray.data.aggregate import Count, Sum

    rows = read_parquet(list_files(events), columns=["user", "value"])
    sums = rows.groupby("user").aggregate(Count(), Sum("value")).materialize()
    return rounded(sums.count(), sums.max("sum(value)"), sums.max("count()"))


def join_ray(events: str, folder: Path) -> Answer:
    from ray.data import read_parquet
    from ray.data.aggregate import Sum

    rows = read_parquet(list_files(events), columns=["user", "value"])
    users = read_parquet(str(folder / "users"), columns=["user", "country"])
    joined = rows.join(users, join_type="inner", num_partitions=8, on=("user",))
    sums = joined.groupby("country").aggregate(Sum("value")).to_pandas()["sum(value)"]
    return rounded(len(sums), sums.sum(), sums.max())


def sort_ray(events: str, folder: Path) -> Answer:
    from ray.data import DataContext, read_parquet

    DataContext.get_current().execution_options.preserve_order = True
    read_parquet(list_files(events)).sort("value").write_parquet(str(folder / "sorted"))
    return read_sorted(folder / "sorted")


def train_ray(events: str, folder: Path) -> Answer:
    import numpy as np
    from ray.data import read_parquet

    def sum_products(rows: dict[str, Any]) -> dict[str, Any]:
        hour = rows["time"].astype("datetime64[h]").astype("int64") % 24
        columns = [np.ones(len(hour)), rows["items"], hour, rows["value"]]
        table = np.column_stack(columns).astype("float64")
        return {"products": (table.T @ table)[np.newaxis]}

    rows = read_parquet(list_files(events), columns=["items", "time", "value"])
    parts = rows.map_batches(sum_products, batch_format="numpy").take_all()
    products = sum(part["products"] for part in parts)
    return fitted(np.linalg.solve(products[:3, :3], products[:3, 3]))
