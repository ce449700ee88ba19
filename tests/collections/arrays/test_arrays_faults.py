"""Errors of ``open_zarr_many`` name the store and the reason."""

from __future__ import annotations

import pickle

import dask
import fsspec
import numpy as np
import pytest
import xarray as xr
from zarr_stores import Watched, month, write

import hyperplane
from hyperplane.array import open_zarr_many
from hyperplane.errors import HyperplaneError, RequestError


def faults_of(*args, **options):
    with pytest.raises(RequestError) as caught:
        open_zarr_many(*args, **options)
    return caught.value.faults


def test_all_wrong_arguments_are_reported_together():
    faults = faults_of(
        "x.zarr",
        combine="glue",
        compat="maybe",
        join="left or right",
        combine_attrs="some",
        decode_tims=False,
    )
    assert [fault.where for fault in faults] == [
        "combine",
        "compat",
        "combine_attrs",
        "join",
        "decode_tims",
    ]
    assert "decode_times" in faults[-1].allowed


def test_wrong_urls_are_reported_with_the_other_arguments():
    faults = faults_of([5], join="left or right", group=7)
    assert [fault.where for fault in faults] == ["join", "group", "urls[0]"]


def test_nested_lists_are_no_fault_of_an_unknown_combine():
    [fault] = faults_of([["a.zarr"], ["b.zarr"]], combine="nest")
    assert fault.where == "combine"


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"concat_dim": "time"}, "nothing"),
        ({"combine": "concat"}, "name of a dimension"),
        ({"combine": "concat", "concat_dim": ["time"]}, "one dimension"),
        ({"combine": "concat", "concat_dim": 3}, "name of a dimension"),
        ({"combine": "nested", "concat_dim": ["x", "y"]}, "one dimension for each level"),
    ],
)
def test_wrong_dimensions_are_faults(options, allowed):
    [fault] = faults_of(["x.zarr"], **options)
    assert fault.where == "concat_dim"
    assert allowed in fault.allowed


@pytest.mark.parametrize("urls", ["", None, 5, [], [""], [None], {"a": 1}])
def test_urls_of_a_wrong_type_are_faults(urls):
    [fault] = faults_of(urls)
    assert fault.where.startswith("urls")


@pytest.mark.parametrize("urls", ["a.zarr", [], [["a"], "b"], [["a"], [["b"]]]])
def test_irregular_nested_lists_are_faults(urls):
    assert faults_of(urls, combine="nested", concat_dim=["x", "y"])[0].where == "urls"


def test_a_glob_without_matches_is_a_fault(tmp_path):
    [fault] = faults_of(str(tmp_path / "*.zarr"))
    assert "none were found" in fault.allowed


def test_a_glob_in_nested_lists_is_a_fault(tmp_path):
    write(month(0), tmp_path / "a.zarr")
    [fault] = faults_of([str(tmp_path / "*.zarr")], combine="nested", concat_dim="time")
    assert fault.where == "urls[0]"
    assert "write the URL of each store" in fault.advice


def test_an_unknown_protocol_is_a_fault():
    [fault] = faults_of(["nowhere://a.zarr"])
    assert fault.where == "urls[0]"
    assert "nowhere" in fault.allowed


def test_all_broken_stores_are_reported_together(tmp_path):
    good = write(month(0), tmp_path / "good.zarr")
    no_json = write(month(1), tmp_path / "no_json.zarr")
    (tmp_path / "no_json.zarr" / ".zmetadata").write_text("{")
    short = write(month(2), tmp_path / "short.zarr")
    (tmp_path / "short.zarr" / "time" / "0").write_bytes(b"\x01\x02")
    empty = tmp_path / "empty.zarr"
    empty.mkdir()
    array = write(month(3), tmp_path / "array.zarr") + "/rain"
    missing = str(tmp_path / "missing.zarr")
    faults = faults_of([good, no_json, short, str(empty), array, missing])
    assert [fault.where for fault in faults] == [f"urls[{n}]" for n in (1, 2, 3, 4, 5)]
    assert [fault.asked for fault in faults] == [
        repr(str(url)) for url in (no_json, short, empty, array, missing)
    ]
    assert "JSON" in faults[0].advice
    assert "no Zarr group exists there" in faults[2].advice
    assert "no Zarr group exists there" in faults[4].advice


def test_a_missing_group_and_an_array_are_faults(tmp_path):
    url = write(month(0), tmp_path / "a.zarr")
    [fault] = faults_of(url, group="deep")
    assert fault.advice == "it has no group 'deep'"
    [fault] = faults_of(url, group="rain")
    assert "group='rain' is an array" in fault.advice


def test_conflicting_values_name_both_stores(tmp_path):
    parts = [month(0), month(0), month(0)]
    parts[2] = parts[2].assign(rain=parts[2].rain + 1, lat=parts[2].lat + 1)
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    faults = faults_of(urls)
    assert {fault.where for fault in faults} == {"variable 'rain'", "variable 'lat'"}
    assert all(urls[0] in fault.asked and urls[2] in fault.asked for fault in faults)
    assert all(urls[1] not in fault.asked for fault in faults)
    ours = open_zarr_many(urls, compat="override")
    xr.testing.assert_identical(ours.compute(), month(0))


@pytest.mark.parametrize("combine", ["nested", "by_coords"])
def test_conflicting_values_of_equal_shape_have_the_reason_of_xarray(tmp_path, combine):
    parts = [month(0), month(0).assign(rain=month(0).rain + 1)]
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    concat_dim = [None] if combine == "nested" else None
    [fault] = faults_of(urls, combine=combine, concat_dim=concat_dim)
    assert fault.where == "variable 'rain'"
    assert "conflicting values" in fault.advice


