"""What is saved comes back as it was; to save it again writes nothing."""

from __future__ import annotations

import os
import pathlib

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, RequestError, StorageError
from hyperplane.storage.place import commits_of
from hyperplane.storage.target import target_of

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


@pytest.fixture(params=["disk", "memory"])
def base(request, tmp_path):
    """A folder with a difficult name, on a disk and on a store without renames."""
    if request.param == "disk":
        yield f"{tmp_path}/Flüge von heute"
        return
    yield "memory://tests/Flüge von heute"
    fsspec.filesystem("memory").store.clear()


def flights(rows=100, start=0):
    numbers = np.arange(start, start + rows)
    return pd.DataFrame(
        {
            "n": numbers,
            "carrier": pd.Categorical(np.array(["AA", "UA"])[numbers % 2], ["UA", "AA"]),
            "at": pd.date_range("2024-03-31", periods=rows, freq="h", tz="Europe/Berlin"),
            "delay": np.where(numbers % 7, numbers / 3, np.nan),
        },
        index=pd.Index(numbers * 2, name="key"),
    )


def parts_of(url):
    target = target_of(url, None)
    return sorted(commits_of(target).shelf.listing(target.path))


def test_a_dataframe_comes_back_with_types_and_index(base):
    frame = flights()
    df = dd.from_pandas(frame, npartitions=4)
    result = hyperplane.save(df, f"{base}/out")
    assert (result.files, result.rows, result.written, result.complete) == (4, 100, 4, True)
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), frame)
    chosen = hyperplane.load(f"{base}/out")[["delay"]].compute()
    pd.testing.assert_frame_equal(chosen, frame[["delay"]])


def test_plain_readers_find_the_parts_and_nothing_else(tmp_path):
    frame = flights().assign(carrier="AA").reset_index(drop=True)
    out = str(tmp_path / "out")
    hyperplane.save(dd.from_pandas(frame, npartitions=3), out)
    with dask.config.set({"dataframe.convert-string": False}):
        assert len(pd.read_parquet(out)) == 100
        assert len(dd.read_parquet(out).compute()) == 100
        assert len(dd.read_parquet(out, filesystem="arrow").compute()) == 100
    assert pl.scan_parquet(out).select(pl.len()).collect().item() == 100
    assert hyperplane.dataframe.read(out).compute().n.sum() == frame.n.sum()


def test_the_same_again_writes_nothing_in_any_mode(base):
    df = dd.from_pandas(flights(), npartitions=4)
    hyperplane.save(df, f"{base}/out")
    before = parts_of(f"{base}/out")
    for mode in ("error", "overwrite", "skip"):
        result = hyperplane.save(df, f"{base}/out", mode=mode)
        assert (result.changed, result.files, result.rows) == (False, 4, 100)
    assert parts_of(f"{base}/out") == before


def test_modes(base):
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
def test_text_forms_of_a_dataframe(base, form):
    frame = pd.DataFrame({"n": [1, 2, 3, 4], "text": ["a", "ü\n", 'q"', "d"]})
    hyperplane.save(dd.from_pandas(frame, npartitions=2), f"{base}/out", format=form)
    made = hyperplane.load(f"{base}/out").compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(made, frame)


def test_a_bag(base):
    items = [{"n": n, "text": f"ü{n}\u2028\x85\n"} for n in range(20)]
    hyperplane.save(db.from_sequence(items, npartitions=4), f"{base}/bag")
    assert hyperplane.load(f"{base}/bag").compute() == items
    with pytest.raises(TypeError, match="JSON"):
        hyperplane.save(db.from_sequence([{1, 2}]), f"{base}/odd")
    lines = ["a", "b c"]
    hyperplane.save(db.from_sequence(lines), f"{base}/lines", format="text")
    assert hyperplane.load(f"{base}/lines").compute() == lines


