"""Data of estimators: every documented form, the division of rows among ranks, and faults."""

from __future__ import annotations

import itertools

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

from hyperplane.errors import DataError, RequestError
from hyperplane.ml import XShards
from hyperplane.ml.estimators import training_data
from hyperplane.ml.estimators.training_data import (
    count_step_rows,
    count_steps,
    divide_rows,
    find_training_data_faults,
    join_pieces,
    order_rows,
    prepare_training_data,
)

pytestmark = pytest.mark.cluster
X = np.arange(22, dtype=np.float32).reshape(11, 2)
Y = np.arange(11)
FRAME = pd.DataFrame({"a": X[:, 0].astype(float), "b": X[:, 1].astype(float), "y": Y})
COLUMNS = {"feature_cols": ["a", "b"], "label_cols": "y"}


def _shards(lengths, make):
    bounds = itertools.pairwise(np.cumsum([0, *lengths]))
    return XShards([delayed(make(*limits), traverse=False) for limits in bounds])


FORMS = {
    "numpy": lambda: (X, Y),
    "numpy dict": lambda: {"x": X, "y": Y},
    "dask arrays": lambda: (da.from_array(X, chunks=(3, 2)), da.from_array(Y, chunks=3)),
    "dask dict": lambda: {"x": [da.from_array(X, chunks=(4, 2))], "y": da.from_array(Y, chunks=4)},
    "shards": lambda: _shards([2, 9], lambda a, b: {"x": X[a:b], "y": Y[a:b]}),
    "one shard": lambda: _shards([11], lambda a, b: {"x": X[a:b], "y": Y[a:b]}),
    "empty shards": lambda: _shards([0, 3, 0, 8], lambda a, b: {"x": (X[a:b],), "y": [Y[a:b]]}),
}
TABLES = {
    "pandas": lambda: FRAME,
    "dask": lambda: dd.from_pandas(FRAME, npartitions=3),
    "shards": lambda: _shards([2, 9], lambda a, b: FRAME.iloc[a:b]),
}


def _ranks(client, data):
    """Arrays of each rank, divided as a gang does it."""
    pieces = client.gather(data.partitions)
    size = len(pieces) // len(data.rows)
    return [join_pieces(pieces[size * r : size * (r + 1)]) for r in range(len(data.rows))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_get_even_numbers_of_rows_in_order(client, form, ranks):
    data = prepare_training_data(client, FORMS[form](), ranks)
    shares = _ranks(client, data)
    assert data.rows == tuple(len(x[0]) for x, _ in shares)
    assert data.total == 11
    assert max(data.rows) - min(data.rows) <= 1
    np.testing.assert_array_equal(np.concatenate([x[0] for x, _ in shares]), X)
    np.testing.assert_array_equal(np.concatenate([y[0] for _, y in shares]), Y)


@pytest.mark.parametrize("form", TABLES)
def test_each_column_of_a_table_is_one_input(client, form):
    data = prepare_training_data(client, TABLES[form](), 2, **COLUMNS)
    shares = _ranks(client, data)
    assert data.rows == (5, 6)
    for number, name in enumerate("ab"):
        joined = np.concatenate([x[number] for x, _ in shares])
        assert joined.dtype == np.float32
        np.testing.assert_array_equal(joined, FRAME[name])
    labels = np.concatenate([y[0] for _, y in shares])
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, Y)


def test_cells_that_are_arrays_are_stacked(client):
    frame = pd.DataFrame({"x": list(X.astype(float)), "y": [1.0, None, *[True] * 9]})
    frame["y"] = frame["y"].astype(float)
    shares = _ranks(client, prepare_training_data(client, frame, 2, "x", "y"))
    np.testing.assert_array_equal(np.concatenate([x[0] for x, _ in shares]), X)
    assert np.isnan(shares[0][1][0][1])


def test_large_arrays_are_sent_to_the_workers(client, monkeypatch):
    monkeypatch.setattr(training_data, "_GRAPH_BYTES", 0)
    shares = _ranks(client, prepare_training_data(client, (X, Y), 2))
    np.testing.assert_array_equal(np.concatenate([x[0] for x, _ in shares]), X)


