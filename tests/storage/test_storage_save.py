"""Saved objects are loaded unchanged; saving them again writes nothing."""

from __future__ import annotations

import dask
import dask.bag as db
import dask.dataframe as dd
import fsspec
import pandas as pd
import polars as pl
import pytest
from saving_cases import PLACES, flights, in_this_thread, parts_of, places

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, ReadError
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.storage.commit_protocol import commit_protocol_for

_here = pytest.fixture(autouse=True)(in_this_thread)
base = pytest.fixture(params=PLACES)(places)


def test_a_dataframe_is_loaded_with_types_and_index(base):
    frame = flights()
    df = dd.from_pandas(frame, npartitions=4)
    result = hyperplane.save(df, f"{base}/out")
    assert (result.files, result.rows, result.written, result.complete) == (4, 100, 4, True)
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), frame)
    chosen = hyperplane.load(f"{base}/out")[["delay"]].compute()
    pd.testing.assert_frame_equal(chosen, frame[["delay"]])


def test_other_readers_find_only_the_parts(tmp_path):
    frame = flights().assign(carrier="AA").reset_index(drop=True)
    out = str(tmp_path / "out")
    hyperplane.save(dd.from_pandas(frame, npartitions=3), out)
    with dask.config.set({"dataframe.convert-string": False}):
        assert len(pd.read_parquet(out)) == 100
        assert len(dd.read_parquet(out).compute()) == 100
        assert len(dd.read_parquet(out, filesystem="arrow").compute()) == 100
    assert pl.scan_parquet(out).select(pl.len()).collect().item() == 100
    assert hyperplane.dataframe.read(out).compute().n.sum() == frame.n.sum()


def test_saving_equal_content_again_writes_nothing_in_any_mode(base):
    df = dd.from_pandas(flights(), npartitions=4)
    hyperplane.save(df, f"{base}/out")
    before = parts_of(f"{base}/out")
    for mode in ("error", "overwrite", "skip"):
        result = hyperplane.save(df, f"{base}/out", mode=mode)
        assert (result.changed, result.files, result.rows) == (False, 4, 100)
    assert parts_of(f"{base}/out") == before


def test_each_mode_with_other_content(base):
    df = dd.from_pandas(flights(), npartitions=4)
    other = dd.from_pandas(flights(start=50), npartitions=4)
    hyperplane.save(df, f"{base}/out")
    with pytest.raises(OutputExists, match="mode='overwrite'"):
        hyperplane.save(other, f"{base}/out")
    with pytest.raises(OutputExists):
        hyperplane.save(df.repartition(npartitions=2), f"{base}/out")
    assert not hyperplane.save(other, f"{base}/out", mode="skip").changed
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), flights())
    assert hyperplane.save(other, f"{base}/out", mode="append").files == 8
    assert hyperplane.load(f"{base}/out").n.compute().to_list() == [*range(100), *range(50, 150)]
    assert hyperplane.save(other, f"{base}/out", mode="overwrite").files == 4
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), flights(start=50))
    assert len(parts_of(f"{base}/out")) == 4


def test_only_parts_that_differ_are_written(base):
    frame = flights()
    hyperplane.save(dd.from_pandas(frame, npartitions=10), f"{base}/out")
    before = set(parts_of(f"{base}/out"))
    frame.loc[frame.index[55], "n"] = -1
    result = hyperplane.save(dd.from_pandas(frame, npartitions=10), f"{base}/out", mode="overwrite")
    assert (result.written, result.files) == (1, 10)
    assert len(before & set(parts_of(f"{base}/out"))) == 9
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), frame)


@pytest.mark.parametrize("form", ["csv", "jsonl", "tsv"])
def test_a_dataframe_round_trips_in_text_formats(base, form):
    frame = pd.DataFrame({"n": [1, 2, 3, 4], "text": ["a", "ü\n", 'q"', "d"]})
    hyperplane.save(dd.from_pandas(frame, npartitions=2), f"{base}/out", format=form)
    loaded = hyperplane.load(f"{base}/out").compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(loaded, frame)


