"""Division and joining of files: each row is read once, and each thread has work."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane.collections.frames.read import read
from hyperplane.core import active_cluster
from hyperplane.errors import Fault, SkippedFile
from hyperplane.formats import (
    column_types,
    hive_partitions,
    partition_sizes,
    text_samples,
    time_formats,
)
from hyperplane.formats.csv import quotes
from hyperplane.objectstore.file_names import suffix_of
from hyperplane.objectstore.listing import natural_sort_key
from hyperplane.objectstore.locations import File, Store
from hyperplane.objectstore.redaction import redact_url


@given(sizes=st.lists(st.integers(1, 10**9), max_size=40), partition_size=st.integers(1, 10**9))
def test_groups_have_all_items_in_order_and_similar_sizes(sizes, partition_size):
    parts = partition_sizes.group_neighbors(range(len(sizes)), sizes, partition_size)
    assert [item for part in parts for item in part] == list(range(len(sizes)))
    target_size = partition_sizes.choose_target_size(sum(sizes), partition_size)
    for part in parts:
        inner = sum(sizes[item] for item in part[1:-1])
        assert part
        assert inner <= target_size


@given(
    files=st.lists(st.lists(st.integers(1, 10**8), min_size=1, max_size=5), max_size=8),
    partition_size=st.integers(1, 10**9),
)
def test_separate_files_share_no_partition(files, partition_size):
    items = [
        (number, position) for number, file in enumerate(files) for position in range(len(file))
    ]
    sizes = [size for file in files for size in file]
    names = [str(number) for number, _ in items]
    parts = partition_sizes.group_neighbors(items, sizes, partition_size, names)
    assert [item for part in parts for item in part] == items
    assert all(len({number for number, _ in part}) == 1 for part in parts)


@pytest.mark.parametrize("form", ["parquet", "csv", "csv.gz", "jsonl", "avro"])
def test_each_file_is_a_separate_partition_unless_a_size_is_given(tmp_path, form):
    rows = pd.DataFrame({"n": [1, 2, 3]})
    for number in range(3):
        file = tmp_path / f"part-{number}.{form}"
        if form == "csv.gz":
            rows.to_csv(file, index=False)
        else:
            hyperplane.save(rows + number, file)
    frame = read(tmp_path / f"*.{form}")
    assert frame.npartitions == 3
    assert [len(frame.partitions[number]) for number in range(3)] == [3, 3, 3]
    assert read(sorted(tmp_path.glob(f"*.{form}"))).npartitions == 3
    joined = read(tmp_path / f"*.{form}", partition_size="100MB")
    assert joined.npartitions == 1
    assert joined.n.compute().to_list() == frame.n.compute().to_list()
    # Helpers that are given files instead of a collection have small files joined.
    assert hyperplane.dataframe.group_agg(str(tmp_path), "n", {"n": "count"}).npartitions == 1


@given(
    texts=st.lists(st.text(alphabet='ab"', max_size=6), max_size=60),
    count=st.integers(1, 9),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_files_are_divided_between_records(tmp_path_factory, texts, count, newline):
    path = tmp_path_factory.mktemp("cuts") / "a.csv"
    rows = ['"' + text.replace('"', '""').replace("b", newline) + '"' for text in texts]
    data = "".join(row + newline for row in rows).encode()
    path.write_bytes(data)
    file = File(Store("file", "file:///", {}), str(path), len(data), "")
    ends = text_samples.find_split_offsets(file, 0, count, multiline=True)
    assert ends == sorted(set(ends))
    assert (ends[0], ends[-1]) == (0, len(data))
    for end in ends:
        assert data[:end].count(b'"') % 2 == 0
        assert end in (0, len(data)) or data[end - 1 : end] == b"\n"
    plain = text_samples.find_split_offsets(file, 0, count, multiline=False)
    assert all(end in (0, len(data)) or data[end - 1 : end] == b"\n" for end in plain)


def test_whole_records_and_lines_within_quotes():
    for text, whole in (
        (b'a\n"b\nc"\nd', b'a\n"b\nc"\n'),
        (b'a\n"b\nc', b"a\n"),
        (b"a", b""),
        (b'5" long\n"b\nc"\n"d\n', b'5" long\n"b\nc"\n'),
        (b'5" long\n"b\nc"d\ne', b'5" long\n"b\nc"d\n'),
    ):
        assert text[: quotes.find_last_line_end(text, b",")] == whole
    assert text_samples.has_multiline_values(b'a\n"b\nc"\n')
    assert not text_samples.has_multiline_values(b'a,"b ""c"""\nd\n')


