"""Which units are sampled, and what replaces inputs that are not computed."""

from __future__ import annotations

import pytest

from hyperplane.forecasts.sample_plan import choose_positions, plan_sample
from hyperplane.forecasts.task_units import TablePiece, divide_graph, find_leaves


def tree(parts):
    graph = {("read", part): [] for part in range(parts)}
    graph["sum"] = [("read", part) for part in range(parts)]
    return divide_graph(graph, ["sum"])


def test_a_reduction_gets_all_its_inputs_from_the_sampled_ones():
    graph = tree(64)
    steps = plan_sample(graph, {})
    first = [step for step in steps if not step.inputs]
    wide, narrow = steps[len(first) :]
    assert len(first) == 3
    assert len(wide.inputs) == len(narrow.inputs) == 64
    assert len({place for place, _ in wide.inputs.values()}) == 3
    assert len({place for place, _ in narrow.inputs.values()}) == 1
    assert (len(wide.leaves), len(narrow.leaves), narrow.narrow) == (3, 1, True)


def test_the_largest_source_is_sampled():
    graph = tree(40)
    largest = graph.unit_of["read", 39]
    weights = dict.fromkeys(graph.members_of(0), 100.0) | {largest: 900.0}
    assert largest in {step.unit for step in plan_sample(graph, weights)}
    weights[largest] = 110.0
    assert largest not in {step.unit for step in plan_sample(graph, weights)}


def test_results_that_were_computed_are_used_where_they_belong():
    graph = {("read", part): [] for part in range(40)}
    graph |= {("left", part): [] for part in range(40)}
    graph |= {("merge", part): [("read", part), ("left", part)] for part in range(40)}
    divided = divide_graph(graph, [("merge", part) for part in range(40)])
    steps = plan_sample(divided, {})
    merges = [step for step in steps if step.inputs]
    assert len(merges) == 3
    for step in merges:
        for key, (place, used) in step.inputs.items():
            assert key == used
            assert divided.unit_of[key] == steps[place].unit


def test_all_barriers_are_run_and_outputs_begin_new_data():
    graph = {("read", part): [] for part in range(20)}
    graph["barrier"] = [("read", part) for part in range(20)]
    graph |= {("take", part): ["barrier"] for part in range(20)}
    divided = divide_graph(graph, [("take", part) for part in range(20)], separate=["barrier"])
    takes = divided.members_of(2)
    steps = plan_sample(divided, {}, takes, [divided.unit_of["barrier"]])
    outputs = [number for number, step in enumerate(steps) if step.unit in takes]
    assert len(outputs) == 2
    assert [steps[number].leaves for number in outputs] == [{number} for number in outputs]


