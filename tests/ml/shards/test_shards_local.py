"""XShards without a cluster: construction, transformation, selection, conversion, bad input."""

from __future__ import annotations

import functools
import threading

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from hyperplane.errors import (
    HyperplaneError,
    OutputExists,
    ReadError,
    RequestError,
)
from hyperplane.ml import SharedValue, XShards, read_csv
from hyperplane.orca import OrcaContext

LOCK = threading.Lock()

pytestmark = pytest.mark.usefixtures("compute_here")


def test_partition_splits_every_leaf_as_array_split_and_keeps_the_structure():
    rows = np.arange(10)
    data = {"x": (rows, [rows * 2, {"deep": rows.reshape(5, 2).repeat(2, axis=0)}]), "y": rows}
    found = XShards.partition(data, num_shards=4).collect()
    assert [shard["y"].tolist() for shard in found] == [x.tolist() for x in np.array_split(rows, 4)]
    for shard in found:
        assert type(shard["x"]) is tuple
        assert type(shard["x"][1]) is list
        assert (shard["x"][1][0] == 2 * shard["y"]).all()
        assert shard["x"][1][1]["deep"].shape == (len(shard["y"]), 2)


def test_twenty_images_on_more_cores_have_one_shard_for_each_row(monkeypatch):
    monkeypatch.setattr("hyperplane.ml.shards.construction.count_threads", lambda: 64)
    assert XShards.partition([np.zeros((20, 3)), np.zeros(20)]).num_partitions() == 20


def test_all_faults_of_partition_are_raised_together():
    data = {"x": np.zeros(3), "y": [np.zeros(4), "text"], "z": np.float64(1)}
    with pytest.raises(RequestError) as caught:
        XShards.partition(data, num_shards=0)
    text = str(caught.value)
    for part in [
        "data['y'][1]",
        "data['z']",
        "num_shards",
        "data['x'] has 3",
        "data['y'][0] has 4",
    ]:
        assert part in text


@pytest.mark.parametrize("data", [{}, [], (), 5, None, {"x": []}, np.zeros(0), {"x": {"y": "a"}}])
def test_data_without_arrays_is_a_fault(data):
    with pytest.raises(RequestError, match="data"):
        XShards.partition(data)


def test_fewer_rows_than_shards_is_a_fault():
    with pytest.raises(RequestError, match="smaller than the total number of shards, 4"):
        XShards.partition(np.zeros(3), num_shards=4)


def test_transformations_are_lazy():
    calls = []
    shards = XShards.partition(np.arange(4), num_shards=2)
    lazy = shards.transform_shard(lambda shard, plus: calls.append(1) or shard + plus, 10)
    assert not calls
    assert not lazy.is_cached()
    assert np.concatenate(lazy.collect()).tolist() == [10, 11, 12, 13]
    lazy.cache().collect()
    assert (len(calls), lazy.is_cached()) == (4, True)
    lazy.collect()
    assert len(calls) == 4
    lazy.uncache().first()
    assert (len(calls), lazy.is_cached()) == (5, False)


def test_a_function_keeps_the_variables_of_its_definition():
    shards = first = XShards.partition(np.arange(4), num_shards=2)
    for number in (1, 10):
        shards = shards.transform_shard(lambda shard: shard + number)  # noqa: B023
    namespace = {"shards": first, "__name__": "__main__"}
    exec(
        "for number in (1, 10):\n    shards = shards.transform_shard(lambda shard: shard + number)",
        namespace,
    )
    for found in (shards, namespace["shards"]):
        assert np.concatenate(found.collect()).tolist() == [11, 12, 13, 14]

    def plus(shard, number=0, *, more=5):
        return shard + number + more + base

    bound = first.transform_shard(functools.partial(plus, number=1))
    base = 100
    assert np.concatenate(bound.collect()).tolist() == [106, 107, 108, 109]


def test_eager_mode_computes_new_shards():
    shards = XShards.partition(np.arange(4), num_shards=2)
    OrcaContext._eager_mode = True
    try:
        assert shards.transform_shard(abs).is_cached()
        assert not shards[0].is_cached()
        assert not XShards(shards.parts).to_lazy().is_cached()
        assert not XShards.lazy(shards.parts).is_cached()
    finally:
        OrcaContext._eager_mode = False
    assert not shards.transform_shard(abs).is_cached()


