"""Saves do not remove files that are no data, nor those that their rows are read from."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import OutputExists

ROWS = pd.DataFrame({"n": range(10)})


def _save_rows(path, **options):
    hyperplane.save(dd.from_pandas(ROWS, npartitions=2), path, format="parquet", **options)


def _save_array(path, **options):
    hyperplane.save(da.zeros((4, 4)), path, **options)


def _save_shard(path, **options):
    hyperplane.save(ROWS, path, format="parquet", shard=(0, 2), run="a", **options)


def _save_folder(path, **options):
    source = path.parent / "source"
    source.mkdir(exist_ok=True)
    (source / "a.bin").write_bytes(b"a")
    hyperplane.save(source, path, **options)


@pytest.fixture
def project(tmp_path):
    """Return a folder with notes and code, and its content."""
    folder = tmp_path / "project.zarr"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("notes")
    (folder / "sub" / "code.py").write_text("code")
    return folder


def _content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


MODES = ("error", "overwrite", "skip")
SAVES = (_save_rows, _save_array, _save_shard, _save_folder)


@pytest.mark.parametrize(
    ("save", "mode"), [(_save_rows, "append"), *((save, mode) for save in SAVES for mode in MODES)]
)
def test_a_folder_with_other_files_is_kept(project, save, mode):
    before = _content(project)
    with pytest.raises(OutputExists, match=r"notes\.txt, sub/code\.py; .* move them away"):
        save(project, mode=mode)
    assert _content(project) == before


def test_a_file_that_was_added_to_an_output_is_kept(tmp_path):
    _save_rows(tmp_path / "out")
    (tmp_path / "out" / "read me.md").write_text("rows of June")
    with pytest.raises(OutputExists, match=r"read me\.md; "):
        _save_rows(tmp_path / "out", mode="overwrite")
    assert (tmp_path / "out" / "read me.md").read_text() == "rows of June"


@pytest.mark.parametrize(
    "names", [["a.csv.gz", "_SUCCESS", ".a.crc"], ["part.0.parquet", "_metadata"], ["x/zarr.json"]]
)
def test_data_of_other_programs_is_replaced(tmp_path, names):
    for name in names:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(b"")
    _save_rows(tmp_path / "out", mode="overwrite")
    assert hyperplane.load(tmp_path / "out").n.compute().to_list() == list(range(10))


@pytest.mark.parametrize("target", ["in", "in/1.csv", "."])
def test_rows_do_not_replace_the_files_that_they_are_read_from(tmp_path, target):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        ROWS.to_csv(folder / f"{number}.csv", index=False)
    df = hyperplane.dataframe.read(folder)
    before = _content(folder)
    with pytest.raises(OutputExists, match=r"read from, .* another URL"):
        hyperplane.save(df[df.n > 3], tmp_path / target, format="csv", mode="overwrite")
    assert _content(folder) == before
    hyperplane.save(df, tmp_path / "in-2", format="csv", mode="overwrite")
    assert len(hyperplane.load(tmp_path / "in-2")) == 20
