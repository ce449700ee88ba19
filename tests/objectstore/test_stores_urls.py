"""Valid and invalid URLs and globs."""

import fsspec
import pytest

from hyperplane.errors import RequestError
from hyperplane.objectstore import listing
from hyperplane.objectstore.listing import find_files, resolve_location


def faults(urls, options=None):
    with pytest.raises(RequestError) as caught:
        find_files(urls, options)
    assert {fault.where for fault in caught.value.faults} == {"urls"}
    return caught.value.faults


@pytest.mark.parametrize("urls", [None, 5, {}, {"a.csv": 1}, b"a.csv", [], (), "", "  "])
def test_values_that_are_not_urls_are_refused(urls):
    [fault] = faults(urls)
    assert "a path, glob or URL" in fault.allowed


SIGNED = "https://me:secret@host/a.csv?sig=secret"


@pytest.mark.parametrize(
    ("urls", "asked"),
    [
        ({SIGNED: 1}, "a dict"),
        ([(SIGNED,)], "a tuple"),
        ([[SIGNED]], "a list"),
        (SIGNED.encode(), "a bytes"),
        ([SIGNED.encode()], "a bytes"),
        ([7], "7"),
        ((), "[]"),
    ],
)
def test_faults_show_only_the_type_of_values_that_are_not_urls(urls, asked):
    [fault] = faults(urls)
    assert fault.asked == asked
    assert "secret" not in str(fault)


def test_storage_options_that_are_not_a_mapping_are_refused():
    with pytest.raises(RequestError, match=r"storage_options = a str: .*a mapping"):
        find_files(".", "s3cr3t")


def test_a_missing_package_of_a_protocol_is_named(monkeypatch):
    def absent(url, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "url_to_fs", absent)
    [fault] = faults("s3://a/b.csv")
    assert "Install s3fs" in fault.allowed
    with pytest.raises(RequestError, match="Install s3fs"):
        resolve_location("s3://a/b.csv")


def test_the_query_of_an_http_url_is_not_a_glob():
    assert not listing.is_glob("https://host/a.csv?signature=b")
    assert listing.is_glob("https://host/*.csv?signature=b")
    assert listing.is_glob("gs://bucket/day-?.csv")
    assert not listing.is_glob("simplecache::https://host/a.zarr?signature=b")
    assert not listing.is_glob("zip://a.csv::https://host/a.zip?signature=b")
    assert listing.is_glob("zip://*.csv::https://host/a.zip?signature=b")
    assert listing.is_glob("simplecache::gs://bucket/day-?.csv")
