"""Concurrent listings of objects: each key once, wherever the ranges end."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import zlib
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scale import scaled

from hyperplane.errors import RequestError
from hyperplane.objectstore.listing import resolve_location
from hyperplane.objectstore.object_pages import Page
from hyperplane.objectstore.object_ranges import RangeRequest, iterate_pages
from hyperplane.objectstore.object_scan import ObjectScan, _request_glob


class MemoryLister:
    """Pages of three keys after ``start``, as S3, or from it, as Google, or from the first key."""

    is_ordered = True
    page_size = 3

    def __init__(self, keys, begin="after"):
        self.keys, self.begin = list(keys), begin
        self.requests, self.lock = [], threading.Lock()

    def list_page(self, prefix, *, delimiter="", start="", token=""):
        with self.lock:
            self.requests.append((prefix, delimiter, start, token))
        keys = [key for key in self.keys if key.startswith(prefix)]
        if start and self.begin != "first":
            keys = [key for key in keys if key > start or (key == start and self.begin == "from")]
        if delimiter:
            inside = [key[len(prefix) :] for key in keys]
            folders = [prefix + key.partition("/")[0] + "/" for key in inside if "/" in key]
            return Page(prefixes=list(dict.fromkeys(folders))[:1000])
        if token:
            keys = keys[keys.index(token) :]
        following = keys[self.page_size :][:1]
        page = keys[: self.page_size]
        return Page(page, [len(key) for key in page], token=following[0] if following else "")


def listed(lister, prefix=""):
    pages = list(iterate_pages(lister, RangeRequest(prefix, lambda page: page)))
    for page in pages:
        assert page.sizes == [len(key) for key in page.keys]
    return [key for page in pages for key in page.keys]


PARTS = st.sampled_from(
    [
        "part-01",
        "part-0f",
        "part-9",
        "00",
        "99",
        "a",
        "b",
        "ab",
        "day-1",
        "day-2",
        "x.csv",
        "ü",
        "𝒳",
        "~",
        "!",
    ]
)
KEYS = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=60)


BEGINS = ["after", "from", "first"]


@given(KEYS, st.sampled_from(["", "a", "a/", "day-", "none/"]), st.sampled_from(BEGINS))
def test_each_key_is_listed_once(keys, prefix, begin):
    lister = MemoryLister(sorted(keys), begin)
    assert sorted(listed(lister, prefix)) == sorted(key for key in keys if key.startswith(prefix))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_large_listing_is_divided_at_folders(depth):
    root = "".join(f"level-{level}/" for level in range(depth))
    count = scaled(60, 300)
    keys = [f"{root}day-{day:03d}/part-{part}" for day in range(count) for part in range(6)]
    lister = MemoryLister(keys)
    assert sorted(listed(lister, root)) == keys
    starts = {start for _, delimiter, start, _ in lister.requests if start and not delimiter}
    assert len(starts) >= 8
    assert all(start.endswith("/") for start in starts)
    needed = len(keys) / lister.page_size
    assert len(lister.requests) < 2 * needed


@pytest.mark.parametrize("pattern", ["part-{:04d}", "day-{:04d}/part", "a/b-{:04d}/c/part"])
def test_small_folders_are_not_requested_one_by_one(pattern):
    keys = [pattern.format(number) for number in range(600)]
    lister = MemoryLister(keys)
    assert sorted(listed(lister)) == keys
    assert len(lister.requests) < 2 * len(keys) / lister.page_size + 50


@pytest.mark.parametrize("name", ["decimal", "hash", "after folders"])
def test_a_large_folder_is_divided_at_numbers(name):
    count = scaled(600, 3000)
    if name == "hash":
        keys = sorted(f"a/{zlib.crc32(bytes([n % 256, n // 256])):08x}.csv" for n in range(count))
    else:
        keys = [f"a/part-{number:06d}.csv" for number in range(count)]
    if name == "after folders":
        keys = [*(f"a/day-{day}/part" for day in range(9)), *keys, "b/c.csv"]
    lister = MemoryLister(keys)
    assert sorted(listed(lister, "a/")) == [key for key in keys if key.startswith("a/")]
    starts = {start for _, delimiter, start, _ in lister.requests if start and not delimiter}
    assert len(starts) >= 8
    assert len(lister.requests) < 2 * len(keys) / lister.page_size


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("pattern", ["part-{:03d}", "day-{:03d}/"])
def test_a_key_at_which_a_listing_is_divided_is_listed_once(begin, pattern):
    keys = [pattern.format(number) + end for number in range(200) for end in ("", "0", "1", "2")]
    lister = MemoryLister(keys, begin)
    assert sorted(listed(lister)) == keys
    assert any(start in keys for _, delimiter, start, _ in lister.requests if not delimiter)


def test_a_short_listing_is_one_request():
    lister = MemoryLister(["a/1", "a/2", "b/1"])
    assert listed(lister) == ["a/1", "a/2", "b/1"]
    assert len(lister.requests) == 1


def test_stores_without_order_are_listed_page_by_page():
    keys = [f"day-{day:03d}/part-{part}" for day in range(60) for part in range(6)]
    random.Random(0).shuffle(keys)
    lister = MemoryLister(keys)  # as a server that has no order, and does not say so
    assert listed(lister) == keys
    lister = MemoryLister(sorted(keys))
    lister.is_ordered = False
    assert listed(lister) == sorted(keys)
    assert not any(delimiter for _, delimiter, _, _ in lister.requests)


def test_an_order_that_ends_within_a_divided_listing_is_an_error():
    keys = [f"day-{day:03d}/part-{part}" for day in range(60) for part in range(6)]
    lister = MemoryLister([*keys[:100], *reversed(keys[100:])])
    with pytest.raises(OSError, match="in no order"):
        listed(lister)


class UnsortedFolders(MemoryLister):
    """Lists folders in no order, and keys in order."""

    def list_page(self, prefix, *, delimiter="", start="", token=""):
        page = super().list_page(prefix, delimiter=delimiter, start=start, token=token)
        random.Random(0).shuffle(page.prefixes)
        return page


def test_folders_that_a_store_lists_in_no_order_divide_a_listing():
    keys = [f"day-{day:03d}/part-{part}" for day in range(60) for part in range(6)]
    lister = UnsortedFolders(keys)
    assert sorted(listed(lister)) == keys
    assert any(start for _, delimiter, start, _ in lister.requests if not delimiter)


class LimitedLister(MemoryLister):
    """Allows only requests of one prefix, as the conditions of a policy may do."""

    def list_page(self, prefix, *, delimiter="", start="", token=""):
        if prefix != "a/":
            raise PermissionError(f"no permission for {prefix}")
        return super().list_page(prefix, delimiter=delimiter, start=start, token=token)


def test_a_listing_needs_permission_for_its_prefix_only():
    keys = [f"a/b/day-{day:03d}/part-{part}" for day in range(60) for part in range(6)]
    lister = LimitedLister(keys)
    assert sorted(listed(lister, "a/")) == keys


class RepeatingLister(MemoryLister):
    """Ignores the token, as if each page were the first one."""

    has_other_tokens = False

    def list_page(self, prefix, *, delimiter="", start="", token=""):
        page = super().list_page(prefix, start=start)
        following = f"{token}+" if self.has_other_tokens else "next"
        return Page(page.keys, page.sizes, token=following)


@pytest.mark.parametrize("has_other_tokens", [False, True])
@pytest.mark.parametrize("pattern", ["day/*", "day/**"])
def test_a_store_that_repeats_a_page_is_an_error(pattern, has_other_tokens):
    lister = RepeatingLister([f"day/part-{part}" for part in range(6)])
    lister.has_other_tokens = has_other_tokens
    with pytest.raises(OSError, match="has sent a page of its objects with 'day/' twice"):
        list(islice(iterate_pages(lister, _request_glob("bucket", pattern)), 100))


class FailingLister(MemoryLister):
    """Raises an error for each divided range, or for all requests."""

    error, fails_first = PermissionError("refused"), False

    def list_page(self, prefix, *, delimiter="", start="", token=""):
        if (start and not delimiter) or self.fails_first:
            raise self.error
        return super().list_page(prefix, delimiter=delimiter, start=start, token=token)


def test_an_error_is_a_fault_of_the_url():
    url = "memory://bucket/in"
    lister = FailingLister([f"day-{day:03d}/part-{part}" for day in range(60) for part in range(6)])
    with pytest.raises(PermissionError, match="refused"):
        listed(lister)
    request = RangeRequest("", lambda page: page)
    scan = ObjectScan(url, resolve_location(url), "memory://bucket/", lister, request)
    with pytest.raises(RequestError, match=r"a readable URL \(PermissionError: refused\)"):
        list(scan.iterate_sizes())
    lister.error = FileNotFoundError("gone")  # after the first page
    with pytest.raises(RequestError, match=r"a readable URL \(FileNotFoundError: gone\)"):
        list(scan.iterate_sizes())
    lister.fails_first = True
    assert list(scan.iterate_sizes()) == []


@pytest.mark.process
def test_ctrl_c_does_not_wait_for_a_server_that_does_not_respond():
    program = """if True:
        import threading
        from hyperplane.objectstore.object_pages import Page
        from hyperplane.objectstore.object_ranges import RangeRequest, iterate_pages

        class StalledLister:
            is_ordered = False

            def list_page(self, prefix, *, delimiter="", start="", token=""):
                if token:
                    threading.Event().wait()
                return Page(["a"], [1], token="a")

        for page in iterate_pages(StalledLister(), RangeRequest("", lambda page: page)):
            raise KeyboardInterrupt
    """
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, timeout=120, check=False
    )
    assert done.stderr.endswith(b"KeyboardInterrupt\n")