def test_conflicting_static_values_in_a_concatenation_name_both_stores(tmp_path):
    parts = [month(0), month(1)]
    parts[1] = parts[1].assign_coords(lat=parts[1].lat + 1)
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    [fault] = faults_of(urls, combine="concat", concat_dim="time", compat="equals")
    assert fault.where == "variable 'lat'"
    assert urls[0] in fault.asked
    assert urls[1] in fault.asked


def test_conflicting_attributes_name_both_stores_and_values(tmp_path):
    parts = [month(n) for n in range(3)]
    parts[2].attrs["title"] = "climate"
    parts[1]["rain"].attrs["units"] = "mm"
    parts[2]["rain"].attrs["units"] = "inch"
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    for options in ({}, {"combine": "concat", "concat_dim": "time"}, {"combine": "by_coords"}):
        title, units = faults_of(urls, **options)
        assert title.where == "attribute 'title' of the data set"
        assert title.asked == f"'weather' in {urls[0]!r}, 'climate' in {urls[2]!r}"
        assert units.where == "attribute 'units' of variable 'rain'"
        assert units.asked == f"'mm' in {urls[1]!r}, 'inch' in {urls[2]!r}"
    ours = open_zarr_many(urls, combine_attrs="drop_conflicts")
    assert ours.attrs == {}
    assert ours["rain"].attrs == {}


def test_different_indexes_with_join_exact_are_a_fault(tmp_path):
    urls = [write(month(n), tmp_path / f"{n}.zarr") for n in range(2)]
    [fault] = faults_of(urls, join="exact")
    assert fault.where == "index 'time'"
    assert urls[1] in fault.allowed


def test_a_coordinate_missing_in_some_stores_is_a_fault(tmp_path):
    parts = [month(0).assign_coords(hour=("time", np.arange(6))), month(1)]
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    [fault] = faults_of(urls, combine="concat", concat_dim="time")
    assert fault.where == "variable 'hour'"
    assert fault.asked == f"in {urls[0]!r}, not in {urls[1]!r}"


def test_different_sizes_are_a_fault(tmp_path):
    parts = [xr.Dataset({"a": ("x", np.arange(size))}) for size in (2, 3)]
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    [fault] = faults_of(urls)
    assert fault.where == "variable 'a'"
    assert f"{{'x': 3}} in {urls[1]!r}" in fault.asked


def test_faults_contain_no_secret(tmp_path, monkeypatch):
    async def refuse(self, path, *args, **kwargs):
        raise PermissionError("the key s3cr3t-key is refused for " + path)

    monkeypatch.setattr(Watched, "_cat_file", refuse)
    faults = faults_of(
        ["watched://me:passw0rd@place/a.zarr"], storage_options={"auth": {"key": "s3cr3t-key"}}
    )
    text = str(faults[0])
    assert "PermissionError" in text
    assert "s3cr3t-key" not in text
    assert "passw0rd" not in text


class TestMemoryStores:
    @pytest.fixture(autouse=True)
    def stores(self):
        self.urls = [write(month(n), f"memory://months/{n}.zarr") for n in range(2)]
        yield
        fsspec.filesystem("memory").store.clear()

    def test_memory_stores_are_read_by_this_process(self):
        assert open_zarr_many("memory://months/*.zarr").sizes["time"] == 12
        assert float(open_zarr_many(self.urls)["rain"].mean()) > 0

    def test_memory_stores_are_refused_for_other_processes(self):
        with dask.config.set(scheduler="processes"):
            faults = faults_of(self.urls)
            assert [fault.where for fault in faults] == ["urls[0]", "urls[1]"]
            assert "other processes" in faults[0].allowed
            loaded = open_zarr_many(self.urls, load=True)
        assert loaded.sizes["time"] == 12

    def test_reading_a_memory_store_in_another_process_fails(self, monkeypatch):
        data = open_zarr_many(self.urls)["rain"].data
        # With a scheduler in this process.
        sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(data))))
        assert float(sent.mean().compute(scheduler="sync")) > 0
        monkeypatch.setattr("os.getpid", lambda: -1)
        with pytest.raises(HyperplaneError, match="other processes"):
            sent.mean().compute(scheduler="sync")


@pytest.mark.cluster
def test_workers_read_stores_and_refuse_memory_stores(tmp_path):
    urls = [write(month(n), tmp_path / f"{n}.zarr", 3) for n in range(3)]
    inside = [write(month(n), f"memory://cluster/{n}.zarr") for n in range(2)]
    before = open_zarr_many(inside)
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=2, num_workers=1, ram_gb_per_proc=1
    )
    with cluster, client:
        ours = open_zarr_many(urls, combine="concat", concat_dim="time")
        expected = xr.concat(
            [month(n) for n in range(3)],
            "time",
            data_vars="minimal",
            coords="minimal",
            compat="equals",
            join="outer",
        )
        xr.testing.assert_equal(ours.compute(), expected)
        xr.testing.assert_equal(open_zarr_many(urls).compute(), expected)
        assert "other processes" in faults_of(inside)[0].allowed
        with pytest.raises(HyperplaneError, match="other processes"):
            before["rain"].mean().compute()
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("options", [{}, {"combine": "nested", "concat_dim": "time"}])
def test_a_damaged_chunk_names_its_store(tmp_path, options):
    urls = [write(month(n), tmp_path / f"{n}.zarr") for n in range(3)]
    chunk = tmp_path / "1.zarr" / "rain" / "0.0.0"
    chunk.write_bytes(chunk.read_bytes()[:9])
    data = open_zarr_many(urls, **options)
    assert float(data["wind"].mean().compute(scheduler="sync")) > 0
    with pytest.raises(HyperplaneError, match=f"variable 'rain' of '{urls[1]}' cannot be read"):
        data["rain"].mean().compute(scheduler="sync")