def test_bags_of_records_and_lines_round_trip(base):
    items = [{"n": n, "text": f"ü{n}\u2028\x85\n"} for n in range(20)]
    hyperplane.save(db.from_sequence(items, npartitions=4), f"{base}/bag")
    assert hyperplane.load(f"{base}/bag").compute() == items
    with pytest.raises(TypeError, match="JSON"):
        hyperplane.save(db.from_sequence([{1, 2}]), f"{base}/odd")
    lines = ["a", "b c"]
    hyperplane.save(db.from_sequence(lines), f"{base}/lines", format="text")
    assert hyperplane.load(f"{base}/lines").compute() == lines


@pytest.mark.parametrize("rows", [0, 1])
def test_dataframes_of_zero_and_one_row_round_trip(base, rows):
    frame = flights(rows).drop(columns="carrier")  # Parquet keeps no categories without rows
    hyperplane.save(dd.from_pandas(frame, npartitions=1), f"{base}/out")
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), frame)


def test_a_foreign_folder_is_read_and_replaced(base):
    target = resolve_target(f"{base}/out", None)
    system = target.store.system
    system.makedirs(target.path, exist_ok=True)
    with system.open(f"{target.path}/x.csv", "wb") as opened:
        opened.write(b"n\n1\n2\n")
    assert hyperplane.load(f"{base}/out").n.compute().to_list() == [1, 2]
    df = dd.from_pandas(pd.DataFrame({"n": [3]}), npartitions=1)
    with pytest.raises(OutputExists):
        hyperplane.save(df, f"{base}/out")
    hyperplane.save(df, f"{base}/out", mode="overwrite")
    assert hyperplane.load(f"{base}/out").n.compute().to_list() == [3]


def test_the_second_writer_gets_an_error(base, monkeypatch):
    mine = dd.from_pandas(flights(), npartitions=2)
    theirs = dd.from_pandas(flights(start=10), npartitions=2)

    def slow(part):
        if not done:
            done.append(hyperplane.save(theirs, f"{base}/out"))
        return part

    done = []
    with pytest.raises(OutputConflict, match="its version remains"):
        hyperplane.save(mine.map_partitions(slow, meta=mine._meta), f"{base}/out")
    assert done[0].changed
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), flights(start=10))
    left = commit_protocol_for(resolve_target(f"{base}/out", None)).store_files.list_files(
        resolve_target(f"{base}/out", None).metadata_folder
    )
    assert not [name for name in left if name.startswith("attempt-")]


def test_a_failing_partition_keeps_the_previous_version(base):
    df = dd.from_pandas(flights(), npartitions=3)
    hyperplane.save(df, f"{base}/out")

    def fail(part):
        if part.n.max() > 90:
            raise ValueError("no such day")
        return part.assign(n=0)

    with pytest.raises(ValueError, match="no such day"):
        hyperplane.save(df.map_partitions(fail, meta=df._meta), f"{base}/out", mode="overwrite")
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), flights())


@pytest.mark.slow
def test_a_flipped_bit_is_an_error(tmp_path):
    hyperplane.save(dd.from_pandas(flights(5000), npartitions=1), str(tmp_path / "out"))
    (part,) = (tmp_path / "out").iterdir()
    whole = part.read_bytes()
    for place in range(100, len(whole) // 2, 997):
        data = bytearray(whole)
        data[place] ^= 1
        part.write_bytes(data)
        with pytest.raises(OSError, match="damaged"):
            hyperplane.load(str(tmp_path / "out")).compute()
    part.write_bytes(whole[:-1])
    with pytest.raises(OSError, match=r"bytes|damaged"):
        hyperplane.load(str(tmp_path / "out")).compute()


def test_a_parquet_part_that_was_replaced_is_an_error(base):
    hyperplane.save(dd.from_pandas(pd.DataFrame({"a": range(9)}), npartitions=1), f"{base}/out")
    system, folder = fsspec.url_to_fs(f"{base}/out")
    (part,) = system.glob(f"{folder}/*.parquet")
    with system.open(part, "wb") as opened:
        pd.DataFrame({"a": [5]}).to_parquet(opened)
    with pytest.raises(ReadError, match=r"it has \d+ bytes, but \d+ were saved; save it again"):
        hyperplane.load(f"{base}/out").compute()