@pytest.mark.parametrize("kind", ["array", "dataset", "dataarray"])
def test_arrays(base, kind):
    values = np.arange(12.0).reshape(3, 4)
    made = {
        "array": da.from_array(values, chunks=(2, 2)),
        "dataset": xr.Dataset({"v": (("y", "x"), values)}, coords={"x": range(4)}),
        "dataarray": xr.DataArray(values, dims=("y", "x"), name="v"),
    }[kind]
    hyperplane.save(made, f"{base}/v.zarr")
    for change in (0, 1):  # the names of the chunks stay the same
        obj = made + change
        if change:
            with pytest.raises(OutputExists):
                hyperplane.save(obj, f"{base}/v.zarr")
            hyperplane.save(obj, f"{base}/v.zarr", mode="overwrite")
        again = hyperplane.load(f"{base}/v.zarr")
        if kind == "array":
            assert (again.compute() == values + change).all()
        else:
            xr.testing.assert_identical(again.compute(), obj)


def test_a_chunk_that_was_deleted_is_no_silent_zero(tmp_path):
    hyperplane.save(da.ones((4, 4), chunks=2), str(tmp_path / "a.zarr"))
    chunk = next(file for file in (tmp_path / "a.zarr" / "c").rglob("*") if file.is_file())
    chunk.unlink()
    with pytest.raises(StorageError, match="1 files are missing"):
        hyperplane.load(str(tmp_path / "a.zarr"))


ONE = {
    "a.parquet": flights(),
    "b.parquet": pl.DataFrame({"n": [1, None]}),
    "c.parquet": pa.table({"n": [1, 2]}),
    "d.csv": pd.DataFrame({"n": [1, 2]}),
    "e.npy": np.arange(6).reshape(2, 3),
    "f.json": {"b": [1, 2.5, None], "a": "ü"},
    "g.txt": "zwei\nZeilen",
    "h.bin": b"\x00\x01",
}


@pytest.mark.parametrize("name", sorted(ONE))
def test_one_file_comes_back(base, name):
    obj = ONE[name]
    assert hyperplane.save(obj, f"{base}/{name}").written == 1
    assert not hyperplane.save(obj, f"{base}/{name}").changed
    made = hyperplane.load(f"{base}/{name}")
    if isinstance(obj, pd.DataFrame):
        pd.testing.assert_frame_equal(made, obj)
    elif isinstance(obj, (pl.DataFrame, pa.Table)):
        want = obj.to_pandas()
        pd.testing.assert_frame_equal(made, want)
    elif isinstance(obj, np.ndarray):
        assert (made == obj).all()
    else:
        assert made == obj


def test_a_figure_is_the_same_file_each_time(tmp_path):
    from matplotlib.figure import Figure

    for name in ("a.png", "a.svg"):
        figure = Figure()
        figure.subplots().plot([1, 2])
        assert hyperplane.save(figure, tmp_path / name).written == 1
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_another_file_is_refused_replaced_or_kept(base):
    url = f"{base}/a.json"
    hyperplane.save({"a": 1}, url)
    with pytest.raises(OutputExists):
        hyperplane.save({"a": 2}, url)
    assert not hyperplane.save({"a": 2}, url, mode="skip").changed
    assert hyperplane.load(url) == {"a": 1}
    hyperplane.save({"a": 2}, url, mode="overwrite")
    assert hyperplane.load(url) == {"a": 2}


def test_files_and_folders_of_this_machine(base, tmp_path):
    folder = tmp_path / "mine"
    (folder / "deep er").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep er" / "ü.txt").write_text("b")
    assert hyperplane.save(folder, f"{base}/copy").files == 2
    assert not hyperplane.save(folder, f"{base}/copy").changed
    assert parts_of(f"{base}/copy") == ["a.txt", "deep er/ü.txt"]
    assert hyperplane.load(f"{base}/copy/deep er/ü.txt") == "b"
    with pytest.raises(StorageError, match="load each by its own URL"):
        hyperplane.load(f"{base}/copy")
    assert hyperplane.save(folder / "a.txt", f"{base}/b.txt").nbytes == 1
    with pytest.raises(RequestError, match="a file or folder with files in it"):
        hyperplane.save(pathlib.Path("nowhere"), f"{base}/c")


def test_the_name_of_a_file_is_not_taken_for_its_content(tmp_path):
    (tmp_path / "model.bin").write_text("weights")
    with pytest.raises(RequestError, match=r"write pathlib\.Path"):
        hyperplane.save(str(tmp_path / "model.bin"), tmp_path / "copy.txt")


