"""What must not be shown."""

import pytest

from hyperplane.stores.secrets import said, secrets_of, shown


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("ftp://me:secret@host/a?sig=1", "ftp://host/a"),
        ("https://host/a.csv?secret", "https://host/a.csv"),
        ("simplecache::https://me:secret@host/a.csv?secret", "simplecache::https://host/a.csv"),
        ("zip://a.csv::sftp://me:secret@host/b.zip", "zip://a.csv::sftp://host/b.zip"),
        ("abfs://box/a.csv?sv=1&sig=secret", "abfs://box/a.csv"),
        ("gs://bucket/day-?/*.csv", "gs://bucket/day-?/*.csv"),
        ("/a@b/c?d=e", "/a@b/c?d=e"),
    ],
)
def test_urls(url, safe):
    assert shown(url) == safe


def test_errors():
    error = OSError("no s3cr3t for https://me:pw@host/a.csv?sig=abc and gs://b/c.csv")
    text = said(error, {"client": {"keys": ["s3cr3t"], "tries": 3, "anon": "no"}})
    assert text == "OSError: no *** for https://host/a.csv and gs://b/c.csv"


def test_the_longest_secret_is_hidden_first():
    assert secrets_of({"a": "abcd", "b": ("abcdef",), "c": "no", "d": None}) == ["abcdef", "abcd"]
    assert secrets_of(None) == []


def test_parts_of_the_url_that_was_asked_for():
    error = OSError("me:secret@d/a.csv and sig=secret2 are refused")
    assert said(error, None, "gs://me:secret@d/a.csv?sig=secret2") == (
        "OSError: ***@d/a.csv and *** are refused"
    )