def test_an_error_of_a_shard_names_the_shard():
    shards = XShards.partition(np.arange(4), num_shards=2)
    with pytest.raises(ZeroDivisionError) as caught:
        shards.transform_shard(lambda shard: 1 // int(shard[0])).collect()
    assert "in shard 0 of 2" in caught.value.__notes__[0]


def _uses_lock(shard):
    return LOCK, shard


class _Holder:
    def __init__(self):
        self.handle = threading.Lock()

    def apply(self, shard):
        return self.handle, shard


def _closure():
    good, bad = 1, threading.Lock()
    return lambda shard: (good, bad, shard)


def _nested():
    inner = _closure()
    return lambda shard: inner(shard)


def _default(shard, guard=threading.Lock()):  # noqa: B008 - the mistake of the test
    return guard, shard


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (_closure(), "'bad'"),
        (_nested(), "'inner.bad'"),
        (_Holder().apply, "'self.handle'"),
        (functools.partial(lambda lock, shard: shard, threading.Lock()), r"'args\[0\]'"),
        (5, "a function"),
    ],
)
def test_a_function_that_does_not_pickle_names_the_variable(func, name):
    shards = XShards.partition(np.arange(4), num_shards=2)
    with pytest.raises(RequestError, match=name) as caught:
        shards.transform_shard(func)
    assert "good" not in str(caught.value)


def test_repartition_keeps_rows_in_order(frame):
    shards = XShards.partition(frame, num_shards=5)
    for count in (1, 2, 5, 7, 8):
        found = shards.repartition(count)
        assert found.num_partitions() == count == len(found.collect())
        pd.testing.assert_frame_equal(found.concat_to_pdf(), frame)
    nested = XShards.partition({"x": (np.arange(6), np.ones(6))}, num_shards=3).repartition(2)
    assert [shard["x"][0].tolist() for shard in nested.collect()] == [[0, 1, 2, 3], [4, 5]]
    lists = XShards.from_bag(db.from_sequence(range(5), npartitions=5)).repartition(2)
    assert lists.collect() == [[0, 1, 2], [3, 4]]
    with pytest.raises(TypeError, match="repartition cannot"):
        nested.transform_shard(str).repartition(1).collect()


def test_zip_split_and_selection(shards):
    pairs = shards.zip(shards["price"].transform_shard(lambda prices: prices.sum()))
    assert [total for _, total in pairs.collect()] == [12, 15, 8]
    frames, totals = pairs.split()
    assert totals.collect() == [12, 15, 8]
    assert len(frames) == 8
    assert shards.split() == [shards]
    with pytest.raises(RequestError, match="same number of partitions"):
        shards.zip(shards.repartition(2))
    uneven = shards.transform_shard(lambda shard: list(shard["price"]))
    with pytest.raises(RequestError, match="different split length: 3, 3, 2"):
        uneven.split()


def test_len_counts_rows_and_keys(shards):
    assert len(shards) == 8
    assert len(XShards.partition({"x": np.ones(4), "y": np.ones(4)}, num_shards=2)) == 4
    assert len(shards.transform_shard(lambda shard: 5)) == 3


def test_unknown_keys_list_the_columns(shards):
    with pytest.raises(RequestError, match=r"Invalid key for this XShards.*'city', 'price'"):
        shards["prize"].collect()
    with pytest.raises(RequestError, match="No selection operation available"):
        shards.transform_shard(len)["x"].collect()


def test_first_take_head_and_unique(shards, frame):
    pd.testing.assert_frame_equal(shards.first(), frame[:3])
    assert [len(shard) for shard in shards.take(2)] == [3, 3]
    pd.testing.assert_frame_equal(shards.head(5), frame[:5])
    assert len(shards.head(0)) == 0
    assert len(shards.head(100)) == 8
    assert sorted(shards["city"].unique()) == ["a", "b", "c"]
    with pytest.raises(RequestError, match="Pandas Series"):
        shards.unique()


def test_pickles_are_complete_or_refused(shards, frame, tmp_path):
    folder = tmp_path / "saved"
    assert shards.save_pickle(folder) is shards
    pd.testing.assert_frame_equal(XShards.load_pickle(folder).concat_to_pdf(), frame)
    assert XShards.load_pickle(folder, minPartitions=4).num_partitions() == 4
    with pytest.raises(OutputExists):
        shards.save_pickle(folder)
    (tmp_path / "file").touch()
    with pytest.raises(OutputExists):
        shards.save_pickle(tmp_path / "file")
    with pytest.raises(RequestError, match="not a device"):
        shards.save_pickle("/dev/null")
    (folder / "_SUCCESS").unlink()
    with pytest.raises(RequestError, match="no file _SUCCESS"):
        XShards.load_pickle(folder)
    with pytest.raises(RequestError, match="does not exist"):
        XShards.load_pickle(tmp_path / "other")


