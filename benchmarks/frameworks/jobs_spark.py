"""The jobs with Spark, on a standalone cluster with one executor of all cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.frameworks.answers import (
    Answer,
    fitted,
    read_sorted,
    rounded,
)


@contextlib.contextmanager
def start_spark() -> Iterator[None]:
    from hyperplane.spark import init_spark, stop_spark

    # Times in the files have no zone.
    configs = {"spark.sql.session.timeZone": "UTC"}
    configs |= {"spark.ui.showConsoleProgress": False, "spark.sql.shuffle.partitions": 8}
    with contextlib.redirect_stdout(None):
        session = init_spark("frameworks", 1, os.cpu_count() or 1, "7g", configs)
    session.sparkContext.setLogLevel("ERROR")
    yield
    stop_spark()


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def scan_spark(events: str, folder: Path) -> Answer:
    rows = _session().read.parquet(events).where("type = 'buy'")
    return rounded(*rows.selectExpr("count(*)", "sum(items)").first())


def group_spark(events: str, folder: Path) -> Answer:
    groups = _session().read.parquet(events).groupBy("user")
    sums = groups.agg({"value": "sum", "*": "count"})
    return rounded(*sums.selectExpr("count(*)", "max(`sum(value)`)", "max(`count(1)`)").first())


def join_spark(events: str, folder: Path) -> Answer:
    users = _session().read.parquet(str(folder / "users"))
    joined = _session().read.parquet(events).join(users, "user")
    sums = joined.groupBy("country").sum("value").toPandas()["sum(value)"]
    return rounded(len(sums), sums.sum(), sums.max())


def sort_spark(events: str, folder: Path) -> Answer:
    _session().read.parquet(events).orderBy("value").write.parquet(str(folder / "sorted"))
    return read_sorted(folder / "sorted")


def train_spark(events: str, folder: Path) -> Answer:
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression

    rows = _session().read.parquet(events).selectExpr("items", "hour(time) as hour", "value")
    table = VectorAssembler(inputCols=["items", "hour"], outputCol="x").transform(rows)
    model = LinearRegression(featuresCol="x", labelCol="value", solver="normal").fit(table)
    return fitted([model.intercept, *model.coefficients])