def test_data_without_labels_is_for_predictions_only(client):
    data = prepare_training_data(client, X, 2, needs_labels=False)
    assert [y for _, y in _ranks(client, data)] == [None, None]
    with pytest.raises(RequestError, match="arrays without labels"):
        prepare_training_data(client, X, 2)
    with pytest.raises(DataError, match="no labels"):
        prepare_training_data(client, _shards([5, 6], lambda a, b: {"x": X[a:b]}), 2)


def test_all_faults_of_columns_are_listed_at_once():
    frame = FRAME.assign(name="text", when=pd.Timestamp("2024-01-01"))
    faults = find_training_data_faults(frame, ["a", "bb", "name"], ["when", "z"])
    assert [fault.where for fault in faults] == ["feature_cols"] * 2 + ["label_cols"] * 2
    assert "a column of the data: a, b, y" in str(faults[0])
    lazy = dd.from_pandas(FRAME.rename(columns={"a": "age"}), npartitions=2)
    faults = find_training_data_faults(lazy, ["agee"])
    assert [fault.where for fault in faults] == ["feature_cols", "label_cols"]
    assert faults[0].advice == "did you mean age?"


@pytest.mark.parametrize(
    ("data", "columns", "words"),
    [
        (5, {}, "an object of type int"),
        ((X, "text"), {}, "an object of type str"),
        ({"x": X, "z": Y}, {}, "data = an object of type dict"),
        ((X, Y[:4]), {}, "arrays of [4, 11] rows"),
        ((da.from_array(X, chunks=3), Y), {}, "arrays of one kind"),
        ((da.from_array(X, chunks=(3, 1)), da.from_array(Y, chunks=3)), {}, "whole rows"),
        ((da.from_array(X, chunks=(3, 2)), da.from_array(Y, chunks=4)), {}, "different chunks"),
        ((X, Y), {"feature_cols": "a"}, "only data of tables has columns"),
        (FRAME, {"feature_cols": ["a", "a"], "label_cols": 3}, "different names"),
        (np.array(["a"]), {}, "an array of <U1"),
    ],
)
def test_data_of_another_form_is_refused(data, columns, words):
    shown = "\n".join(map(str, find_training_data_faults(data, **columns)))
    assert words in shown


def test_partitions_of_different_form_and_too_few_rows_are_refused(client):
    mixed = _shards([5, 6], lambda a, b: {"x": X[a:b, : 1 + (a > 0)], "y": Y[a:b]})
    with pytest.raises(RequestError, match="partition 1 has rows of"):
        prepare_training_data(client, mixed, 2)
    with pytest.raises(RequestError, match="data of 1 row: "):
        prepare_training_data(client, (X[:1], Y[:1]), 2)
    uneven = _shards([5, 6], lambda a, b: {"x": X[a:b], "y": Y[:2]})
    with pytest.raises(DataError, match=r"have \[2, 5\] rows|have \[2, 6\] rows"):
        prepare_training_data(client, uneven, 2)


def test_steps_and_rows_of_steps_cover_all_rows():
    for lengths in ([7], [3, 4, 0, 12], [1] * 9):
        for ranks in (1, 2, 5):
            shares = divide_rows(lengths, ranks)
            rows = [sum(stop - start for _, start, stop in share) for share in shares]
            for batch in (1, 3, 100):
                steps = count_steps(rows, batch)
                sizes = [count_step_rows(rows, batch, step) for step in range(steps)]
                assert sum(sizes) == sum(lengths)
                assert min(sizes) > 0


def test_the_order_of_rows_is_repeatable():
    first = order_rows(50, True, 1, 2, 3)
    assert sorted(first) == list(range(50))
    np.testing.assert_array_equal(first, order_rows(50, True, 1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert (order_rows(50, True, *other) != first).any()
    np.testing.assert_array_equal(order_rows(4, False, 1, 2, 3), range(4))
