"""Rows of Dask dataframes and datasets of Ray Data: types, values, and where they are processed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scale import FULL
from services import temporary_directory

import hyperplane
from hyperplane.dataframe import from_ray_data, to_ray_data
from hyperplane.errors import RequestError

ray = pytest.importorskip("ray")
from ray.data.expressions import col  # noqa: E402 - after the skip without Ray

pytestmark = [pytest.mark.ray, pytest.mark.cluster]


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


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA."""
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))


def test_values_of_all_types_are_equal_and_only_workers_process_rows(cluster: Any) -> None:
    def mark(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(dask_pid=os.getpid())

    def mark_batch(table: pa.Table) -> pa.Table:
        return table.append_column("ray_pid", pa.array([os.getpid()] * table.num_rows))

    frame = make_frame()
    client, dask_cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, ram_gb_per_proc=0.6, cores_per_worker=1, num_workers=1
    )
    with dask_cluster, client:
        df = dd.from_pandas(frame, npartitions=2)
        dataset = to_ray_data(df.map_partitions(mark, meta=mark(df._meta)))
        kinds = dict(zip(dataset.schema().names, dataset.schema().types, strict=True))
        assert kinds["zoned"].tz == "Europe/Rome"
        assert kinds["decimal"] == pa.decimal128(10, 2)
        assert pa.types.is_dictionary(kinds["category"])
        returned = from_ray_data(dataset.map_batches(mark_batch, batch_format="pyarrow"))
        direct_files = hyperplane.save(df, Path(os.environ["TMPDIR"]) / "direct.parquet").url
        direct = hyperplane.dataframe.read(direct_files, decimals="exact")
        assert returned.dtypes[list(frame)].to_dict() == direct.dtypes.to_dict()
        workers = set(client.run(os.getpid).values())
        rows = returned.compute().sort_values("integer", ignore_index=True)
    assert set(rows["dask_pid"]) == workers
    assert not {os.getpid(), *workers} & set(rows["ray_pid"])
    # dataframe.read reads dates as times, as it does for every Parquet file.
    wanted = frame.assign(date=frame["date"].astype("datetime64[s]"))
    wanted = wanted.sort_values("integer", ignore_index=True)
    for name in frame:
        for value, original in zip(rows[name].tolist(), wanted[name].tolist(), strict=True):
            assert is_missing(value) == is_missing(original), name
            assert is_missing(value) or value == original, name


@pytest.mark.skipif(not FULL, reason="takes half a minute for a rare result: at full scale")
def test_rows_of_no_partition_keep_their_columns(cluster: Any, tmp_path: Path) -> None:
    df = dd.from_pandas(pd.DataFrame({"x": [1.5], "name": ["a"]}), npartitions=1)
    empty = from_ray_data(to_ray_data(df[df["x"] > 2], tmp_path / "out"), tmp_path / "back")
    assert list(empty.columns) == ["x", "name"]
    assert len(empty) == 0
    # The files of a folder that the user chose remain.
    assert list((tmp_path / "out").glob("*/rows.parquet/*.parquet"))


@pytest.mark.skipif(not FULL, reason="takes long for a rare result: at full scale")
def test_an_empty_result_without_known_columns_is_refused(cluster: Any) -> None:
    df = dd.from_pandas(pd.DataFrame({"x": [1.5], "name": ["a"]}), npartitions=1)
    none = to_ray_data(df).filter(expr=col("x") > 2).materialize()
    with pytest.raises(RequestError, match="no rows"):
        from_ray_data(none)


@pytest.mark.slow
def test_any_folder_can_be_used(cluster: Any, tmp_path: Path) -> None:
    folder = tmp_path / "day=3" / "my ä, [1] #2 50%20"
    df = dd.from_pandas(pd.DataFrame({"x": [1, 2, 3], "a b.c": ["u", "v", "w"]}), npartitions=2)
    dataset = to_ray_data(df[df["x"] > 1], folder)
    assert dataset.schema().names == ["x", "a b.c"]  # the name of the folder is no column
    returned = from_ray_data(dataset, folder).compute().sort_values("x")
    assert list(returned.columns) == ["x", "a b.c"]
    assert returned["a b.c"].tolist() == ["v", "w"]
    assert len(list(folder.iterdir())) == 2


def test_types_of_partitions_that_cannot_be_combined_are_named(cluster: Any) -> None:
    frames = [
        pd.DataFrame(
            {"wider": [Decimal("1.1")], "fine": [None], "x": [2**53 + 1], "y": ["a"], "z": [1]}
        ),
        pd.DataFrame(
            {"wider": [Decimal("22.345")], "fine": ["b"], "x": [1.5], "y": [1], "z": [1.5]}
        ),
    ]
    with dask.config.set({"dataframe.convert-string": False}):
        df = dd.from_map(
            lambda part: frames[part], [0, 1], meta=frames[0][:0], enforce_metadata=False
        )
        with pytest.raises(RequestError) as caught:
            to_ray_data(df)
        faults = [str(fault) for fault in caught.value.faults]
        assert len(faults) == 2
        assert "'x' of type int64 and double in partitions" in faults[0]
        assert "'y'" in faults[1]
        assert to_ray_data(df[["wider", "fine", "z"]]).schema().names == ["wider", "fine", "z"]


def test_columns_that_parquet_cannot_store_are_named(cluster: Any) -> None:
    dataset = ray.data.from_items([{"fine": 1, "tensor": np.zeros((2, 2))}])
    with pytest.raises(RequestError, match="'tensor'") as caught:
        from_ray_data(dataset)
    assert [fault.where for fault in caught.value.faults] == ["dataset"]
    assert "'fine'" not in str(caught.value)
