"""Pieces of which output partitions of a sampled shuffle are made."""

from __future__ import annotations

import operator

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest

import hyperplane
from hyperplane.collections.frames import exchange_memory, table_join, task_graph
from hyperplane.forecasts.collection_graph import make_request, materialize
from hyperplane.forecasts.exact_inputs import plan_steps
from hyperplane.forecasts.model import build_model
from hyperplane.forecasts.records import SampleResult
from hyperplane.forecasts.sample_process import SampleRunner
from hyperplane.forecasts.sampled_pieces import choose_pieces, measure_outputs, rotate_pieces

TASKS = {"dataframe.shuffle.method": "tasks"}


def choose(number, tables, slots, most):
    names = range(slots)
    places = {name: list(tables)[name % len(tables)] for name in names}
    return choose_pieces(dict.fromkeys(names, number), places, tables, most, len)


def test_pieces_with_the_next_numbers_take_the_place_of_those_that_were_not_sampled():
    tables = {"t": dict(enumerate("abcd")), "u": dict(enumerate("ABCD"))}
    chosen, size = choose(1, tables, slots=6, most=3)
    assert list(chosen.values()) == ["b", "B", "c", "C", "d", "D"]
    assert size == 6
    chosen, _ = choose(3, tables, slots=6, most=3)
    assert list(chosen.values()) == ["d", "D", "a", "A", "b", "B"]
    # Both tables of a join use as few numbers as that which needs the fewest.
    chosen, _ = choose(1, tables, slots=6, most=2)
    assert list(chosen.values()) == ["b", "B", "c", "C", "b", "B"]


def test_a_sampled_output_is_not_larger_than_a_mean_one():
    tables = {"t": {0: "a" * 16, 1: "b", 2: "c" * 2, 3: "d"}}  # 16 of 20 rows have one key
    chosen, size = choose(0, tables, slots=4, most=4)
    assert [len(piece) for piece in chosen.values()] == [16, 1, 2, 0]
    assert size == 19  # of 20: enough
    chosen, size = choose(0, tables, slots=3, most=4)
    assert [len(piece) for piece in chosen.values()] == [16, 0, 0]
    assert size == 16


def test_the_pieces_of_sorted_tables_are_those_that_have_rows():
    tables = {"t": {0: "aaaa", 1: "", 2: "", 3: ""}, "u": {0: "", 1: "", 2: "BBBB", 3: ""}}
    chosen, size = choose(1, tables, slots=4, most=1)
    assert list(chosen.values()) == ["BBBB", "", "", ""]
    assert size == 4
    nothing = {"t": {0: "", 1: ""}}
    assert choose(1, nothing, slots=2, most=1) == ({0: "", 1: ""}, 0)


def test_the_bytes_of_output_partitions_are_those_of_pieces_or_of_their_rows():
    frame = pd.DataFrame({"_partitions": [0, 4, 4, 8, 1, 5], "a": range(6)})
    assert measure_outputs({0: frame[:4], 1: frame[4:]}, 2, len) == {0: 4, 1: 2}
    # In the first of two stages a piece has the rows of several outputs.
    pieces = {0: frame[:4], 1: frame[4:], 2: frame[:0]}
    assert measure_outputs(pieces, 9, lambda part: 10 * len(part)) == {
        0: 10, 4: 20, 8: 10, 1: 10, 5: 10,
    }  # fmt: skip
    assert measure_outputs({0: frame[["a"]]}, 9, len) == {}


@pytest.fixture
def table():
    import dask.dataframe as dd

    frame = pd.DataFrame({"key": np.arange(4000) % 50, "value": 1.0, "text": "text"})
    return lambda parts: dd.from_pandas(frame, npartitions=parts)


@pytest.mark.parametrize(("parts", "stages"), [(4, 1), (40, 2)])
def test_pieces_are_found_in_shuffles_with_tasks(table, parts, stages):
    with dask.config.set(TASKS):
        graph = materialize(table(parts).shuffle("key"), TASKS)
    splits = graph.info.splits
    assert splits
    assert {split.stage for split in splits.values()} == set(range(stages))
    assert {split.outputs for split in splits.values()} == {parts}
    for number, split in splits.items():
        [key] = graph.units.units[number].members
        assert graph.tasks[key].func is operator.getitem
        assert key[1] == split.number
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        assert not materialize(table(parts).shuffle("key"), {}).info.splits


