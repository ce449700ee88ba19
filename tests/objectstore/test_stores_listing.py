"""The files found for paths, globs, folders, and URLs."""

import os
import pickle
import threading
from pathlib import Path

import fsspec
import pytest
from dask.base import tokenize
from fsspec.implementations.memory import MemoryFileSystem

from hyperplane.errors import RequestError
from hyperplane.objectstore import listing
from hyperplane.objectstore.listing import (
    find_entries,
    find_files,
    natural_sort_key,
    resolve_location,
)
from hyperplane.objectstore.locations import File, Folder, Store


@pytest.fixture
def folder(tmp_path):
    for name in ("part-10.csv", "part-2.csv", "day=1/a.csv", "day=1/_tmp/b.csv", "_SUCCESS"):
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name}\n")
    return tmp_path / "data"


class OddStore(MemoryFileSystem):
    """A store with incomplete metadata and without range requests, which fails on demand."""

    protocol = "odd"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    #: Whether listings have no sizes, and whether single files have none.
    mute: tuple = ()
    barrier = None

    def __init__(self, key="", **options):
        super().__init__(**options)
        self.key = key

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("odd://", "memory://"))

    def find(self, path, detail=False, **options):
        found = super().find(path, detail=True, **options)
        return {name: self._without_size("lists", entry) for name, entry in found.items()}

    def info(self, path, **options):
        if "forbidden" in path:
            where = f"{path} at https://me:pw@host/a.csv?signature=abc"
            raise RuntimeError(f"{self.key} may not read {where}")
        if type(self).barrier is not None:
            type(self).barrier.wait(timeout=250)
        return self._without_size("files", super().info(path, **options))

    def _without_size(self, where, entry):
        return {**entry, "size": None} if where in type(self).mute else entry

    def cat_file(self, path, start=None, end=None, **options):
        return super().cat_file(path)


@pytest.fixture
def odd():
    fsspec.register_implementation("odd", OddStore, clobber=True)
    store = OddStore()
    store.pipe({"/d/a.csv": b"n\n1\n", "/d/b.csv": b"n\n22\n"})
    yield store
    OddStore.store.clear()
    OddStore.pseudo_dirs[:] = [""]
    OddStore.mute, OddStore.barrier = (), None


def names(files, folder):
    return [os.path.relpath(file.path, folder) for file in files]


def faults(urls, options=None):
    with pytest.raises(RequestError) as caught:
        find_files(urls, options)
    assert {fault.where for fault in caught.value.faults} == {"urls"}
    return caught.value.faults


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        ("", ["day=1/a.csv", "part-2.csv", "part-10.csv"]),
        ("/", ["day=1/a.csv", "part-2.csv", "part-10.csv"]),
        ("/*", ["day=1/a.csv", "part-2.csv", "part-10.csv"]),
        ("/*.csv", ["part-2.csv", "part-10.csv"]),
        ("/**/*.csv", ["day=1/a.csv", "part-2.csv", "part-10.csv"]),
        ("/day=?", ["day=1/a.csv"]),
        ("/part-[12]*.csv", ["part-2.csv", "part-10.csv"]),
        ("/_SUCCESS", ["_SUCCESS"]),
        ("/_*", ["_SUCCESS"]),
        ("/day=1/_tmp", ["day=1/_tmp/b.csv"]),
        ("/day=*/_tmp/*.csv", ["day=1/_tmp/b.csv"]),
    ],
)
def test_files_of_paths_globs_and_folders(folder, urls, found):
    assert names(find_files(f"{folder}{urls}"), folder) == found
    assert names(find_files(f"file://{folder}{urls}"), folder) == found


def test_listed_urls_keep_their_order_and_each_file_is_listed_once(folder):
    urls = (folder / "part-10.csv", f"{folder}/*.csv", str(folder / "part-2.csv"))
    found = find_files(url for url in urls)
    assert names(found, folder) == ["part-10.csv", "part-2.csv"]
    assert len({id(file.store) for file in found}) == 1


