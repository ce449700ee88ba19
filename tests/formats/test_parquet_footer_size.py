"""Estimated size of Parquet data in memory, from footers."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from hyperplane.formats.parquet.footer_size import estimate_decoded_size

ROWS = 20_000
RANDOM = np.random.default_rng(0)
COLUMNS = {
    "whole": np.arange(ROWS),
    "few whole": RANDOM.integers(0, 3, ROWS),
    "short whole": RANDOM.integers(0, 9, ROWS).astype("int32"),
    "constant": np.zeros(ROWS),
    "random": RANDOM.normal(size=ROWS),
    "float32": RANDOM.normal(size=ROWS).astype("float32"),
    "bool": RANDOM.integers(0, 2, ROWS).astype(bool),
    "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(ROWS), unit="s"),
    "missing": np.where(np.arange(ROWS) % 2, np.nan, 1.5),
    "few words": RANDOM.choice(["alpha", "beta", "gamma"], ROWS),
    "many words": [f"passenger number {number:08}" for number in range(ROWS)],
    "category": pd.Categorical(["a long name of a category"] * ROWS),
}


def _footer(table, path, **how):
    pyarrow.parquet.write_table(table, path, **how)
    return pyarrow.parquet.read_metadata(path)


@pytest.mark.parametrize("compression", ["snappy", "zstd", None])
@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "category"])
def test_the_estimate_of_a_column_is_its_memory_or_slightly_more(tmp_path, name, compression):
    frame = pd.DataFrame({name: COLUMNS[name]})
    footer = _footer(pyarrow.Table.from_pandas(frame), tmp_path / "a", compression=compression)
    true = frame.memory_usage(deep=True, index=False).sum()
    # A column of many values also has a dictionary, and its estimate is larger.
    assert 0.9 * true <= estimate_decoded_size(footer) <= 1.5 * true


def test_all_columns_of_all_row_groups_add_up(tmp_path):
    table = pyarrow.table({name: COLUMNS[name] for name in ("whole", "random", "few whole")})
    footer = _footer(table, tmp_path / "a", row_group_size=700)
    assert footer.num_row_groups == 29
    assert 3 * 8 * ROWS <= estimate_decoded_size(footer) <= 1.2 * 3 * 8 * ROWS


def test_the_estimate_is_at_least_the_uncompressed_size(tmp_path):
    frame = pd.DataFrame(COLUMNS)
    footer = _footer(pyarrow.Table.from_pandas(frame), tmp_path / "a")
    groups = range(footer.num_row_groups)
    assert estimate_decoded_size(footer) >= sum(footer.row_group(i).total_byte_size for i in groups)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([b"x" * 30] * 50),
        pyarrow.array([b"x" * 16] * 50, pyarrow.binary(16)),
        pyarrow.array([decimal.Decimal("1.25")] * 50),
        pyarrow.array([datetime.date(2026, 1, 1)] * 50),
        pyarrow.array([datetime.time(1)] * 50),
        pyarrow.array([[1, 2, 3]] * 50),
        pyarrow.array([{"a": 1, "b": "x"}] * 50),
        pyarrow.array([None] * 50, pyarrow.string()),
        pyarrow.array([None] * 50, pyarrow.null()),
        pyarrow.array([], pyarrow.string()),
    ],
    ids=lambda column: str(column.type) if column.null_count == 0 else f"no {column.type}",
)
def test_columns_of_any_kind_are_estimated(tmp_path, column, statistics):
    footer = _footer(pyarrow.table({"a": column}), tmp_path / "a", write_statistics=statistics)
    values = 3 * len(column) if pyarrow.types.is_list(column.type) else len(column)
    assert estimate_decoded_size(footer) >= values
    assert estimate_decoded_size(footer) < 20_000


@pytest.mark.parametrize("deprecated", [True, False])
def test_int96_times_are_estimated(tmp_path, deprecated):
    table = pyarrow.table({"a": pyarrow.array(COLUMNS["time"])})
    footer = _footer(table, tmp_path / "a", use_deprecated_int96_timestamps=deprecated)
    assert 8 * ROWS <= estimate_decoded_size(footer) <= 2 * 8 * ROWS
