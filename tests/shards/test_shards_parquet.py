"""Shares of Parquet as ``numpy.array_split``, read from the row groups that hold them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from counting_store import fresh, read_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scale import scaled

from hyperplane import RequestError, shard_rows
from hyperplane.errors import ReadError


def make_frame(start, length):
    numbers = np.arange(start, start + length)
    frame = pd.DataFrame({"n": numbers, "s": [f"é{n}" for n in numbers], "x": numbers / 7})
    frame["t"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(numbers, unit="h")
    frame["gaps"] = pd.array([None if n % 3 == 0 else n for n in numbers], dtype="Int32")
    frame["many"] = [[int(n)] * (int(n) % 3) for n in numbers]
    return frame


@settings(max_examples=scaled(8, 60), suppress_health_check=list(HealthCheck))
@given(
    groups=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=4),
    n=st.integers(1, 12),
    remote=st.booleans(),
)
def test_shares_of_any_row_groups_are_those_of_array_split(tmp_path_factory, groups, n, remote):
    store, folder, total = fresh(), tmp_path_factory.mktemp("parquet"), 0
    schema = pa.Schema.from_pandas(make_frame(0, 9), preserve_index=False)
    # An empty frame does not determine the type of lists.
    table = pa.Table.from_pandas(make_frame(0, 200), schema, preserve_index=False)
    for number, lengths in enumerate(groups):
        path = folder / f"part-{number}.parquet"
        with parquet.ParquetWriter(path, schema) as writer:
            for length in lengths:
                writer.write_table(table.slice(total, length))
                total += length
        store.pipe_file(f"/data/{path.name}", path.read_bytes())
    url = "tally://data/*.parquet" if remote else folder
    shares = [shard_rows(url, n, idx) for idx in range(n)]
    expected = [len(part) for part in np.array_split(np.arange(total), n)]
    assert [len(share) for share in shares] == expected
    assert all(share.dtypes.equals(shares[0].dtypes) for share in shares)
    assert all(share.index.equals(pd.RangeIndex(len(share))) for share in shares)
    whole = pd.concat(shares, ignore_index=True)
    expected_frame = make_frame(0, total)
    for name in ("n", "s", "x", "t"):
        assert whole[name].to_list() == expected_frame[name].to_list()
    gaps = [None if pd.isna(value) else value for value in whole["gaps"]]
    assert gaps == [None if k % 3 == 0 else k for k in range(total)]
    assert [list(value) for value in whole["many"]] == expected_frame["many"].to_list()


@pytest.fixture
def big():
    store = fresh()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": np.arange(320_000), "x": rng.random(320_000)})
    with store.open("/big.parquet", "wb") as file:
        options = {"row_group_size": 8000, "compression": "none", "use_dictionary": False}
        parquet.write_table(pa.Table.from_pandas(frame), file, **options)
    return frame, store.size("/big.parquet"), store.cat_file("/big.parquet")


def test_only_row_groups_of_the_share_are_read(big):
    frame, size, data = big
    footer = parquet.read_metadata(pa.BufferReader(data)).serialized_size
    for idx in range(8):
        share, nbytes, _ = read_of(lambda idx=idx: shard_rows("tally://big.parquet", 8, idx))
        pd.testing.assert_frame_equal(
            share, frame[idx * 40_000 : (idx + 1) * 40_000].reset_index(drop=True)
        )
        # Only its five row groups are read, and the footer each time the file is opened.
        assert nbytes < size / 8 + 4 * (footer + 65_536)


def test_other_row_groups_are_not_read_from_local_disk(big, tmp_path):
    frame, _, data = big
    metadata, damaged = parquet.read_metadata(pa.BufferReader(data)), bytearray(data)
    for number in (*range(5), *range(10, 40)):
        for column in range(2):
            chunk = metadata.row_group(number).column(column)
            start, length = chunk.data_page_offset, chunk.total_compressed_size
            damaged[start : start + length] = b"\xff" * length
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    share = shard_rows(tmp_path / "damaged.parquet", 8, 1)
    pd.testing.assert_frame_equal(share, frame[40_000:80_000].reset_index(drop=True))
    with pytest.raises(ReadError, match=r"damaged\.parquet"):
        shard_rows(tmp_path / "damaged.parquet", 8, 2)


def test_only_requested_columns_are_read(big):
    _, size, _ = big
    _, every, _ = read_of(lambda: shard_rows("tally://big.parquet", 2, 0))
    share, nbytes, _ = read_of(lambda: shard_rows("tally://big.parquet", 2, 0, columns=["x"]))
    assert list(share.columns) == ["x"]
    assert every - nbytes > size / 2 * 0.4


def test_hive_folders_are_columns(tmp_path):
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        frame = pd.DataFrame({"n": np.arange(5) + 10 * year})
        frame.to_parquet(tmp_path / f"year={year}" / "a.parquet")
    shares = [shard_rows(tmp_path, 3, idx) for idx in range(3)]
    assert [len(share) for share in shares] == [4, 3, 3]
    whole = pd.concat(shares, ignore_index=True)
    assert whole["year"].to_list() == [2023] * 5 + [2024] * 5
    assert (whole["n"] // 10 == whole["year"]).all()


def test_an_unknown_column_is_refused(tmp_path):
    pd.DataFrame({"price": [1.0]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError, match="did you mean 'price'"):
        shard_rows(tmp_path / "a.parquet", 2, 0, columns=["prise"])
