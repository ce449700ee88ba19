"""Objects saved as one file, and local files and folders."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from saving_cases import PLACES, flights, in_this_thread, parts_of, places

import hyperplane
from hyperplane.errors import OutputExists, RequestError, StorageError

_here = pytest.fixture(autouse=True)(in_this_thread)
base = pytest.fixture(params=PLACES)(places)


ONE = {
    "a.parquet": flights(),
    "b.parquet": pl.DataFrame({"n": [1, None]}),
    "c.parquet": pa.table({"n": [1, 2]}),
    "d.csv": pd.DataFrame({"n": [1, 2]}),
    "e.npy": np.arange(6).reshape(2, 3),
    "f.json": {"b": [1, 2.5, None], "a": "ü"},
    "g.txt": "zwei\nZeilen",
    "i.avro": pl.DataFrame({"n": [1, None], "text": ["ü", None]}),
    "j.avro": pa.table({"n": [1, 2]}),
    "h.bin": b"\x00\x01",
}


@pytest.mark.parametrize("name", sorted(ONE))
def test_one_file_is_loaded_unchanged(base, name):
    obj = ONE[name]
    saved = hyperplane.save(obj, f"{base}/{name}")
    assert (saved.written, saved.published) == (1, True)
    assert not hyperplane.save(obj, f"{base}/{name}").changed
    loaded = hyperplane.load(f"{base}/{name}")
    if isinstance(obj, pd.DataFrame):
        pd.testing.assert_frame_equal(loaded, obj)
    elif isinstance(obj, (pl.DataFrame, pa.Table)):
        # Integers stay integers if some are missing.
        want = obj.to_pandas()
        if want["n"].isna().any():
            want = want.astype({"n": "Int64"})
        pd.testing.assert_frame_equal(loaded, want)
    elif isinstance(obj, np.ndarray):
        assert (loaded == obj).all()
    else:
        assert loaded == obj


def test_figures_are_saved_as_images(tmp_path):
    from matplotlib.figure import Figure

    for name in ("a.png", "a.svg"):
        figure = Figure()
        figure.subplots().plot([1, 2])
        assert hyperplane.save(figure, tmp_path / name).written == 1
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_modes_with_an_existing_file(base):
    url = f"{base}/a.json"
    hyperplane.save({"a": 1}, url)
    with pytest.raises(OutputExists):
        hyperplane.save({"a": 2}, url)
    assert not hyperplane.save({"a": 2}, url, mode="skip").changed
    assert hyperplane.load(url) == {"a": 1}
    hyperplane.save({"a": 2}, url, mode="overwrite")
    assert hyperplane.load(url) == {"a": 2}


def test_local_files_and_folders_are_copied(base, tmp_path):
    folder = tmp_path / "mine"
    (folder / "deep er").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep er" / "ü.txt").write_text("b")
    assert hyperplane.save(folder, f"{base}/copy").files == 2
    assert not hyperplane.save(folder, f"{base}/copy").changed
    assert parts_of(f"{base}/copy") == ["a.txt", "deep er/ü.txt"]
    assert hyperplane.load(f"{base}/copy/deep er/ü.txt") == "b"
    with pytest.raises(StorageError, match="load each file by its URL"):
        hyperplane.load(f"{base}/copy")
    assert hyperplane.save(folder / "a.txt", f"{base}/b.txt").nbytes == 1
    with pytest.raises(RequestError, match="a folder with files in it"):
        hyperplane.save(pathlib.Path("nowhere"), f"{base}/c")


def test_a_folder_with_a_renamed_file_is_another_folder(base, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    hyperplane.save(folder, f"{base}/copy")
    (folder / "a.txt").rename(folder / "b.txt")
    with pytest.raises(OutputExists):
        hyperplane.save(folder, f"{base}/copy")
    assert hyperplane.save(folder, f"{base}/copy", mode="overwrite").published
    assert parts_of(f"{base}/copy") == ["b.txt"]
    assert not hyperplane.save(folder, f"{base}/copy").changed


def test_the_name_of_an_existing_file_is_not_saved_as_text(tmp_path):
    (tmp_path / "model.bin").write_text("weights")
    with pytest.raises(RequestError, match=r"pass pathlib\.Path"):
        hyperplane.save(str(tmp_path / "model.bin"), tmp_path / "copy.txt")


def test_a_skops_model_with_a_class_of_the_user_is_loaded_only_if_trusted(tmp_path):
    from sklearn.preprocessing import FunctionTransformer

    hyperplane.save(FunctionTransformer(pathlib.Path), tmp_path / "m.skops")
    with pytest.raises(RequestError) as caught:
        hyperplane.load(tmp_path / "m.skops")
    (fault,) = caught.value.faults
    assert (fault.where, fault.asked) == ("trusted", "False")
    assert "pathlib" in fault.allowed
    assert hyperplane.load(tmp_path / "m.skops", trusted=True).func is pathlib.Path


def test_a_joblib_model_is_loaded_only_if_trusted(tmp_path):
    import joblib

    joblib.dump({"a": 1}, tmp_path / "m.joblib")
    with pytest.raises(RequestError, match="runs code"):
        hyperplane.load(tmp_path / "m.joblib")
    assert hyperplane.load(tmp_path / "m.joblib", trusted=True) == {"a": 1}


def test_a_skops_model_with_other_types_is_loaded_only_if_trusted(tmp_path):
    import textwrap

    from sklearn.preprocessing import FunctionTransformer

    hyperplane.save(FunctionTransformer(textwrap.dedent), tmp_path / "m.skops")
    with pytest.raises(RequestError, match=r"textwrap\.dedent") as caught:
        hyperplane.load(tmp_path / "m.skops")
    assert caught.value.faults[0].where == "trusted"
    assert hyperplane.load(tmp_path / "m.skops", trusted=True).func is textwrap.dedent
