"""Duplicate and missing names in CSV headers are replaced as pandas does."""

from __future__ import annotations

import io

import dask
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane.dataframe import read
from hyperplane.formats.csv.inference import deduplicate_names

NAMES = ["a", "a.1", "a.2", "a.1.1", "", "Unnamed: 1", "Unnamed: 2", "Unnamed: 1.1"]


@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=6))
def test_names_equal_pandas(names):
    header, row = ",".join(names), ",".join("1" * len(names))
    assert list(deduplicate_names(names)) == list(
        pd.read_csv(io.StringIO(f"{header}\n{row}\n")).columns
    )


@pytest.mark.parametrize("header", ["a,b,a", "a,a,a.1", "a,,Unnamed: 1", ",,"])
def test_duplicate_column_names_equal_pandas(tmp_path, header):
    for number in range(2):
        rows = [f"{number}{row},{number}{row}.5,x{number}{row}\n" for row in range(1, 5)]
        (tmp_path / f"{number}.csv").write_text(f"{header}\n" + "".join(rows))
    files = [pd.read_csv(tmp_path / f"{number}.csv") for number in range(2)]
    expected = pd.concat(files, ignore_index=True)
    with dask.config.set(scheduler="sync"):
        whole = read(tmp_path).compute().reset_index(drop=True)
        loaded = hyperplane.load(tmp_path).compute().reset_index(drop=True)
        last = expected.columns[-1]
        values = read(tmp_path, columns=[last]).compute()[last].to_list()
    shares = [hyperplane.shard_rows(tmp_path, 3, idx) for idx in range(3)]
    for frame in (whole, loaded, pd.concat(shares, ignore_index=True)):
        pd.testing.assert_frame_equal(frame, expected)
    assert values == expected[last].to_list()
    pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "0.csv"), files[0])
