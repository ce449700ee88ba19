"""Parquet files as they are written: the same tables with and without dictionaries."""

from __future__ import annotations

import io
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from hyperplane.errors import DataError
from hyperplane.formats.parquet.write import encode_parquet

ROWS = 20_000


def encoded_with_dictionary(frame):
    file = io.BytesIO(bytes(encode_parquet(frame).data))
    group = parquet.read_metadata(file).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {
        column.path_in_schema for column in columns if "RLE_DICTIONARY" in column.encodings
    }, parquet.read_table(file)


def test_only_columns_with_repeated_values_have_dictionaries():
    rng = np.random.default_rng(0)
    ids = rng.permutation(ROWS)
    frame = pd.DataFrame(
        {
            "id": ids,
            "text": [f"{number:032x}" for number in ids],
            "some": np.where(ids % 5 == 0, np.nan, rng.random(ROWS)),
            "sparse": np.where(ids % 5 == 0, rng.random(ROWS), np.nan),
            "runs": np.arange(ROWS) // 10,
            "few": ids % 10,
            "kind": pd.Categorical(ids.astype(str)),
        }
    )
    with_dictionary, table = encoded_with_dictionary(frame)
    assert with_dictionary == {"sparse", "runs", "few", "kind"}
    want = pa.Table.from_pandas(frame)
    assert table.drop(["kind"]).equals(want.drop(["kind"]))
    assert table.schema.metadata == want.schema.metadata


@pytest.mark.parametrize("rows", [0, 3, ROWS])
def test_nested_columns_and_few_rows_are_written_as_before(rows):
    frame = pd.DataFrame({"id": range(rows), "pair": [[n, n + 1] for n in range(rows)]})
    table = parquet.read_table(io.BytesIO(bytes(encode_parquet(frame).data)))
    assert table.equals(pa.Table.from_pandas(frame))


@pytest.mark.parametrize(
    ("kind", "distinct"),
    [("float64", 125_000), ("datetime64[us]", 120_000), ("int64", 110_000), ("int32", 200_000)],
)
def test_files_of_columns_with_a_useful_dictionary_do_not_grow(kind, distinct):
    values = np.random.default_rng(0).integers(0, distinct, 1_000_000) * 999_983
    frame = pd.DataFrame({"value": values.astype("int64").astype(kind)})
    default = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pandas(frame), default, write_page_checksum=True)
    assert len(bytes(encode_parquet(frame).data)) <= 1.01 * default.getvalue().size


def test_columns_whose_dictionary_would_be_too_large_have_none():
    values = np.random.default_rng(0).integers(0, 10**7, 300_000)
    with_dictionary, _ = encoded_with_dictionary(pd.DataFrame({"value": values}))
    assert with_dictionary == set()


def test_decimals_that_parquet_does_not_have_are_named():
    kind = pd.ArrowDtype(pa.decimal128(5, -2))
    frame = pd.DataFrame({"fine": [1], "price": pd.array([Decimal("1500")], dtype=kind)})
    with pytest.raises(DataError, match=r"'price'.*Scale must be a non-negative") as caught:
        encode_parquet(frame)
    assert caught.value.column == "price"
