"""Rows of Dask dataframes and datasets of Ray Data: types, values, and where they are processed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from services import temporary_directory

import hyperplane
from hyperplane.dataframe import from_ray_data, to_ray_data
from hyperplane.errors import RequestError

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.cluster,
    # Ray Data sets deprecated settings when it copies its own.
    pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray cluster of one worker node with two cores."""
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=2, cores_per_worker=2, ram_gb_per_proc=1,
        local_fit="exact", engine="ray:local", timeout=280, engine_options={"dashboard": False},
    )  # fmt: skip
    with temporary_directory():
        client, started = hyperplane.start(plan)
        try:
            yield started
        finally:
            client.close()
            started.close()


def make_frame() -> pd.DataFrame:
    """Return a frame with a column of each kind of type, and missing values."""
    times = pd.to_datetime(["2020-01-01", "2021-02-03", None])
    exact = times + pd.Timedelta(123456789, "ns")
    arrow = {
        "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-2.25"), None]),
        "list": (pa.list_(pa.int64()), [[1, 2], [], None]),
        "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None]),
        "binary": (pa.binary(), [b"x", b"\0", None]),
        "date": (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(1899, 12, 31), None]),
    }
    return pd.DataFrame(
        {
            "integer": [1, -2, 2**62],
            "nullable": pd.array([1, 2**60 + 1, None], dtype="Int64"),
            "unsigned": np.array([1, 2, 2**64 - 1], dtype="uint64"),
            "float": [1.5, np.nan, np.inf],
            "small": np.array([1, 2, 3], dtype="float32"),
            "boolean": pd.array([True, False, None], dtype="boolean"),
            "text": ["a", None, "ü\0"],
            "category": pd.Categorical(["x", "y", None], categories=["y", "x", "unused"]),
            "time": exact,
            "zoned": exact.tz_localize("Europe/Rome"),
            "duration": pd.to_timedelta([1, None, -3], unit="ms"),
            **{
                name: pd.array(values, dtype=pd.ArrowDtype(kind))
                for name, (kind, values) in arrow.items()
            },
        }
    )


def test_values_of_all_types_are_equal_after_both_ways(cluster: Any) -> None:
    frame = make_frame()
    df = dd.from_pandas(frame, npartitions=2)
    dataset = to_ray_data(df)
    kinds = dict(zip(dataset.schema().names, dataset.schema().types, strict=True))
    assert kinds["zoned"].tz == "Europe/Rome"
    assert kinds["decimal"] == pa.decimal128(10, 2)
    assert pa.types.is_dictionary(kinds["category"])
    returned = from_ray_data(dataset)
    expected = hyperplane.save(df, Path(os.environ["TMPDIR"]) / "direct.parquet")
    direct = hyperplane.dataframe.read(expected.url, decimals="exact")
    assert returned.dtypes.to_dict() == direct.dtypes.to_dict()
    rows = returned.compute().sort_values("integer", ignore_index=True)
    wanted = frame.sort_values("integer", ignore_index=True)
    for name in frame:
        for value, original in zip(rows[name].tolist(), wanted[name].tolist(), strict=True):
            assert value == original or (pd.isna(value) and pd.isna(original)), name


def test_only_workers_process_rows(cluster: Any) -> None:
    def mark(frame: pd.DataFrame, column: str) -> pd.DataFrame:
        return frame.assign(**{column: os.getpid()})

    client, dask_cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, ram_gb_per_proc=0.6, cores_per_worker=1, num_workers=1
    )
    try:
        df = dd.from_pandas(pd.DataFrame({"x": range(1000)}), npartitions=4)
        written = df.map_partitions(mark, "dask_pid", meta={"x": "int64", "dask_pid": "int64"})
        dataset = to_ray_data(written).map_batches(
            lambda frame: frame.assign(ray_pid=os.getpid()), batch_format="pandas"
        )
        back = from_ray_data(dataset)
        pids = {int(pid) for pid in back["dask_pid"].unique().compute()}
        assert pids == set(client.run(os.getpid).values())
        assert os.getpid() not in set(back["ray_pid"].unique().compute()) | pids
        assert back["x"].sum().compute() == 499_500
    finally:
        client.close()
        dask_cluster.close()


def test_a_dataset_without_rows_keeps_its_columns(cluster: Any, tmp_path: Path) -> None:
    df = dd.from_pandas(pd.DataFrame({"x": [1.5], "name": ["a"]}), npartitions=1)
    dataset = to_ray_data(df, tmp_path / "out").filter(lambda row: row["x"] > 2)
    empty = from_ray_data(dataset.materialize(), tmp_path / "back")
    assert list(empty.columns) == ["x", "name"]
    assert len(empty) == 0
    # The files of a folder that the user chose remain.
    assert list((tmp_path / "out").glob("*/rows.parquet/*.parquet"))


def test_columns_that_parquet_cannot_store_are_named(cluster: Any) -> None:
    dataset = ray.data.from_items([{"fine": 1, "tensor": np.zeros((2, 2))}])
    with pytest.raises(RequestError, match="'tensor'") as caught:
        from_ray_data(dataset)
    assert [fault.where for fault in caught.value.faults] == ["dataset"]
    assert "'fine'" not in str(caught.value)
