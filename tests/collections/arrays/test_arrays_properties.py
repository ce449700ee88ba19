"""Property tests: ``open_zarr_many`` equals xarray for random stores."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scale import scaled
from zarr_stores import FORMS, one_by_one, write

from hyperplane.array import open_zarr_many
from hyperplane.errors import RequestError

pytestmark = pytest.mark.slow

NUMBERS = ["i2", "i4", "i8", "u1", "f4", "f8", "bool", "M8[ns]", "m8[ns]", "c16"]
TEXTS = ["U3", "O"]  # xarray cannot add missing values to those of Zarr 2
ATTRS = st.dictionaries(
    st.sampled_from(["title", "units_of", "n"]),
    st.one_of(st.integers(0, 2), st.sampled_from(["a", "b"])),
    max_size=2,
)
#: Conflicts are rare, because otherwise nearly all combinations would fail.
SELDOM = st.sampled_from([False] * 7 + [True])
SLOW = settings(
    max_examples=scaled(3, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking writes stores for minutes
)


def values(rng, kind, shape):
    whole = rng.integers(0, 3, shape)
    if kind in ("U3", "O"):
        return np.array(["é", "bb", "ccc"], dtype=kind)[whole]
    if kind == "M8[ns]":
        return np.datetime64("2020-01-01", "ns") + whole.astype("m8[D]").astype("m8[ns]")
    if kind == "m8[ns]":
        return whole.astype("m8[h]").astype("m8[ns]")
    array = whole.astype(kind)
    if array.dtype.kind == "f":
        array[rng.random(shape) < 0.2] = np.nan
    return array


@st.composite
def parts(draw, dim="t"):
    """Several data sets along a dimension, which may overlap and may conflict."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    count = draw(st.integers(1, 4).map(lambda n: 5 - n))
    kinds = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3))
    if draw(SELDOM):
        kinds.append(draw(st.sampled_from(TEXTS)))
    coordinate = draw(st.sampled_from(["M8[ns]", "i8", "i8", "U3", "none"]))
    static = draw(st.booleans())
    same_attrs, same_values = not draw(SELDOM), not draw(SELDOM)
    attrs = draw(ATTRS)
    common = values(rng, "f8", (2, 3))
    overlap = draw(st.integers(0, 2)) if draw(SELDOM) else 0
    whole = pd.date_range("2020-01-01", periods=40) if coordinate == "M8[ns]" else np.arange(40)
    if coordinate == "U3":
        whole = np.array([f"{n:03d}" for n in whole])
    datasets, start = [], 0
    for _ in range(count):
        length = draw(st.integers(1, 4))
        labels = whole[start : start + length]
        start = max(0, start + length - overlap)
        coords = {"x": [1.0, 2.0, 4.0]}
        if coordinate != "none":
            coords[dim] = labels
        if static:
            coords["area"] = (("y", "x"), common)
        coords["scalar"] = 1 if same_values else draw(st.sampled_from([1, 2]))
        dataset = xr.Dataset(
            {
                f"v{n}": (
                    (dim, "x") if n % 2 else (dim,),
                    values(rng, kind, (length, 3) if n % 2 else (length,)),
                )
                for n, kind in enumerate(kinds)
            },
            coords=coords,
            attrs=attrs if same_attrs else draw(ATTRS),
        )
        if static:
            seed = 1 if same_values else draw(st.sampled_from([1, 2]))
            dataset["mask"] = ("x", values(np.random.default_rng(seed), "f4", 3))
            dataset["mask"].attrs = attrs if same_attrs else draw(ATTRS)
        datasets.append(dataset)
    return datasets


def outcome(make):
    """Return a loaded data set, or None if an error was raised."""
    try:
        return make().compute()
    except (RequestError, ValueError, TypeError):  # texts to which xarray cannot add missing values
        return None


def compare(datasets, forms, ours, theirs):
    with tempfile.TemporaryDirectory() as folder:
        urls = [
            write(one, Path(folder) / f"{n}.zarr", *form)
            for n, (one, form) in enumerate(zip(datasets, forms, strict=False))
        ]
        mine = outcome(lambda: ours(urls))
        opened = one_by_one(urls, decode_timedelta=True)
        expected = outcome(lambda: theirs(opened))
        assert (mine is None) == (expected is None)
        if mine is None:
            return
        xr.testing.assert_identical(mine, expected)
        for name, variable in expected.variables.items():
            assert mine[name].dims == variable.dims
            dtype = variable.dtype
            if dtype.kind == "m" and not variable.size:
                # xarray's merge gives empty durations the unit s; ours keep the unit of the stores.
                dtype = np.result_type(*(one[name].dtype for one in opened if name in one))
            assert mine[name].dtype == dtype
        lazy = ours(urls)
        for zarr_format in (2, 3):
            url = write(lazy, Path(folder) / f"out{zarr_format}.zarr", zarr_format)
            again = open_zarr_many(url, decode_timedelta=True)
            xr.testing.assert_equal(again.compute(), mine)


COMPATS = ["no_conflicts"] * 4 + ["override", "equals", "broadcast_equals", "identical"]
FORM_LISTS = st.lists(st.sampled_from(FORMS), min_size=4, max_size=4)
COMBINE_ATTRS = st.sampled_from(["no_conflicts", "override", "drop", "drop_conflicts", "identical"])


@pytest.mark.slow
@SLOW
@given(
    parts(),
    FORM_LISTS,
    st.sampled_from(COMPATS),
    COMBINE_ATTRS,
    st.sampled_from(["outer", "outer", "outer", "inner", "exact"]),
)
def test_merge(datasets, forms, compat, combine_attrs, join):
    rules = {"compat": compat, "combine_attrs": combine_attrs, "join": join}
    compare(
        datasets,
        forms,
        lambda urls: open_zarr_many(urls, decode_timedelta=True, **rules),
        lambda opened: xr.merge(opened, **rules),
    )


@SLOW
@given(
    parts(),
    FORM_LISTS,
    st.sampled_from(COMPATS),
    COMBINE_ATTRS,
    st.sampled_from(["t", "new", "scalar"]),
)
def test_concat(datasets, forms, compat, combine_attrs, dim):
    rules = {"compat": compat, "combine_attrs": combine_attrs, "join": "outer"}
    compare(
        datasets,
        forms,
        lambda urls: open_zarr_many(
            urls, combine="concat", concat_dim=dim, decode_timedelta=True, **rules
        ),
        lambda opened: xr.concat(
            opened,
            dim,
            data_vars="minimal" if dim == "t" else "all",
            coords="minimal",
            **rules,
        ),
    )


def test_empty_durations_keep_the_unit_of_the_stores(tmp_path):
    def dataset(first):
        hours = np.arange(3).astype("timedelta64[h]").astype("timedelta64[ns]")
        return xr.Dataset({"v": ("t", hours)}, coords={"t": np.arange(first, first + 3)})

    urls = [write(dataset(n), tmp_path / f"{n}.zarr", 2, False) for n in (0, 3)]
    merged = open_zarr_many(urls, decode_timedelta=True, join="inner")
    assert (merged.v.dtype, merged.v.size) == (np.dtype("timedelta64[ns]"), 0)
