"""Invalid target names, links, templates, and the permissions of published files."""

from __future__ import annotations

import os
import socket
import stat

import dask
import dask.bag as db
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import RequestError, StorageError


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync"}):
        yield
    fsspec.filesystem("memory").store.clear()


def frame():
    return dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=2)


@pytest.mark.parametrize(
    "url", ["a::b", "./a::b", "simplecache::memory://a/b", "zip://x.csv::memory://a.zip"]
)
def test_a_chain_of_urls_is_refused(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    for call in (lambda: hyperplane.save(b"", url), lambda: hyperplane.load(url)):
        with pytest.raises(RequestError, match="without ::"):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["error", "overwrite"])
@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "link"])
def test_devices_pipes_and_sockets_are_not_replaced(tmp_path, kind, mode):
    """A save to /dev/null by root replaced the device by a file."""
    path = tmp_path / "out.parquet"
    if kind == "socket":
        opened = socket.socket(socket.AF_UNIX)
        opened.bind(str(path))
        opened.close()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/null")
    else:
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            pytest.skip("only root creates devices")
    before = path.stat()
    for obj in (frame(), frame().compute()):
        with pytest.raises(RequestError, match="not a device, pipe or socket"):
            hyperplane.save(obj, path, mode=mode)
    assert path.stat() == before
    with pytest.raises((OSError, RequestError), match="device, pipe or socket"):
        hyperplane.plan_shards([__file__], 1, plan=path)
    with pytest.raises(StorageError, match="device, pipe or socket"):
        hyperplane.load(path)  # reading a pipe would wait
    assert path.stat() == before


@pytest.mark.parametrize("url", ["memory://", "memory:///", "file:///", "/"])
def test_a_whole_store_is_refused(url):
    with pytest.raises(RequestError, match="not a whole store"):
        hyperplane.save(b"", url)