def test_files_below_a_hidden_folder_are_found_if_it_is_named(tmp_path):
    place = tmp_path / ".cache" / "_work"
    place.mkdir(parents=True)
    (place / "a.csv").touch()
    for url in (place, f"{place}/*", f"{place}/**/*.csv", place / "a.csv"):
        assert names(find_files(url), place) == ["a.csv"]


def test_an_existing_local_name_with_wildcards_is_not_a_glob(tmp_path):
    for name in ("odd[1].csv", "odd1.csv", "a?.csv", "ab.csv"):
        (tmp_path / name).touch()
    assert names(find_files(tmp_path / "odd[1].csv"), tmp_path) == ["odd[1].csv"]
    assert names(find_files(tmp_path / "a?.csv"), tmp_path) == ["a?.csv"]


@pytest.mark.parametrize("name", ["odd[1].csv", "a?c.csv", "a*.csv", "day[1]"])
def test_an_existing_name_with_wildcards_on_a_store_is_not_a_glob(odd, name):
    odd.pipe({f"/g/{one}": one.encode() for one in ("odd1.csv", "abc.csv", "day1/a.csv")})
    odd.pipe(f"/g/{name}/a.csv" if "day" in name else f"/g/{name}", b"this one")
    [file] = find_files(f"odd://g/{name}")
    assert file.read_range(0, file.size) == b"this one"
    [same] = find_entries(f"odd://g/{name}")
    assert same.path == f"/g/{name}"


def test_a_name_with_wildcards_that_does_not_exist_is_a_glob(odd):
    assert [file.path for file in find_files(["odd://d/[ab].csv", "odd://d/?.csv"])] == [
        "/d/a.csv",
        "/d/b.csv",
    ]
    # Also if the store rejects a request for an impossible name.
    odd.pipe("/d/forbidden-1.csv", b"")
    assert [file.path for file in find_files("odd://d/forbidden-*.csv")] == ["/d/forbidden-1.csv"]


