"""Symbolic links on local disk."""

import os

import pytest

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.objectstore.listing import find_entries, find_files
from hyperplane.objectstore.locations import File, Folder


@pytest.fixture
def place(tmp_path):
    """A folder with one file, and files beside it as link targets."""
    for name in ("data/own.csv", "other/a.csv", "other/deep/b.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    return tmp_path


def names(found, folder):
    return [os.path.relpath(one.path, folder) for one in found]


def link(place, name, target):
    (place / name).symlink_to(place / target)


@pytest.mark.parametrize("url", ["data", "data/*", "data/*.csv", "data/**/*.csv", "data/[lo]*"])
def test_a_link_to_a_file_is_listed_as_a_file(place, url):
    link(place, "data/link.csv", "other/a.csv")
    found = find_files(f"{place}/{url}")
    assert names(found, place) == ["data/link.csv", "data/own.csv"]
    first, target = found[0], find_files(place / "other/a.csv")[0]
    assert first.read_range(0, 99) == b"other/a.csv\n"
    assert (first.size, first.stamp) == (target.size, target.stamp)
    os.utime(place / "other/a.csv", (1, 1))
    assert find_files(f"{place}/{url}")[0].stamp != first.stamp


def test_links_named_by_a_url_are_followed(place):
    link(place, "data/link.csv", "other/a.csv")
    link(place, "data/again.csv", "data/link.csv")
    link(place, "top", "data")
    assert names(find_files([place / "data/again.csv"]), place) == ["data/again.csv"]
    assert names(find_files(place / "top"), place) == [
        "top/again.csv",
        "top/link.csv",
        "top/own.csv",
    ]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("data", ["data/link/a.csv", "data/link/deep/b.csv", "data/own.csv"]),
        ("data/**/*.csv", ["data/link/a.csv", "data/link/deep/b.csv", "data/own.csv"]),
        ("data/*", ["data/link/a.csv", "data/link/deep/b.csv", "data/own.csv"]),
        ("data/*/*.csv", ["data/link/a.csv"]),
        ("data/l*/*/*.csv", ["data/link/deep/b.csv"]),
        ("data/link/*", ["data/link/a.csv", "data/link/deep/b.csv"]),
    ],
)
def test_a_link_to_a_folder_is_listed_as_a_folder(place, url, found):
    link(place, "data/link", "other")
    assert names(find_files(f"{place}/{url}"), place) == found


def test_a_glob_returns_links_as_files_and_folders(place):
    link(place, "data/link", "other")
    link(place, "data/file", "other/a.csv")
    found = find_entries(f"{place}/data/*")
    assert [(type(one), *names([one], place)) for one in found] == [
        (File, "data/file"),
        (Folder, "data/link"),
        (File, "data/own.csv"),
    ]


@pytest.mark.parametrize("target", ["data", "data/deep", "."])
def test_a_link_to_a_parent_folder_is_skipped(place, target):
    (place / "data/deep").mkdir()
    (place / "data/deep/c.csv").touch()
    link(place, "data/deep/up", target)
    assert names(find_files(place / "data"), place) == ["data/deep/c.csv", "data/own.csv"]
    assert names(find_files(f"{place}/data/**/*.csv"), place) == ["data/deep/c.csv", "data/own.csv"]


def test_two_links_in_a_circle_are_followed_once(place):
    link(place, "data/link", "other")
    link(place, "other/deep/back", "data")
    assert names(find_files(place / "data"), place) == [
        "data/link/a.csv",
        "data/link/deep/b.csv",
        "data/own.csv",
    ]


def test_a_glob_of_fixed_depth_follows_circular_links(place):
    link(place, "data/up", "data")
    assert names(find_files(f"{place}/data/*/*/*.csv"), place) == ["data/up/up/own.csv"]


def test_two_links_to_one_folder_are_both_listed(place):
    link(place, "data/x", "other/deep")
    link(place, "data/y", "other/deep")
    assert names(find_files(place / "data"), place) == [
        "data/own.csv",
        "data/x/b.csv",
        "data/y/b.csv",
    ]


@pytest.mark.parametrize("target", ["gone.csv", "data/broken.csv"], ids=["nowhere", "itself"])
@pytest.mark.parametrize("url", ["data/broken.csv", "data", "data/*.csv", "data/*", "**/*.csv"])
def test_a_dangling_link_is_an_error_that_names_it(place, url, target):
    link(place, "data/broken.csv", target)
    with pytest.raises(RequestError) as caught:
        find_files(f"{place}/{url}")
    [fault] = caught.value.faults
    assert (fault.where, fault.asked) == ("urls", repr(f"{place}/data/broken.csv"))
    assert f"it leads to {str(place / target)!r}" in fault.allowed
    assert fault.advice == "fix or remove the link"


def test_all_dangling_links_are_reported_once(place):
    for name in ("b2", "b10", ".hidden", "b1.txt"):
        link(place, f"data/{name}", "gone")
    with pytest.raises(RequestError) as caught:
        find_files([f"{place}/data", f"{place}/data/b*", f"{place}/none.csv"])
    asked = [fault.asked for fault in caught.value.faults]
    assert sorted(asked[:3]) == [repr(f"{place}/data/{one}") for one in ("b1.txt", "b10", "b2")]
    assert asked[3:] == [repr(f"{place}/none.csv")]
    # A glob that does not match the links is not affected by them.
    assert names(find_files(f"{place}/data/*.csv"), place) == ["data/own.csv"]


def test_a_dangling_link_with_wildcards_in_its_name_is_not_a_glob(place):
    (place / "data/odd1.csv").touch()
    link(place, "data/odd[1].csv", "gone.csv")
    with pytest.raises(RequestError, match="it leads to"):
        find_files(f"{place}/data/odd[1].csv")


def test_pipes_are_skipped_in_folders(place):
    os.mkfifo(place / "data/pipe")
    link(place, "data/to-pipe", "data/pipe")
    with pytest.raises(RequestError) as caught:
        find_files(place / "data/pipe")
    # "did you mean" must not repeat the given name.
    assert caught.value.faults[0].advice == "did you mean 'to-pipe'?"
    assert names(find_files(place / "data"), place) == ["data/own.csv"]


@pytest.mark.parametrize(
    "name",
    [
        "/",
        "/tmp/..",
        "../" * 40,
        "link",
        "file:///tmp/..",
        "/*",
        "/proc",
        "/[ps]*",
        "/**",
        "/proc/**",
        "/proc/*",
        "/proc/self",
    ],
)
def test_the_root_and_kernel_folders_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(RequestError, match="not the whole disk"):
        hyperplane.shard_files(name)
