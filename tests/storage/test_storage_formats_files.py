"""Files are reproducible, have content types, and are checked when they are read."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import types
import zipfile

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from matplotlib.figure import Figure
from numpy.lib import format as npy
from scale import FULL

import hyperplane
from hyperplane.errors import ReadError
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.object_kinds import list_formats


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png", ".jpg"])
def test_equal_figures_drawn_at_different_times_are_equal_files(tmp_path, monkeypatch, suffix):
    for year in (2024, 2025):
        # The variable by which matplotlib sets the creation date.
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str((year - 1970) * 31_556_952))
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1, 2], marker="o")
        axes.fill_between(
            [0, 1], [1, 2], hatch="/"
        )  # clip paths and hatches have random ids in SVG
        result = hyperplane.save(figure, tmp_path / f"a{suffix}")
        assert result.changed == (year == 2024)


def model():
    # Imported here, as pytest imports this file in each of its processes.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = np.arange(40.0).reshape(10, 4) % 7
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, np.arange(10) % 2)


@pytest.mark.slow
def test_equal_models_saved_at_different_times_are_equal_files(tmp_path, monkeypatch):
    hyperplane.save(model(), tmp_path / "m.skops")
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert not hyperplane.save(model(), tmp_path / "m.skops").changed
    rows = np.arange(40.0).reshape(10, 4) % 7
    again = hyperplane.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.predict_proba(rows), model().predict_proba(rows))
    with zipfile.ZipFile(tmp_path / "m.skops") as opened:
        assert {member.date_time for member in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert hyperplane.save(model().steps[0][1], tmp_path / "m.skops", mode="overwrite").changed


@pytest.mark.skipif(not FULL, reason="other models are saved at different times: at full scale")
@pytest.mark.process
def test_equal_models_saved_by_different_processes_are_equal_files(tmp_path):
    script = (
        "import hyperplane, numpy as np\n"
        "from sklearn.ensemble import RandomForestClassifier\n"
        "rows = np.arange(40.0).reshape(10, 4) % 7\n"
        "model = RandomForestClassifier(2, random_state=0).fit(rows, np.arange(10) % 2)\n"
        f"print(hyperplane.save(model, {str(tmp_path / 'm.skops')!r}).changed)\n"
    )
    exec(script, {})
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


class Recording(MemoryFileSystem):
    """Record the content settings of each file, as Azure stores receive them."""

    protocol = ("abfs", "az")
    cachable = False
    file_options: dict = {}  # noqa: RUF012
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.rpartition("://")[2].strip("/") if path.strip("/") else ""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self.file_options[path] = kwargs
        return super().pipe_file(path, value, mode=mode)


@pytest.fixture
def azure(monkeypatch):
    blob = types.ModuleType("azure.storage.blob")
    blob.ContentSettings = lambda content_type: ("settings", content_type)
    for name in ("azure", "azure.storage"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "azure.storage.blob", blob)
    monkeypatch.setitem(_registry, "az", Recording)
    yield Recording
    Recording.file_options.clear()
    Recording.store.clear()


def test_azure_gets_the_content_type(azure):
    hyperplane.save({"a": 1}, "az://container/a.json")
    hyperplane.save("<p>", "az://container/b.html", mode="overwrite")
    df = dd.from_pandas(pd.DataFrame({"n": [1]}), npartitions=1)
    hyperplane.save(df, "az://container/out")
    file_options = {path.rpartition("/")[2]: how for path, how in azure.file_options.items()}
    assert file_options["a.json"] == {"content_settings": ("settings", "application/json")}
    assert file_options["b.html"] == {"content_settings": ("settings", "text/html")}
    (part,) = (name for name in file_options if name.endswith(".parquet"))
    assert file_options[part] == {
        "content_settings": ("settings", "application/vnd.apache.parquet")
    }
    assert hyperplane.load("az://container/out").n.compute().to_list() == [1]


@pytest.mark.parametrize(
    ("kind", "form"),
    [(kind, form) for kind in ("dataframe", "bag") for form in list_formats(kind)],
)
@pytest.mark.parametrize("base", ["disk", "memory"])
def test_a_flipped_bit_in_a_part_is_an_error_that_names_it(tmp_path, form, kind, base):
    rows = [{"n": 7, "text": "plain"}] * 50
    obj = db.from_sequence(rows, npartitions=2)
    if form == "text":
        obj = obj.map(str)
    if kind == "dataframe":
        obj = dd.from_pandas(pd.DataFrame(rows), npartitions=2)
    url = str(tmp_path / "out") if base == "disk" else f"memory:///flips/{tmp_path.name}"
    hyperplane.save(obj, url, format=form)
    loaded = hyperplane.load(url)
    loaded.compute()
    store_files = StoreFiles(
        Store("file", "file:///", {}) if base == "disk" else Store("memory", url, {})
    )
    folder = url.removeprefix("memory://")
    name = max(store_files.list_files(folder))
    data = bytearray(store_files.get(f"{folder}/{name}"))
    place = len(data) // 2 if form != "parquet" else data.index(b"plain")
    data[place] ^= 1
    store_files.put(f"{folder}/{name}", bytes(data))
    for again in (loaded, hyperplane.load(url)):
        with pytest.raises(ReadError, match="damaged") as caught:
            again.compute()
        assert caught.value.url.endswith(name)


@pytest.mark.parametrize("shape", [(10**11,), (4, 10**10), (3,)])
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_an_npy_file_shorter_than_its_header_declares_is_an_error(tmp_path, shape, version):
    file = io.BytesIO()
    header = {"shape": shape, "fortran_order": False, "descr": "<f8"}
    write = {(1, 0): npy.write_array_header_1_0, (2, 0): npy.write_array_header_2_0}[version]
    write(file, header)
    (tmp_path / "a.npy").write_bytes(file.getvalue() + bytes(23))
    with pytest.raises(ReadError, match=r"a\.npy.*shorter than its header declares.* 23 B"):
        hyperplane.load(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 10**9)),
        np.array(5.0),
        np.zeros(3, dtype=[("\u00e4", "f4"), ("b", "i8")]),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([""]),
    ],
)
def test_npy_files_written_by_numpy_are_loaded(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    found = hyperplane.load(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "avro", "orc"])
def test_categories_of_numbers_are_loaded_as_numbers(tmp_path, form):
    frame = pd.DataFrame({"n": pd.Categorical([1, 2, 1]), "s": pd.Categorical(["a", "b", "a"])})
    hyperplane.save(frame, tmp_path / f"a.{form}")
    loaded = hyperplane.load(tmp_path / f"a.{form}")
    assert (loaded["n"].dtype, loaded["n"].to_list()) == ("int64", [1, 2, 1])
    assert loaded["s"].dtype == ("category" if form == "parquet" else "str")