def test_a_pickle_is_opened_only_for_who_trusts_it(tmp_path):
    import joblib

    joblib.dump({"a": 1}, tmp_path / "m.joblib")
    with pytest.raises(RequestError, match="runs code"):
        hyperplane.load(tmp_path / "m.joblib")
    assert hyperplane.load(tmp_path / "m.joblib", trusted=True) == {"a": 1}


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one(base, rows):
    frame = flights(rows).drop(columns="carrier")  # Parquet keeps no categories without rows
    hyperplane.save(dd.from_pandas(frame, npartitions=1), f"{base}/out")
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), frame)


def test_a_foreign_folder_is_read_and_replaced(base):
    target = target_of(f"{base}/out", None)
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


def test_who_comes_second_is_told(base, monkeypatch):
    mine = dd.from_pandas(flights(), npartitions=2)
    theirs = dd.from_pandas(flights(start=10), npartitions=2)

    def slow(part):
        if not done:
            done.append(hyperplane.save(theirs, f"{base}/out"))
        return part

    done = []
    with pytest.raises(OutputConflict, match="what they saved stands"):
        hyperplane.save(mine.map_partitions(slow, meta=mine._meta), f"{base}/out")
    assert done[0].changed
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), flights(start=10))
    left = commits_of(target_of(f"{base}/out", None)).shelf.listing(
        target_of(f"{base}/out", None).beside
    )
    assert not [name for name in left if name.startswith("attempt-")]


def test_a_failing_partition_leaves_what_was_there(base):
    df = dd.from_pandas(flights(), npartitions=3)
    hyperplane.save(df, f"{base}/out")

    def fail(part):
        if part.n.max() > 90:
            raise ValueError("no such day")
        return part.assign(n=0)

    with pytest.raises(ValueError, match="no such day"):
        hyperplane.save(df.map_partitions(fail, meta=df._meta), f"{base}/out", mode="overwrite")
    pd.testing.assert_frame_equal(hyperplane.load(f"{base}/out").compute(), flights())


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


@pytest.mark.parametrize("mode", ["folder", "rights"])
def test_a_place_that_cannot_be_written_fails_before_anything_is_computed(tmp_path, mode):
    computed = []

    def watched(part):
        computed.append(1)
        return part

    df = dd.from_pandas(flights(), npartitions=2)
    df = df.map_partitions(watched, meta=df._meta)
    computed.clear()
    if mode == "folder":
        (tmp_path / "file").write_text("")
        url = tmp_path / "file" / "out"
    else:
        url = pathlib.Path("/proc/1/out")
    with pytest.raises(StorageError) as caught:
        hyperplane.save(df, url)
    assert str(url.parent) in str(caught.value)
    assert not computed


def test_all_faults_of_a_request_at_once(tmp_path):
    with pytest.raises(RequestError) as caught:
        hyperplane.save(
            dd.from_pandas(flights(), npartitions=1), tmp_path / "o", mode="w", format="parq",
            shard=(3, 3),
        )  # fmt: skip
    assert [fault.where for fault in caught.value.faults] == ["mode", "shard", "format"]
    assert "did you mean 'parquet'" in str(caught.value)
    for url in ("", "a/*/b", "/data/../etc", "/", "memory://x/../y"):
        with pytest.raises(RequestError):
            hyperplane.save(b"", url)
    with pytest.raises(RequestError, match="object: allowed is a Dask dataframe"):
        hyperplane.save(object(), tmp_path / "o")


def test_secrets_are_not_shown():
    with pytest.raises(RequestError) as caught:
        hyperplane.save(b"", "nowhere://me:s3cret@host/x?sig=s3cret", password="s3cret")
    assert "nowhere" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(target_of("memory://a/b", {"token": "s3cret"}))


def test_what_is_shown(tmp_path):
    result = hyperplane.save(dd.from_pandas(flights(), npartitions=2), tmp_path / "out")
    assert "100 rows in 2 files" in str(result)
    assert str(tmp_path / "out") in result._repr_html_()
    assert os.sep in result.url
