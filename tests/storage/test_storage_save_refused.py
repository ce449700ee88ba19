"""Invalid saves fail at once with all faults and without secrets."""

from __future__ import annotations

import os
import pathlib
import socket

import dask
import dask.array as da
import dask.dataframe as dd
import pytest
from saving_cases import flights, in_this_thread

import hyperplane
from hyperplane.errors import RequestError, StorageError
from hyperplane.objectstore.save_target import resolve_target

_here = pytest.fixture(autouse=True)(in_this_thread)


def test_a_delayed_is_refused_with_advice(tmp_path):
    df = dd.from_pandas(flights(), npartitions=2)
    counts = hyperplane.dataframe.window_counts(df, "at", "1D", "n", top=2)
    for obj in (counts, dask.delayed(3)):
        with pytest.raises(RequestError, match=r"hyperplane.save\(obj.compute\(\), url\)"):
            hyperplane.save(obj, tmp_path / "counts.parquet")
    hyperplane.save(counts.compute(), tmp_path / "counts.parquet")


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


@pytest.mark.slow
def test_errors_of_a_store_show_no_secrets():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # nothing answers there after this block
    with pytest.raises(StorageError) as caught:
        hyperplane.load(f"http://me:s3cret@127.0.0.1:{port}/x.parquet?sig=s3cret")
    assert caught.value.url == f"http://127.0.0.1:{port}/x.parquet"
    assert "s3cret" not in str(caught.value)


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


def test_append_of_an_array_points_to_xarray(tmp_path):
    with pytest.raises(RequestError) as caught:
        hyperplane.save(da.ones(4), tmp_path / "a.zarr", mode="append")
    (fault,) = caught.value.faults
    assert (fault.where, fault.asked) == ("mode", "'append'")
    assert "append_dim" in fault.advice


def test_a_folder_of_other_files_names_some_of_them(tmp_path):
    for name in ("a.npy", "b.npy"):
        (tmp_path / "others").mkdir(exist_ok=True)
        (tmp_path / "others" / name).write_bytes(b"x")
    with pytest.raises(StorageError, match=r"one format of tables: a\.npy, b\.npy\. Load each"):
        hyperplane.load(tmp_path / "others")


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("keras.src.models.model", "Model", "model.save"),
        ("torch.nn.modules.module", "Module", "torch.export.export"),
        ("torch.export.exported_program", "ExportedProgram", "torch.export.save"),
        ("torch", "Tensor", "tensor.numpy"),
        ("xgboost.core", "Booster", "save_model"),
    ],
)
def test_objects_of_networks_are_refused_with_the_way_to_save_them(
    module: str, name: str, advice: str, tmp_path: pathlib.Path
) -> None:
    network = type("Network", (type(name, (), {"__module__": module}),), {})()
    with pytest.raises(RequestError, match="obj = Network: expected a Dask") as caught:
        hyperplane.save(network, tmp_path / "network")
    assert advice in caught.value.faults[0].advice
