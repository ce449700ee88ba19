"""Sizes of very many objects of real servers: those of ``find_files``, with little memory."""

from __future__ import annotations

import fsspec
import pytest

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.objectstore import object_pages
from hyperplane.objectstore.file_sizes import iterate_file_sizes
from hyperplane.objectstore.listing import find_files, resolve_location
from hyperplane.objectstore.object_pages import find_lister
from hyperplane.objectstore.object_scan import ObjectScan, plan_object_scan

pytestmark = pytest.mark.service

NAMES = [
    *(f"in/day-{day}/part-{part}.csv" for day in range(12) for part in range(3)),
    "in/a.csv", "in/b.txt", "in/_SUCCESS", "in/.part", "in/_temporary/c.csv", "in/day-1/_log/d.csv",
    "in/day-2/deep/e.csv", "in/ü ö+%20&<>'\"?#=.csv", "in/day-3/𝒳.csv", "in/x.csv/inside.csv",
    "in/x.csv/_hidden.csv", "in/lines/", "in/lines/f.csv", "input/other.csv", "top.csv",
    "_in/_hidden/g.csv", "_in/h.csv",
]  # fmt: skip
PATTERNS = [
    "", "/in", "/in/day-1", "/in/x.csv", "/_in", "/_in/_hidden", "/in/lines",
    "/*", "/in/*", "/in/*.csv", "/in/day-*", "/in/day-*/*", "/in/day-1*/part-?.csv", "/in/[ab].*",
    "/*/*", "/*/*.csv", "/i*/day-[0-3]/part-[!0].csv", "/in/_*", "/in/_temporary/*", "/*/_*/*",
    "/in/**", "/in/**/*.csv", "/**", "/**/day-2*", "/in/day-*/**", "/in/**/deep", "/_in/**",
    "/in/x*", "/in/**/_log/*", "/**/x.csv", "/in/*/*/*", "/in/",
]  # fmt: skip


@pytest.fixture(params=["s3", "gcs"])
def store(request, monkeypatch):
    """A bucket with objects, listed in pages of few objects."""
    monkeypatch.setattr(object_pages, "PAGE_SIZE", 4)
    return request.getfixturevalue(request.param)


@pytest.fixture
def bucket(store):
    system = fsspec.url_to_fs(store.url, **store.options)[0]
    root = store.url.partition("://")[2]
    for number, name in enumerate(NAMES):
        system.pipe_file(f"{root}/{name}", b"x" * number)
    system.invalidate_cache()
    return store


@pytest.mark.slow
def test_objects_are_listed_as_by_find_files(bucket):
    for pattern in PATTERNS:
        url = f"{bucket.url}{pattern}"
        scan = plan_object_scan(url, resolve_location(url, bucket.options))
        assert isinstance(scan, ObjectScan), pattern
        expected = sorted((file.address, file.size) for file in find_files(url, bucket.options))
        assert sorted(scan.iterate_sizes()) == expected, pattern
        assert sorted(iterate_file_sizes(url, bucket.options)) == expected, pattern


def test_an_object_with_the_name_of_a_folder_is_listed_with_those_in_it(bucket):
    system = fsspec.url_to_fs(bucket.url, **bucket.options)[0]
    system.pipe_file(f"{bucket.url}/in/day-4".partition("://")[2], b"x")
    expected = sorted(f"{bucket.url}/{name}" for name in [*NAMES, "in/day-4"] if "in/day-4" in name)
    for pattern in ("/in/day-4*", "/**/day-4*"):  # find_files has no such object for a glob
        sizes = iterate_file_sizes(f"{bucket.url}{pattern}", bucket.options)
        assert sorted(address for address, _ in sizes) == expected


def test_other_names_are_left_to_find_files(bucket):
    urls = ["/in/a.csv", "/none", "/in/none*", "/in/a**.csv", "/in/[z-a]*", "-none", "-none/*.csv"]
    for url in [f"{bucket.url}{pattern}" for pattern in urls]:
        messages = [None, None]
        for number, call in enumerate((find_files, lambda *args: list(iterate_file_sizes(*args)))):
            try:
                call(url, bucket.options)
            except RequestError as error:
                messages[number] = str(error)
        assert messages[0] == messages[1]
        assert (messages[0] is None) == url.endswith("a.csv")


def test_a_client_that_cannot_be_made_is_a_fault():
    options = {"profile": "no-such-profile"}
    messages = []
    for call in (find_files, lambda *args: list(iterate_file_sizes(*args))):
        with pytest.raises(RequestError, match="ProfileNotFound") as refused:
            call("s3://bucket/in", options)
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_objects_are_planned(bucket, tmp_path):
    urls = [f"{bucket.url}/in/day-*/*.csv", f"{bucket.url}/in/day-1"]
    plan = hyperplane.plan_shards(
        urls, 2, tmp_path / "plan.parquet", storage_options=bucket.options
    )
    assert plan.files == len({file.address for file in find_files(urls, bucket.options)})


def test_listings_by_the_file_system_are_unchanged(bucket):
    system = fsspec.url_to_fs(bucket.url, **bucket.options)[0]
    root = f"{bucket.url}/in".partition("://")[2]
    before = system.find(root, detail=True)
    assert len(list(iterate_file_sizes(f"{bucket.url}/in", bucket.options))) > 40
    system.invalidate_cache()
    assert system.find(root, detail=True) == before


def test_pages_are_read_without_the_parser_of_botocore(s3, monkeypatch):
    system = fsspec.url_to_fs(s3.url, **s3.options)[0]
    root = s3.url.partition("://")[2]
    for number in range(3):
        system.pipe_file(f"{root}/in/part-{number}.csv", b"x" * number)
    system.invalidate_cache()
    lister = find_lister(resolve_location(s3.url, s3.options).store, root)
    answers, call = [], system.call_s3
    monkeypatch.setattr(
        system,
        "call_s3",
        lambda *args, **options: answers.append(call(*args, **options)) or answers[-1],
    )
    page = lister.list_page("in/")
    assert (page.keys, page.sizes) == ([f"in/part-{number}.csv" for number in range(3)], [0, 1, 2])
    assert "Contents" not in answers[0]
    assert answers[0]["KeyCount"] == 3