def test_split_returns_parts_of_the_same_call():
    draws = XShards.partition(np.arange(4), num_shards=2).transform_shard(_draw_twice)
    first, second = draws.split()
    assert first.collect() == second.collect()


def _draw_twice(shard):
    number = np.random.default_rng().random()
    return number, number


def test_joined_masked_arrays_keep_their_masks():
    array = np.ma.masked_array([1, 2, 3], mask=[False, True, False])
    joined = XShards.partition(array, num_shards=2).repartition(1).first()
    assert joined.mask.tolist() == [False, True, False]


def test_pickles_that_cannot_be_written_or_read_name_the_shard(tmp_path):
    shards = XShards.partition(np.arange(4), num_shards=2)
    with pytest.raises(HyperplaneError, match=r"shard \d, of type generator, cannot be pickled"):
        shards.transform_shard(lambda shard: (x for x in shard)).save_pickle(tmp_path / "no")
    folder = tmp_path / "Größe 数"
    shards.save_pickle(folder)
    (folder / "part-00001.pickle").write_bytes(b"\x80\x04")
    with pytest.raises(ReadError, match=r"part-00001\.pickle: .*Error"):
        XShards.load_pickle(folder).collect()
    (folder / "_SUCCESS").write_text("9" * 20)
    with pytest.raises(RequestError, match="no valid number of shards"):
        XShards.load_pickle(folder)


def test_conversions_keep_the_data(shards, frame):
    df = shards.to_dataframe()
    assert df.npartitions == 3
    pd.testing.assert_frame_equal(df.compute(), frame)
    pd.testing.assert_frame_equal(XShards.from_dataframe(df).to_pandas(), frame)
    array = da.arange(12, chunks=5).reshape(6, 2).rechunk((4, 1))
    blocks = XShards.from_array(array)
    assert blocks.first().shape == (4, 2)
    assert (blocks.to_array().compute() == array.compute()).all()
    assert blocks.cache().to_array().shape == (6, 2)
    bag = XShards.from_bag(db.from_sequence([1, 2, 3], npartitions=2))
    assert bag.to_bag().sum().compute() == 6
    assert shards.to_bag().pluck("price").max().compute() == 9
    for call in (XShards.from_dataframe, XShards.from_array, XShards.from_bag):
        with pytest.raises(RequestError, match="of type DataFrame"):
            call(frame)
    with pytest.raises(RequestError, match="select one first"):
        XShards.partition({"x": np.ones(2)}, num_shards=1).to_array()


def test_a_shared_value_without_a_cluster(shards):
    zones = SharedValue({"a": 1, "b": 2, "c": 3})
    found = shards.transform_shard(lambda shard, zones: shard["city"].map(zones.value), zones)
    assert sorted(found.unique()) == [1, 2, 3]
    zones.unpersist()
    with pytest.raises(RequestError, match="unpersisted"):
        zones.value  # noqa: B018 - the property raises


def test_dataframes_of_dask_keep_their_plan():
    df = dd.from_pandas(pd.DataFrame({"a": range(4)}), npartitions=2)
    assert XShards.from_dataframe(df[df.a > 1]).concat_to_pdf()["a"].tolist() == [2, 3]


def test_data_that_contains_itself_and_collections_of_dask_are_faults():
    data = []
    data.append(data)
    with pytest.raises(RequestError, match="contains itself"):
        XShards.partition(data)
    with pytest.raises(RequestError, match=r"use XShards\.from_array"):
        XShards.partition({"x": da.ones(3)})
    with pytest.raises(RequestError, match="file_path = None"):
        read_csv(None)


def test_a_function_that_changes_its_shard_does_not_change_held_shards(frame):
    def change(shard):
        shard["x"] += 1
        shard["pair"][0][0] *= 0
        shard["frame"]["price"] = 0
        shard["frame"].loc[:, "rate"] = 5.0
        shard["new"] = 1
        return shard["x"].sum()

    data = {"x": np.arange(8), "pair": ([np.ones(8)], np.ones(8)), "frame": frame.copy()}
    shards = XShards.partition(data, num_shards=2)
    changed = shards.transform_shard(change)
    assert changed.collect() == changed.collect() == [10, 26]
    pd.testing.assert_frame_equal(shards["frame"].concat_to_pdf(), frame)
    assert list(shards.first()) == ["x", "pair", "frame"]
    assert data["x"].tolist() == list(range(8))


def test_attributes_that_need_spark_name_what_to_use(shards):
    with pytest.raises(
        AttributeError, match=r"not those of Spark; parts has one dask\.delayed object"
    ):
        shards.rdd.collect()
    with pytest.raises(AttributeError, match=r"no attribute 'rd'$"):
        shards.rd.collect()