def test_units_of_a_class_whose_inputs_are_of_later_classes_wait():
    graph, tops = {}, []
    for number in range(40):
        graph |= {("a", number, side): [] for side in "lr"}
        graph |= {("f", number, 1, side): [("a", number, "l"), ("a", number, "r")] for side in "lr"}
        graph["f", number, 2] = [("f", number, 1, "l"), ("f", number, 1, "r")]
        tops.append(("f", number, 2))
    graph |= {("source", 0): [], ("b", 0): [("source", 0)], ("c", 0): [("b", 0), ("source", 0)]}
    graph |= {("f", "b", 1, side): [("c", 0), ("b", 0)] for side in "lmr"}
    graph["f", "b", 2] = [("f", "b", 1, side) for side in "lmr"]
    divided = divide_graph(graph, [*tops, ("f", "b", 2)])
    steps = plan_sample(divided, {})
    assert {divided.units[step.unit].kind for step in steps} == set(range(len(divided.kinds)))
    for number, step in enumerate(steps):
        assert all(place < number for place, _ in step.inputs.values())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_positions_are_spread_and_the_same_for_all_tables(seed):
    positions = choose_positions(80, 4, seed)
    assert [position // 20 for position in positions] == [0, 1, 2, 3]
    assert [position // 2 for position in positions] == choose_positions(40, 4, seed)


def divide_tables(parts, outputs, names=("t",)):
    """Shuffles with tasks, of one or more tables; returns the units and the pieces."""
    graph = {}
    for name in names:
        graph |= {(name, part): [] for part in range(parts)}
        graph |= {
            (f"split-{name}", output, part): [(name, part)]
            for output in range(outputs)
            for part in range(parts)
        }
        graph |= {
            (f"out-{name}", output): [(f"split-{name}", output, part) for part in range(parts)]
            for output in range(outputs)
        }
    graph |= {
        ("join", output): [(f"out-{name}", output) for name in names] for output in range(outputs)
    }
    divided = divide_graph(graph, [("join", output) for output in range(outputs)])
    splits = {
        number: TablePiece(unit.members[0][1], outputs)
        for number, unit in enumerate(divided.units)
        if str(unit.members[0][0]).startswith("split-")
    }
    return divided, splits


def test_output_partitions_of_a_shuffle_use_pieces_of_the_divided_tables():
    divided, splits = divide_tables(24, 10)
    steps = plan_sample(divided, {}, splits=splits)
    outputs = [
        (at, step) for at, step in enumerate(steps) if divided.units[step.unit].dependencies
        and step.unit not in splits
    ]  # fmt: skip
    assert len(outputs) == 2
    for at, step in outputs:
        members = divided.units[step.unit].members
        # Their inputs are the tables that were sampled, and all of them the piece of this output.
        assert {place for place, _ in step.inputs.values()} == {0, 1, 2}
        assert {key for _, key in step.inputs.values()} == {("t", 4), ("t", 12), ("t", 20)}
        assert len(step.inputs) == len(step.pieces) == 24
        assert set(step.pieces.values()) == {members[0][1]}
        # Three of 24 tables: pieces of eight outputs together have the size of one.
        assert step.most_pieces == 8
        assert step.leaves == {at}


def test_both_tables_of_a_join_are_sampled_at_the_same_outputs():
    divided, splits = divide_tables(24, 10, ("t", "u"))
    steps = plan_sample(divided, {}, splits=splits)
    joins = [step for step in steps if divided.units[step.unit].members[0][0] == "join"]
    assert len(joins) == 2
    for step in joins:
        used = [divided.units[steps[place].unit].members[0] for place, _ in step.inputs.values()]
        number = divided.units[step.unit].members[0][1]
        assert used == [("out-t", number), ("out-u", number)]


def pairs(parts):
    """Rows are taken from two neighboring tables, by their numbers."""
    graph = {("read", part): [] for part in range(parts)}
    graph |= {("rows", part): [] for part in range(parts)}
    for part in range(parts):
        graph["take", part] = [("read", part), ("read", (part + 1) % parts), ("rows", part)]
    return divide_graph(graph, [("take", part) for part in range(parts)])


def find_replaced(graph, steps):
    return {
        key
        for step in steps
        for key, (place, _) in step.inputs.items()
        if steps[place].unit != graph.unit_of[key]
    }


def test_small_values_of_the_graph_are_not_replaced_and_are_no_data():
    graph = pairs(20)
    values = [graph.unit_of["rows", part] for part in range(20)]
    assert {key[0] for key in find_replaced(graph, plan_sample(graph, {}))} == {"read", "rows"}
    steps = plan_sample(graph, {}, constants=values)
    assert {key[0] for key in find_replaced(graph, steps)} == {"read"}
    assert steps[0].unit not in values
    wide = next(step for step in steps if step.inputs)
    assert len(wide.leaves) == 2
    bits = find_leaves(graph, (), values)
    assert {bits[number] for number in values} == {0}
    assert bits[graph.unit_of["take", 0]].bit_count() == 2


def test_units_of_exact_classes_get_their_own_inputs():
    graph = pairs(20)
    kind = graph.units[graph.unit_of["take", 0]].kind
    steps = plan_sample(graph, {}, exact=[kind])
    assert not find_replaced(graph, steps)
    assert sum(graph.units[step.unit].kind == kind for step in steps) == 3
    assert len(steps) < 20


def test_a_join_gets_other_pieces_of_the_tables_that_replace_others():
    graph = {("left", part): [] for part in range(40)} | {("right", part): [] for part in range(10)}
    graph["keys"] = list(graph)
    graph |= {(f"take-{side}", part): [(side, part), "keys"] for side, part in list(graph)[:-1]}
    received = [key for key in graph if str(key[0]).startswith("take")]
    graph |= {("join", part): [*received, "keys"] for part in range(8)}
    divided = divide_graph(graph, [("join", part) for part in range(8)])
    joins = [divided.unit_of["join", part] for part in range(8)]
    (step,) = [each for each in plan_sample(divided, {}, receivers=joins) if each.unit in joins]
    of_side = {
        side: [use for key, use in step.rotated.items() if key[0] == f"take-{side}"]
        for side in ("left", "right")
    }
    assert len(step.rotated) == 50
    # Three of ten tables, one of them four times: no piece of these is used twice.
    assert {use for use, _ in of_side["right"]} == {0, 1, 2, 3}
    assert {use for use, _ in of_side["left"]} == {0, 1, 2, 3}
    assert all(is_once for _, is_once in of_side["right"])
    assert not any(is_once for _, is_once in of_side["left"])
    assert len(step.leaves) == 1


def test_a_join_gets_other_pieces_also_if_separate_tasks_take_them():
    graph = {(side, part): [] for side in ("left", "right") for part in range(10)}
    tables = list(graph)
    graph |= {(f"take-{side}-{part}", at): [(side, part)] for side, part in tables for at in (0, 1)}
    graph |= {("join", at): [(f"take-{side}-{part}", at) for side, part in tables] for at in (0, 1)}
    divided = divide_graph(graph, [("join", 0), ("join", 1)])
    joins = [divided.unit_of["join", at] for at in (0, 1)]
    taken = {divided.unit_of[key] for key in graph if str(key[0]).startswith("take")}
    steps = plan_sample(divided, {}, receivers=joins, taken=taken)
    (step,) = [each for each in steps if each.unit in joins]
    assert step.rotated.keys() == step.inputs.keys() == set(graph["join", 0])
    # Each input is a whole list, and not the piece that the sample has of it.
    for key, (place, used) in step.inputs.items():
        assert used == divided.units[steps[place].unit].outputs[0]
        assert used[0] == key[0].split("-")[1]
    uses = {(step.inputs[key], use) for key, (use, _) in step.rotated.items()}
    assert len(uses) == len(step.inputs)
    # The tasks that take a piece are in the sample, too: they show its size.
    assert any(each.unit in taken for each in steps)
