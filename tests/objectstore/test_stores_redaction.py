"""Secrets that must not be shown."""

from pathlib import Path

import pytest

from hyperplane.objectstore.redaction import (
    collect_secrets,
    describe_error,
    describe_url,
    redact_url,
)


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
        ("https://me:p@ss@host/a.csv", "https://host/a.csv"),
        ("https://me@corp.com:p@ss@host:8080/a.csv", "https://host:8080/a.csv"),
        ("https://me:p?ss@host/a.csv?sig=1", "https://host/a.csv"),
        ("https://me:p::ss@host/a.csv", "https://host/a.csv"),
        ("https://me:1234@host/a.csv", "https://host/a.csv"),
        ("https://me:p/ss@host/a.csv", "https://***@host/a.csv"),
        ("s3://key:sec/r@t@b/a", "s3://***@b/a"),
        ("s3://key:/ret@b/a", "s3://***@b/a"),
        ("zip://a.csv::s3://key:sec/ret@b/b.zip", "zip://a.csv::s3://***@b/b.zip"),
        # Versions and mail addresses are not passwords and stay.
        ("https://host:8080/a@b.csv", "https://host:8080/a@b.csv"),
        ("https://[::1]:8080/a@b.csv", "https://[::1]:8080/a@b.csv"),
        ("sftp://me@host/a@b.csv", "sftp://host/a@b.csv"),
        ("gs://bucket/a@b.csv", "gs://bucket/a@b.csv"),
        ("file:///a:b/c@d.csv", "file:///a:b/c@d.csv"),
        ("https://me:pw@host/a.csv?mail=a@b", "https://host/a.csv"),
        ("https://host/a.csv?mail=a@b", "https://host/a.csv"),
        ("HTTPS://host/a.csv?secret", "HTTPS://host/a.csv"),
        ("zip://x?.csv::https://host/a.zip?secret", "zip://x?.csv::https://host/a.zip"),
        ("gs://me:pw@bucket/day-?.csv", "gs://bucket/day-?.csv"),
        ("see https://host/a and https://me:pw@host/b", "see https://host/a and https://host/b"),
    ],
)
def test_redact_url_removes_credentials_and_queries(url, safe):
    assert redact_url(url) == safe


def test_describe_error_hides_secrets_of_options_and_urls():
    error = OSError("no s3cr3t for https://me:pw@host/a.csv?sig=abc and gs://b/c.csv")
    text = describe_error(error, {"client": {"keys": ["s3cr3t"], "tries": 3, "anon": "no"}})
    assert text == "OSError: no *** for https://host/a.csv and gs://b/c.csv"


def test_collect_secrets_returns_the_longest_first():
    assert collect_secrets({"a": "abcd", "b": ("abcdef",), "c": "no", "d": None}) == [
        "abcdef",
        "abcd",
    ]
    assert collect_secrets(None) == []


def test_describe_error_hides_the_password_and_query_of_the_requested_url():
    error = OSError("me:secret@d/a.csv and sig=secret2 are refused")
    assert describe_error(error, None, "gs://me:secret@d/a.csv?sig=secret2") == (
        "OSError: ***@d/a.csv and *** are refused"
    )


@pytest.mark.parametrize(
    ("url", "message", "safe"),
    [
        ("s3://key:sec/return@b/a", "port 'sec' of key:sec/return", "port 'sec' of ***"),
        ("s3://key:sec/return@b/a", "no bucket return@b", "no bucket ***@b"),
        ("https://me:p@ssword@host/a", "no host ssword@host", "no host ***@host"),
        ("https://me:p@ssword@host/a", "p@ssword is refused", "*** is refused"),
    ],
)
def test_describe_error_hides_parts_of_a_password(url, message, safe):
    assert describe_error(OSError(message), None, url) == f"OSError: {safe}"


def test_describe_url_shows_only_the_type_of_other_values():
    assert describe_url(Path("/a/b.csv")) == "'/a/b.csv'"
    assert describe_url("https://me:p@ss@host/a.csv?sig=1") == "'https://host/a.csv'"
    assert [describe_url(value) for value in (None, 7, 1.5, {"secret": 1}, b"secret")] == [
        "None",
        "7",
        "1.5",
        "a dict",
        "a bytes",
    ]
