"""Names of Zarr stores, which are not opened here."""

import pytest

from hyperplane.collections.arrays.arguments import expand_urls, flatten_nested_urls
from hyperplane.errors import RequestError

SIGNED = "https://me:secret@host/a.zarr?sig=secret"


def test_a_signed_url_in_a_chain_is_not_a_glob():
    url = "simplecache::https://host/a.zarr?sig=b"
    assert expand_urls(url, None) == [url]


@pytest.mark.parametrize("url", ["zip://*.zarr::https://host/a.zip", "simplecache::gs://b/*.zarr"])
def test_a_glob_in_a_chain_is_refused(url):
    with pytest.raises(RequestError, match="one URL for each store"):
        expand_urls(url, None)


def test_symbolic_links_to_stores_are_found(tmp_path):
    (tmp_path / "real").mkdir()
    for name in ("a10.zarr", "a2.zarr"):
        (tmp_path / "real" / name).mkdir()
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    assert expand_urls(f"{tmp_path}/*.zarr", None) == [
        f"{tmp_path}/a2.zarr",
        f"{tmp_path}/a10.zarr",
    ]
    (tmp_path / "broken.zarr").symlink_to(tmp_path / "gone")
    with pytest.raises(RequestError, match="it leads to"):
        expand_urls(f"{tmp_path}/*.zarr", None)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: expand_urls({SIGNED: 1}, None),
        lambda: expand_urls([(SIGNED,)], None),
        lambda: expand_urls(SIGNED.encode(), None),
        lambda: expand_urls(f"simplecache::{SIGNED.replace('a.zarr', '*.zarr')}", None),
        lambda: flatten_nested_urls([[SIGNED], SIGNED]),
        lambda: flatten_nested_urls([[SIGNED], [[SIGNED]]]),
        lambda: flatten_nested_urls({SIGNED: 1}),
    ],
)
def test_an_error_of_an_unusable_url_has_no_secrets(ask):
    with pytest.raises(RequestError) as caught:
        ask()
    assert caught.value.faults[0].where.startswith("urls")
    assert "secret" not in str(caught.value)