def test_dask_divides_a_table_into_views():
    """That a piece keeps the whole table is what the simulation expects of Dask and pandas."""
    from dask.dataframe.shuffle import shuffle_group

    frame = pd.DataFrame({"key": np.arange(4000) % 7, "value": 1.0, "_partitions": 0})
    frame["_partitions"] = frame.key % 3
    pieces = shuffle_group(frame, "_partitions", 0, 3, 3, False, 3)
    bases = {id(piece["value"].to_numpy().base) for piece in pieces.values()}
    ends = [piece["value"].to_numpy().ctypes.data for piece in pieces.values()]
    sizes = [len(piece) * 8 for piece in pieces.values()]
    assert len(bases) == 1 or [ends[0] + sizes[0], ends[1] + sizes[1]] == ends[1:]


def test_tables_that_are_used_once_have_no_more_pieces():
    table = pl.DataFrame({"a": [1]})
    pieces = [table, table.clear()]
    assert [each.height for each in rotate_pieces(pieces, 1, True)] == [0, 1]
    assert [each.height for each in rotate_pieces(pieces, 2, True)] == [0, 0]


def join_tables(parts, rows):
    # A right side in files would be read by each task, and not exchanged.
    left, right = (
        dd.from_pandas(pd.DataFrame({"key": np.arange(parts * rows), side: 1.0}), npartitions=parts)
        for side in ("left", "right")
    )
    return hyperplane.dataframe.join(left, right, "key")


@pytest.mark.slow
@pytest.mark.parametrize("in_files", [False, True])
def test_a_join_of_this_package_has_as_many_rows_in_the_sample_as_in_the_job(
    in_files, tmp_path, monkeypatch
):
    if in_files:
        monkeypatch.setattr(exchange_memory, "_SHARE_IN_MEMORY", 0)
    parts, rows = 16, 16_000
    graph = materialize(join_tables(parts, rows), {})
    assert bool(graph.info.taken) == in_files
    steps = plan_steps(graph, 0.05)
    request = make_request(graph, steps, str(tmp_path / "written"), {})
    records, _ = SampleRunner(request, tmp_path).run()
    (size,) = [
        sum(record.outputs) for step, record in zip(steps, records, strict=True) if step.rotated
    ]
    # Three columns; with the same pieces of three tables each time it would be five times as much.
    expected = parts * rows / len(graph.info.receivers) * 3 * 8
    assert size == pytest.approx(expected, rel=0.15)
    model = build_model(graph.units, graph.info, steps, SampleResult(tuple(records), 0, True))
    assert any(fitted.in_files for fitted in model.classes) == in_files
    # Pieces in files are an input of a certain size, but no memory.
    taken = {graph.units.units[number].kind for number in graph.info.taken}
    assert all(model.classes[kind].output.value > 1000 for kind in taken)
    assert not any(model.units[number].output for number in graph.info.taken)


def test_a_table_of_one_partition_is_joined_in_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange_memory, "_SHARE_IN_MEMORY", 0)
    monkeypatch.setattr(table_join, "_choose_small_side", lambda sides, how: None)
    left, right = (
        dd.from_pandas(pd.DataFrame({"key": np.arange(8000), side: 1.0}), npartitions=parts)
        for side, parts in (("left", 1), ("right", 8))
    )
    graph = materialize(hyperplane.dataframe.join(left, right, "key"), {})
    steps = plan_steps(graph, 0.05)
    records, _ = SampleRunner(
        make_request(graph, steps, str(tmp_path / "written"), {}), tmp_path
    ).run()
    outputs = [
        sum(record.outputs) for step, record in zip(steps, records, strict=True) if step.rotated
    ]
    assert len(outputs) == 1
    assert outputs[0] > 3 * 8 * 100  # has rows of both tables


def test_joins_of_lists_of_several_tables_get_no_other_pieces(monkeypatch):
    """The sample has few tables: such a list would have their rows several times."""
    monkeypatch.setattr(exchange_memory, "_SHARE_IN_MEMORY", 0)
    assert materialize(join_tables(16, 16_000), {}).info.receivers
    monkeypatch.setattr(task_graph, "_MAX_SENDERS", 8)
    info = materialize(join_tables(16, 16_000), {}).info
    assert not info.receivers
    assert not info.taken