def test_relative_and_home_paths(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for url in ("part-2.csv", "./part-2.csv", "~/part-2.csv", "~/part-2*"):
        assert [Path(file.path) for file in find_files(url)] == [folder / "part-2.csv"]


def test_a_file_has_path_size_stamp_and_bytes(folder):
    [file] = find_files(folder / "part-2.csv")
    assert (file.path, file.url, file.address) == (str(folder / "part-2.csv"),) * 3
    assert (file.size, file.sized, file.compression) == (11, True, "")
    assert file.read_range(5, 8) == b"2.c"
    assert file.read_range(8, 8) == b""
    before = file.stamp
    os.utime(file.path, (1, 1))
    assert find_files(file.path)[0].stamp != before


def test_find_entries_returns_folders_without_their_files(folder):
    found = find_entries([f"{folder}/*", folder])
    assert names(found, folder) == ["day=1", "part-2.csv", "part-10.csv", "."]
    assert [type(one) for one in found] == [Folder, File, File, Folder]


def test_all_invalid_urls_are_reported_together(folder):
    (folder / "empty").mkdir()
    urls = [folder, f"{folder}/part-3.csv", f"{folder}/*.txt", "nowhere://a/b.csv", None, " "]
    found = faults([*urls, f"{folder}/empty", 7, b"a.csv"])
    assert len(found) == 8
    gone, glob, protocol, *_ = found
    assert gone.asked == repr(f"{folder}/part-3.csv")
    assert gone.allowed.endswith("none were found")
    assert gone.advice == "did you mean 'part-2.csv' or 'part-10.csv'?"
    assert (glob.allowed, glob.advice) == (gone.allowed, "check the folder and the pattern")
    assert "Protocol not known: nowhere" in protocol.allowed
    assert found[5].asked == repr(f"{folder}/empty")


def test_faults_show_no_secrets(odd):
    [fault] = faults("odd://user:hidden@d/forbidden.csv", {"key": "s3cr3t"})
    message = "RuntimeError: *** may not read /***@d/forbidden.csv at https://host/a.csv"
    assert message in fault.allowed
    for secret in ("hidden", "s3cr3t", "pw", "abc"):
        assert secret not in str(fault)
    [file, _] = find_files("odd://d", {"key": "s3cr3t"})
    assert "s3cr3t" not in repr(file) + repr(file.store) + file.url


def test_sizes_missing_in_a_listing_are_requested(odd):
    OddStore.mute = ("lists",)
    assert [(file.size, file.sized) for file in find_files("odd://d")] == [(4, True), (5, True)]
    OddStore.mute = ("lists", "files")
    assert [file.sized for file in find_files("odd://d", sized=False)] == [False, False]
    found = faults("odd://d")
    assert [fault.asked for fault in found] == ["'odd:///d/a.csv'", "'odd:///d/b.csv'"]
    assert "length" in found[0].allowed


def test_single_files_are_requested_concurrently(odd):
    # All requests wait for each other, so sequential requests would time out.
    OddStore.barrier = threading.Barrier(4)
    odd.pipe({"/e/c.csv": b"", "/e/d.csv": b""})
    urls = ["odd://d/b.csv", "odd://d/a.csv", "odd://e/c.csv", "odd://e/d.csv"]
    assert [file.path for file in find_files(urls)] == [
        "/d/b.csv",
        "/d/a.csv",
        "/e/c.csv",
        "/e/d.csv",
    ]


def test_more_files_than_threads_keep_their_order(folder):
    urls = [folder / f"{number * 7919 % 101}.csv" for number in range(3 * listing.MAX_THREADS + 1)]
    for url in urls:
        url.touch()
    assert [file.path for file in find_files(urls)] == list(map(str, urls))


def test_ranges_are_read_from_a_store_without_range_requests(odd):
    file, _ = find_files("odd://d")
    assert [file.read_range(0, 2), file.read_range(2, 4), file.read_range(0, 4)] == [
        b"n\n",
        b"1\n",
        b"n\n1\n",
    ]


def test_equal_paths_on_two_stores_are_two_files(odd):
    [one], [other] = find_files("odd://d/a.csv"), find_files("odd://d/a.csv", {"key": "b"})
    assert one.path == other.path
    assert tokenize(one) != tokenize(other)
    fsspec.filesystem("memory").pipe("/d/a.csv", b"x")
    try:
        both = find_files(["odd://d/a.csv", "memory://d/a.csv"])
        assert [file.store.protocol for file in both] == ["odd", "memory"]
        assert [file.url for file in both] == ["odd:///d/a.csv", "memory:///d/a.csv"]
    finally:
        fsspec.filesystem("memory").rm("/d", recursive=True)


def test_a_pickled_file_has_the_same_token(odd):
    file, other = find_files("odd://d", {"key": "b"})
    back, beside = pickle.loads(pickle.dumps((file, other)))
    assert (back, back.store.system.key) == (file, "b")
    assert back.store is beside.store
    assert back.read_range(2, 3) == b"1"
    assert tokenize(back) == tokenize(file) != tokenize(other)


def test_a_missing_path_has_a_location(tmp_path):
    assert resolve_location(str(tmp_path / "no")).path == str(tmp_path / "no")
    assert resolve_location("memory://b/no").address == "memory:///b/no"


def test_natural_sort_key_orders_by_numbers():
    paths = ["part-10", "part-2", "a", "part-2b", "9", "1²2"]
    assert sorted(paths, key=natural_sort_key) == ["1²2", "9", "a", "part-2", "part-2b", "part-10"]


def test_a_pickled_store_constructs_its_file_system_again(tmp_path):
    store = Store("file", "file:///", {})
    assert pickle.loads(pickle.dumps(store)).system.exists(str(tmp_path))
