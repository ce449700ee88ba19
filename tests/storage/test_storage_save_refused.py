"""Invalid saves fail at once with all faults and without secrets."""

from __future__ import annotations

import os
import pathlib

import dask.dataframe as dd
import pytest
from saving_cases import flights, in_this_thread

import hyperplane
from hyperplane.errors import RequestError, StorageError
from hyperplane.objectstore.save_target import resolve_target

_here = pytest.fixture(autouse=True)(in_this_thread)


@pytest.mark.parametrize("mode", ["folder", "rights"])
def test_an_unwritable_target_fails_before_anything_is_computed(tmp_path, mode):
    computed = []

    def watched(part):
        computed.append(1)
        return part

    df = dd.from_pandas(flights(), npartitions=2)
    df = df.map_partitions(watched, meta=df._meta)
    computed.clear()
    if mode == "folder":
        (tmp_path / "file").write_text("")
        url = tmp_path / "file" / "out"
    else:
        url = pathlib.Path("/proc/1/out")
    with pytest.raises(StorageError) as caught:
        hyperplane.save(df, url)
    assert str(url.parent) in str(caught.value)
    assert not computed


def test_all_faults_of_a_request_are_reported_together(tmp_path):
    with pytest.raises(RequestError) as caught:
        hyperplane.save(
            dd.from_pandas(flights(), npartitions=1), tmp_path / "o", mode="w", format="parq",
            shard=(3, 3),
        )  # fmt: skip
    assert [fault.where for fault in caught.value.faults] == ["mode", "shard", "format"]
    assert "did you mean 'parquet'" in str(caught.value)
    for url in ("", "a/*/b", "/data/../etc", "/", "memory://x/../y"):
        with pytest.raises(RequestError):
            hyperplane.save(b"", url)
    with pytest.raises(RequestError, match=r"object: .*a Dask dataframe"):
        hyperplane.save(object(), tmp_path / "o")


def test_secrets_are_not_shown():
    with pytest.raises(RequestError) as caught:
        hyperplane.save(b"", "nowhere://me:s3cret@host/x?sig=s3cret", password="s3cret")
    assert "nowhere" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(resolve_target("memory://a/b", {"token": "s3cret"}))


def test_the_printed_result_has_rows_files_and_url(tmp_path):
    result = hyperplane.save(dd.from_pandas(flights(), npartitions=2), tmp_path / "out")
    assert "100 rows in 2 files" in str(result)
    assert str(tmp_path / "out") in result._repr_html_()
    assert os.sep in result.url


@pytest.mark.parametrize("form", ["parquet", "csv", "orc", "jsonl"])
def test_a_series_of_several_parts_is_refused_with_advice(tmp_path, form):
    series = flights()[flights().columns[0]]
    lazy = dd.from_pandas(flights(), npartitions=2)[series.name]
    for series_like, more in ((lazy, {}), (series, {"shard": (0, 2)})):
        with pytest.raises(RequestError, match="series") as caught:
            hyperplane.save(series_like, tmp_path / f"x.{form}", **more)
        (fault,) = caught.value.faults
        assert (fault.where, fault.advice) == ("obj", "write series.to_frame()")
    assert not list(tmp_path.iterdir())