def test_natural_order_redacted_urls_and_suffixes():
    paths = ["part-10", "part-2", "a", "part-2b"]
    assert sorted(paths, key=natural_sort_key) == ["a", "part-2", "part-2b", "part-10"]
    assert redact_url("ftp://me:secret@host/a?sig=1") == "ftp://host/a"
    assert redact_url("/a@b/c?d") == "/a@b/c?d"
    assert suffix_of("http://x/a.CSV.gz?sig=a.b") == ".csv"


def test_hive_keys_of_paths():
    paths = ["d/k=01/x=a%20b/0", "d/k=2/x=__HIVE_DEFAULT_PARTITION__/1"]
    keys, kinds, missing = hive_partitions.parse_hive_keys(paths, [])
    assert missing == {"x"}
    assert kinds == {"k": pl.String(), "x": pl.String()}
    assert keys[paths[0]] == (("k", "01"), ("x", "a b"))
    assert keys[paths[1]] == (("k", "2"), ("x", None))
    # A path without names has none of the values, as in pandas.
    keys, same, missing = hive_partitions.parse_hive_keys([*paths, "d/0"], [])
    assert (same, missing, keys["d/0"]) == (kinds, {"k", "x"}, (("k", None), ("x", None)))
    assert hive_partitions.parse_hive_keys(paths, ["k"])[1] == {"x": pl.String()}


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("2024-01-31", "datetime64[us]"),
        ("2024-01-31T10:00:00.123456", "datetime64[us]"),
        ("2024-01-31 10:00:00.123456789", "datetime64[ns]"),
        ("2024-01-31T10:00:00+02:00", "datetime64[us, UTC]"),
        ("01/31/2024 10:00:00.5", "datetime64[us]"),
    ],
)
def test_formats_of_times(written, kind):
    time_format = time_formats.find_format("t", pl.Series("t", [written, None]), None)
    times = time_format.parse(pl.Series("t", [written, None]))
    assert str(column_types.to_pandas_dtype(time_format.kind, nullable=True)) == kind
    assert times.dtype == time_format.kind
    stamp = pd.Timestamp(written)
    stamp = stamp if stamp.tz is None else stamp.tz_convert("UTC")
    assert times.to_pandas()[0] == stamp
    assert isinstance(time_formats.find_format("t", pl.Series("t", ["what", None]), None), Fault)


@pytest.fixture(scope="module")
def cluster():
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, num_workers=1, ram_gb_per_proc=1
    )
    yield client
    client.close()
    cluster.close()


@pytest.mark.cluster
def test_partitions_of_a_file_on_a_cluster(cluster, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(3_000_000)})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=500_000)
    assert active_cluster.count_threads() == active_cluster.count_processes() == 1
    assert active_cluster.get_memory_per_thread() == pytest.approx(1e9, rel=0.1)
    assert read(tmp_path / "a.parquet").npartitions == 1
    df = read(tmp_path / "a.parquet", partition_size="9MB")
    assert df.npartitions == 3
    assert df.x.sum().compute() == pytest.approx(frame.x.sum())
    assert len(df[df.x > 0.5]) == (frame.x > 0.5).sum()


@pytest.mark.cluster
def test_a_file_that_a_task_skips_is_reported_to_the_client(cluster, tmp_path):
    (tmp_path / "a.csv").write_text("n\n" + "1\n" * 5_000)
    (tmp_path / "b.csv").write_text("n\n" + "1\n" * 400_000 + "x\n" + "1\n" * 400_000)
    df = read(tmp_path, on_error="skip")
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        assert len(df) == 5_000
        deadline = time.monotonic() + 250  # it comes beside the result, not with it
        while not any(w.category is SkippedFile for w in record) and time.monotonic() < deadline:
            time.sleep(0.05)
    messages = [str(w.message) for w in record if w.category is SkippedFile]
    assert "b.csv: column 'n' holds 'x'" in messages[0]