def test_the_current_folder_and_its_parents_are_refused(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("mine")
    monkeypatch.chdir(tmp_path / "here")
    for url in (".", "./", tmp_path, tmp_path / "here", "/proc", f"file://{tmp_path}"):
        for mode in ("error", "overwrite"):
            with pytest.raises(RequestError, match="not the current folder"):
                hyperplane.save(frame(), url, mode=mode)
    with pytest.raises(RequestError):
        hyperplane.save(frame(), "..", mode="overwrite")
    assert (tmp_path / "here" / "mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    hyperplane.save(frame(), "out")
    assert hyperplane.load("out").n.compute().to_list() == [1, 2]


def test_a_removed_current_folder_is_not_an_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert hyperplane.save(b"a", tmp_path / "a.bin").changed


def test_names_of_more_than_200_bytes_are_refused(tmp_path):
    for name in ("ü" * 101, "a" * 201):
        with pytest.raises(RequestError, match="at most 200 bytes"):
            hyperplane.save(frame(), tmp_path / name)
    for name in ("ü" * 100, "a" * 200):
        hyperplane.save(frame(), tmp_path / name)
        assert hyperplane.load(tmp_path / name).n.compute().to_list() == [1, 2]
        hyperplane.save("text", tmp_path / f"{name[:-10]}.txt")


def test_saving_to_a_symbolic_link_replaces_its_target(tmp_path):
    (tmp_path / "disk").mkdir()
    hyperplane.save(frame(), tmp_path / "disk" / "v1")
    (tmp_path / "latest").symlink_to(tmp_path / "disk" / "v1")
    assert not hyperplane.save(frame(), tmp_path / "latest").changed
    bag = db.from_sequence([1, 2, 3], npartitions=1)
    hyperplane.save(bag, tmp_path / "latest", mode="overwrite")
    assert (tmp_path / "latest").is_symlink()
    assert hyperplane.load(tmp_path / "disk" / "v1").compute() == [1, 2, 3]
    assert hyperplane.load(tmp_path / "latest").compute() == [1, 2, 3]
    assert not (tmp_path / ".latest.hyperplane").exists()
    (tmp_path / "file").symlink_to("disk/a.txt")  # the target does not exist yet
    hyperplane.save("a", tmp_path / "file", format="text")
    hyperplane.save("b", tmp_path / "file", format="text", mode="overwrite")
    assert (tmp_path / "file").is_symlink()
    assert (tmp_path / "disk" / "a.txt").read_text() == "b"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_published_files_have_the_permissions_of_new_files(tmp_path, umask):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "b.txt").write_text("b")
    (tmp_path / "source" / "b.txt").chmod(0o600)
    before = os.umask(umask)
    try:
        for mode in ("error", "overwrite"):
            hyperplane.save(frame() + (mode == "error"), tmp_path / "new" / "out", mode=mode)
            hyperplane.save(f"a{mode}", tmp_path / "new" / "a.txt", mode=mode)
            hyperplane.save(tmp_path / "source", tmp_path / "new" / "copy", mode=mode)
            hyperplane.save(tmp_path / "source" / "b.txt", tmp_path / "new" / "b.txt", mode=mode)
            for path in (tmp_path / "new").rglob("*"):
                if ".hyperplane" not in str(path):
                    most = 0o777 if path.is_dir() else 0o666
                    assert stat.S_IMODE(path.stat().st_mode) == most & ~umask, path
    finally:
        os.umask(before)


@pytest.mark.parametrize("base", ["disk", "memory"])
def test_a_template_is_filled_by_output_path(tmp_path, base):
    folder = str(tmp_path) if base == "disk" else "memory://templates"
    template = folder + "/out_{idx:05d}.parquet"
    rows = pd.DataFrame({"n": [1, 2]})
    for index in (0, 1):
        hyperplane.save(rows + index, hyperplane.output_path(template, index, 2))
    assert hyperplane.load(folder + "/out_00001.parquet").n.to_list() == [2, 3]
    with pytest.raises(RequestError, match="output_path"):
        hyperplane.save(rows, template)
    with pytest.raises(RequestError, match="output_path"):
        hyperplane.save(rows, folder + "/{}.parquet")
    with pytest.raises(RequestError):
        hyperplane.save(rows, hyperplane.output_path(folder + "/../out_{idx}.parquet", 0, 2))
    with pytest.raises(RequestError):
        hyperplane.save(rows, folder + "/../out.parquet")
    assert not list(tmp_path.parent.glob("out*"))


def test_a_field_in_the_name_is_the_index_of_the_shard(tmp_path):
    rows = pd.DataFrame({"n": [1, 2]})
    for index in (0, 1):
        result = hyperplane.save(rows + index, tmp_path / "output_{}.csv", shard=(index, 2))
        assert result.url == str(tmp_path / f"output_{index}.csv")
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["output_0.csv", "output_1.csv"]
    assert pd.read_csv(tmp_path / "output_1.csv").n.to_list() == [2, 3]
    assert not hyperplane.save(rows, tmp_path / "output_{}.csv", shard=(0, 2)).changed
    for name in ("{}-{}.csv", "{n}.csv", "{name}.csv", "../{}.csv"):
        with pytest.raises(RequestError, match="url = "):
            hyperplane.save(rows, tmp_path / name, shard=(0, 2))
    with pytest.raises(RequestError) as caught:
        hyperplane.save(rows, tmp_path / "{}.csv", shard=(0, 2), run="a")
    assert [(fault.where, fault.asked) for fault in caught.value.faults] == [("run", "'a'")]


def test_loading_a_template_is_refused_with_advice(tmp_path):
    for number in (0, 1):
        path = hyperplane.output_path(f"{tmp_path}/s_{{}}.parquet", number)
        hyperplane.save(pd.DataFrame({"a": [number]}), path)
    with pytest.raises(StorageError) as caught:
        hyperplane.load(f"{tmp_path}/s_{{}}.parquet")
    pattern = f"{tmp_path}/s_*.parquet"
    assert f"dataframe.read({pattern!r})" in str(caught.value)
    assert hyperplane.dataframe.read(pattern)["a"].sum().compute() == 1
