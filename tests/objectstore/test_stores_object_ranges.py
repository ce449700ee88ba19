"""Concurrent listings of objects: each key once, wherever the ranges end."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scale import scaled

from hyperplane.objectstore.object_pages import Page
from hyperplane.objectstore.object_ranges import RangeRequest, iterate_pages


class MemoryLister:
    """Pages of three keys; with ``ignores_start`` as a server that lists from the first key."""

    is_ordered = True
    page_size = 3

    def __init__(self, keys, *, ignores_start=False):
        self.keys, self.ignores_start = list(keys), ignores_start
        self.requests, self.lock = [], threading.Lock()

    def list_page(self, prefix, *, delimiter="", start="", token=""):
        with self.lock:
            self.requests.append((prefix, delimiter, start, token))
        keys = [key for key in self.keys if key.startswith(prefix)]
        if start and not self.ignores_start:
            keys = [key for key in keys if key > start]
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


PARTS = st.sampled_from(["a", "b", "ab", "day-1", "day-2", "x.csv", "ü", "𝒳", "~", "!"])
KEYS = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=60)


@given(KEYS, st.sampled_from(["", "a", "a/", "day-", "none/"]), st.booleans())
def test_each_key_is_listed_once(keys, prefix, ignores_start):
    lister = MemoryLister(sorted(keys), ignores_start=ignores_start)
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


def test_an_error_ends_the_listing():
    class Refusing(MemoryLister):
        def list_page(self, prefix, *, delimiter="", start="", token=""):
            if start and not delimiter:
                raise PermissionError("refused")
            return super().list_page(prefix, delimiter=delimiter, start=start, token=token)

    keys = [f"day-{day:03d}/part-{part}" for day in range(60) for part in range(6)]
    with pytest.raises(PermissionError, match="refused"):
        listed(Refusing(keys))
