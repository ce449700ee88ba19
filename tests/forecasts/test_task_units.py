"""Units and classes of toy graphs with known answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hyperplane.forecasts.task_units import MAX_LEVEL, divide_graph, find_leaves


def chain(parts=4):
    graph = {("read", part): [] for part in range(parts)}
    graph |= {("keep", part): [("read", part)] for part in range(parts)}
    return graph


def test_a_chain_on_one_partition_is_one_unit():
    graph = chain() | {("sum", 0): [("keep", part) for part in range(4)]}
    divided = divide_graph(graph, [("sum", 0)])
    assert divided.kinds == ("read, keep", "sum")
    assert [len(divided.members_of(kind)) for kind in (0, 1)] == [4, 1]
    assert divided.units[-1].inputs == tuple(("keep", part) for part in range(4))


def test_branches_of_one_partition_that_meet_again_are_one_unit():
    graph = {("read", 0): [], ("a", 0): [("read", 0)], ("b", 0): [("read", 0)]}
    graph[("mul", 0)] = [("a", 0), ("b", 0)]
    [unit] = divide_graph(graph, [("mul", 0)]).units
    assert set(unit.members) == set(graph)
    assert unit.outputs == (("mul", 0),)


def test_a_result_that_goes_to_several_tasks_of_a_layer_ends_a_unit():
    graph = {("read", 0): []} | {("split", 0, part): [("read", 0)] for part in range(3)}
    divided = divide_graph(graph, [("split", 0, part) for part in range(3)])
    assert [len(divided.members_of(kind)) for kind in range(2)] == [1, 3]


def test_two_tables_with_the_same_operations_are_different_classes():
    graph = {(table, part): [] for table in ("read-1", "read-2") for part in range(2)}
    graph |= {("merge", part): [("read-1", part), ("read-2", part)] for part in range(2)}
    assert len(divide_graph(graph, [("merge", 0), ("merge", 1)]).kinds) == 3


def test_levels_of_a_tree_are_classes_and_a_long_sequence_ends_in_one_class():
    graph = chain(16)
    graph |= {("sum", 0, i): [("keep", 4 * i + j) for j in range(4)] for i in range(4)}
    graph |= {("sum", 1, 0): [("sum", 0, i) for i in range(4)]}
    assert len(divide_graph(graph, [("sum", 1, 0)]).kinds) == 3
    graph = chain(40) | {("cum", 0): [("keep", 0)]}
    graph |= {("cum", i): [("keep", i), ("cum", i - 1)] for i in range(1, 40)}
    divided = divide_graph(graph, [("cum", i) for i in range(40)])
    assert MAX_LEVEL < len(divided.kinds) <= MAX_LEVEL + 4


def test_a_separate_task_is_a_unit_also_in_a_chain():
    graph = {"a": [], "barrier": ["a"], "b": ["barrier"]}
    divided = divide_graph(graph, ["b"], separate=["barrier"])
    assert [unit.members for unit in divided.units] == [("a",), ("barrier",), ("b",)]


def test_results_for_the_caller_are_outputs():
    graph = {"a": [], "b": ["a"]}
    assert divide_graph(graph, ["a", "b"]).units[0].outputs == ("a", "b")


def test_leaves_are_counted_once_and_units_after_a_shuffle_are_new_ones():
    graph = chain(4)
    graph |= {"left": [("keep", 0), ("keep", 1)], "right": [("keep", 1), ("keep", 2)]}
    graph["all"] = ["left", "right"]
    divided = divide_graph(graph, ["all"])
    bits = find_leaves(divided, ())
    assert bits[divided.unit_of["all"]].bit_count() == 3
    bits = find_leaves(divided, [divided.unit_of["left"], divided.unit_of["right"]])
    assert bits[divided.unit_of["all"]].bit_count() == 2


PROGRAM = """
from hyperplane.forecasts.task_units import divide_graph
graph = {(f"read-{table}", part): [] for table in "ab" for part in range(12)}
graph |= {("merge", part): [("read-a", part), ("read-b", part)] for part in range(12)}
graph["total"] = [("merge", part) for part in range(12)]
items = list({*graph})  # in the order of a set
divided = divide_graph({key: set(graph[key]) for key in items}, ["total"])
print([unit.members for unit in divided.units])
"""


@pytest.mark.process
def test_the_order_is_the_same_in_each_process():
    found = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in (1, 2)
    ]  # fmt: skip
    assert found[0] == found[1]
    assert "[(('read-a', 0),), (('read-b', 0),), (('read-a', 1),)" in found[0]


def test_borders_of_blocks_are_another_class_than_blocks():
    """As in overlapping arrays: each block is needed whole, and its last rows by the next one."""
    graph = {("load", part, 0): [] for part in range(6)}
    for part in range(6):
        graph |= {
            ("part", part, 0): [("load", part, 0)],
            ("part", part + 0.1, 0): [("load", part, 0)],
            ("part", part + 0.9, 0): [("load", (part + 1) % 6, 0)],
            ("use", part, 0): [("part", part + shift, 0) for shift in (0, 0.1, 0.9)],
        }
    divided = divide_graph(graph, [("use", part, 0) for part in range(6)])
    kinds = {key: divided.units[divided.unit_of[key]].kind for key in graph}
    assert len({kinds["part", part, 0] for part in range(6)}) == 1
    borders = {kinds[key] for key in graph if key[0] == "part" and isinstance(key[1], float)}
    assert len(borders) == 2
    assert kinds["part", 1, 0] not in borders
