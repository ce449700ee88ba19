"""Costs of units from synthetic records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hyperplane.forecasts.evaluate import find_gaps
from hyperplane.forecasts.growth import fit_growth
from hyperplane.forecasts.intervals import find_demand, find_interval, find_time_interval
from hyperplane.forecasts.layout import Layout
from hyperplane.forecasts.model import (
    GraphInfo,
    build_model,
    find_needs,
    find_retained,
)
from hyperplane.forecasts.records import KeyStatistics, SampleResult, TaskRecord
from hyperplane.forecasts.sample_plan import plan_sample
from hyperplane.forecasts.sampled_tasks import find_block
from hyperplane.forecasts.simulate import Simulation
from hyperplane.forecasts.simulated_memory import ProcessBaseline
from hyperplane.forecasts.task_units import TablePiece, divide_graph

MB = 10**6


def record(outputs, inputs=0, need=0, live=0, after=0, **options):
    return TaskRecord(
        1.0, 2.0, 100 * MB + live, 100 * MB + live + need, after, live, inputs, (outputs,),
        **options,
    )  # fmt: skip


def build(parts, records, weights=None, keys=()):
    graph = {("read", part): [] for part in range(parts)}
    graph["all"] = [("read", part) for part in range(parts)]
    divided = divide_graph(graph, ["all"])
    numbers = {divided.unit_of[key]: weight for key, weight in (weights or {}).items()}
    steps = plan_sample(divided, numbers)
    info = GraphInfo((divided.unit_of["all"],), tuple(range(parts + 1)), numbers)
    return build_model(
        divided, info, steps, SampleResult(tuple(records), 100 * MB, True, keys=keys)
    )


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        (5, 5, 5),  # a sum
        (10, 30, 300),  # a group-by of keys that differ between partitions
        (300, 300, 300),  # a concatenation of inputs that had their true size
    ],
)
def test_a_result_grows_as_it_does_with_different_inputs(narrow, wide, expected):
    parts = [record(10 * MB, need=20 * MB) for _ in range(3)]
    later = [record(size * MB, 300 * MB) for size in (wide, narrow)]
    model = build(30, [*parts, *later])
    assert model.units[-1].output / MB == pytest.approx(expected)
    assert model.units[0].transient / MB == pytest.approx(20)
    assert model.cpu == 62


@pytest.mark.parametrize(
    ("distinct", "complete", "expected", "noted"),
    [
        (150, True, 165, False),  # fewer keys than the growth of the sample leads to, and a tenth
        (290, True, 300, False),  # as many
        (290, False, 300, True),  # as many in the files, of which a filter removes an unknown part
        (5000, True, 300, True),
        (None, True, 300, True),
    ],
)
def test_a_group_by_has_at_most_a_row_for_each_key(distinct, complete, expected, noted):
    parts = [record(10 * MB, need=20 * MB, groups=10) for _ in range(3)]
    later = [record(size * MB, 300 * MB, groups=size) for size in (30, 10)]
    key = KeyStatistics("group-by", ("k",), distinct, "", 0.0, complete)
    other = KeyStatistics("sort", ("v",), None, "", 0.0)
    model = build(30, [*parts, *later], keys=(key, other))
    assert model.units[-1].output / MB == pytest.approx(expected)
    assert bool(model.extrapolated) == noted


@pytest.mark.parametrize(
    ("names", "rows_per_key", "expected"),
    [
        (("k",), 1.0, 165),
        (("k",), 0.5, 82.5),  # of a task that gets half of the keys
        (("k",), 3.0, 300),
        (("other",), 1.0, 300),
        ((), 1.0, 300),  # the result of an operation of Dask, whose key is not that of the helper
    ],
)
def test_rows_of_a_helper_are_limited_by_the_key_of_the_helper(names, rows_per_key, expected):
    options = {"group_names": names, "rows_per_key": rows_per_key}
    parts = [record(10 * MB, need=20 * MB, groups=10, **options) for _ in range(3)]
    later = [record(size * MB, 300 * MB, groups=size, **options) for size in (30, 10)]
    keys = [
        KeyStatistics("distinct rows", (name,), distinct, "", 0.0, receivers=0)
        for name, distinct in (("k", 150), ("other", 5000))
    ]
    model = build(30, [*parts, *later], keys=keys)
    assert model.units[-1].output / MB == pytest.approx(expected)


@pytest.mark.parametrize(
    ("distinct", "complete", "expected", "noted"),
    [(150, True, 330, False), (150, False, 330, True), (5000, True, 600, True)],
)
def test_tasks_that_combine_groups_have_as_many(distinct, complete, expected, noted):
    graph = {("read", part): [] for part in range(30)}
    graph |= {("group", part): list(graph)[:30] for part in range(2)}
    graph["all"] = [("group", 0), ("group", 1)]
    divided = divide_graph(graph, ["all"])
    steps = plan_sample(divided, {})
    records = []
    for step in steps:
        name = divided.units[step.unit].members[0]
        pieces = len(step.leaves)
        if name == "all":
            records.append(record(20 * pieces * MB, 20 * pieces * MB))
        elif name[0] == "group":
            options = {"groups": 10 * pieces, "group_names": ("k",)}
            records.append(record(10 * pieces * MB, 300 * MB, **options))
        else:
            records.append(record(10 * MB))
    assert [step.narrow for step in steps].count(True) == 2
    key = KeyStatistics("group-by", ("k",), distinct, "", 0.0, complete, receivers=0)
    info = GraphInfo((divided.unit_of["all"],), tuple(range(len(divided.units))))
    result = SampleResult(tuple(records), 100 * MB, True, keys=(key,))
    model = build_model(divided, info, steps, result)
    assert model.units[-1].output / MB == pytest.approx(expected)
    assert bool(model.extrapolated) == noted


def test_other_results_than_groups_have_no_limit_of_keys():
    parts = [record(10 * MB, need=20 * MB) for _ in range(3)]
    later = [record(size * MB, 300 * MB) for size in (30, 10)]
    key = KeyStatistics("group-by", ("k",), 150, "", 0.0)
    model = build(30, [*parts, *later], keys=(key,))
    assert model.units[-1].output / MB == pytest.approx(300)


def test_a_second_run_with_all_pieces_shows_no_growth():
    graph = {("read", part): [] for part in range(3)}
    for part in range(30):
        graph["split", part] = [("read", other) for other in range(3)]
    for part in range(10):
        graph["merge", part] = [("split", part + first) for first in (0, 10, 20)]
    targets = [("merge", part) for part in range(10)]
    divided = divide_graph(graph, targets)
    steps = plan_sample(divided, {})
    assert [len(step.leaves) for step in steps[-2:]] == [3, 3]
    needs = {"read": 10, "split": 10, "merge": 30}
    records = [
        record(10 * MB, 30 * MB * bool(step.inputs), needs[divided.units[step.unit].members[0][0]])
        for step in steps
    ]
    info = GraphInfo(
        tuple(divided.unit_of[key] for key in targets), tuple(range(len(divided.units)))
    )
    model = build_model(divided, info, steps, SampleResult(tuple(records), 100 * MB, True))
    merge = model.units[divided.unit_of["merge", 0]]
    assert merge.transient == pytest.approx(30)
    assert not model.classes[merge.kind].of_pieces
    assert not model.extrapolated


def test_modules_that_a_task_imports_are_not_its_need():
    records = [
        TaskRecord(0, 0, 100, 150, 0, 0, 0, (5,)),
        TaskRecord(0, 0, 105, 195, 0, 5, 5, (5,)),  # it imports modules of 60 bytes
        TaskRecord(0, 0, 170, 200, 0, 10, 5, (5,)),
    ]
    assert find_needs(records) == [50, 30, 30]
    # Results that were views of one array are released: nothing is known of what was kept.
    released = TaskRecord(0, 0, 170, 200, 0, 0, 5, (5,))
    assert find_needs([*records[:2], released])[1] == 90


def test_memory_is_proportional_to_the_size_of_the_source():
    sizes = {("read", part): 1000.0 * (part + 1) for part in range(30)}
    parts = [record(int(size), need=int(size)) for size in (6000, 16000, 26000)]
    model = build(30, [*parts, record(1), record(1)], sizes)
    largest = max(model.units[:-1], key=lambda each: each.output)
    # The largest source, which is sampled in place of the last one, has 30,000 bytes.
    assert largest.output > 20_000


def test_a_partition_that_waits_for_its_next_task_is_known():
    parts = [record(0, need=20 * MB, waiting=5 * MB) for _ in range(3)]
    model = build(30, [*parts, record(1), record(1)])
    assert model.units[0].transient / MB == pytest.approx(20)
    assert model.units[0].waiting / MB == pytest.approx(5)
    assert model.units[-1].waiting == 0


def test_what_malloc_keeps_is_what_remains_after_a_task_besides_its_result():
    parts = [record(5 * MB, need=20 * MB, after=114 * MB) for _ in range(3)]
    model = build(30, [*parts, record(1), record(1)])
    assert [unit.heap / MB for unit in model.units[:2]] == pytest.approx([9, 9])
    assert model.units[-1].heap == 0


def test_the_largest_memory_that_malloc_keeps_counts():
    # After the last task malloc has returned the end of its memory.
    kept = [20 * MB, 18 * MB, 0]
    parts = [record(0, need=20 * MB, after=100 * MB + each, block=2 * MB) for each in kept]
    model = build(30, [*parts, record(1), record(1)])
    assert [unit.heap / MB for unit in model.units[:2]] == pytest.approx([20, 20])
    assert [unit.block / MB for unit in model.units[:2]] == pytest.approx([2, 2])
    assert model.units[-1].block == 0


def test_one_large_partition_leaves_the_gaps_of_the_others():
    sizes = {("read", part): 1000.0 * (20 if part == 3 else 1) for part in range(8)}
    parts = [
        record(0, need=each * MB, after=(100 + each) * MB, has_tables=True) for each in (1, 1, 20)
    ]
    model = build(8, [parts[0], parts[2], parts[1], record(1), record(1)], sizes)
    assert max(unit.heap for unit in model.units) == 20 * MB
    assert find_gaps(model, Layout(1, 1)) / MB == pytest.approx(0.2)


def test_a_unit_takes_the_size_of_the_result_that_it_needs():
    """As a cumulative sum: each table has a number, and the numbers are added one by one."""
    graph = {("sum", 1): [("number", 0), ("number", 1)], ("number", 0): []}
    for part in range(1, 12):
        graph |= {("table", part): [], ("number", part): [("table", part)]}
        graph |= {("use", part): [("table", part), ("sum", part)]}
        if part > 1:
            graph[("sum", part)] = [("sum", part - 1), ("number", part)]
    graph["end"] = [("use", part) for part in range(1, 12)]
    divided = divide_graph(graph, ["end"])
    steps = plan_sample(divided, {})
    sizes = {"table": 10 * MB, "number": 8, "sum": 8, "use": 8}
    records = []
    for step in steps:
        unit = divided.units[step.unit]
        outputs = tuple(sizes.get(key[0], 8) for key in unit.outputs)
        inputs = sum(sizes[key[0]] for key in unit.inputs)
        records.append(replace(record(0, inputs, need=100_000), outputs=outputs))
    info = GraphInfo((divided.unit_of["end"],), tuple(range(len(divided.units))))
    model = build_model(divided, info, steps, SampleResult(tuple(records), 100 * MB, True))
    assert sum(len(unit.outputs) == 2 for unit in divided.units) == 11
    # Extrapolated from 8 bytes to a share of a table, 100 kB would be gigabytes.
    assert max(unit.transient for unit in model.units) < MB


def test_smaller_pieces_of_data_show_no_growth_with_their_number():
    parts = [record(5 * MB, need=MB) for _ in range(3)]
    # Six inputs of different sizes, or six times one that is half as large.
    wide, narrow = record(0, 60 * MB, need=40 * MB), record(0, 30 * MB, need=20 * MB)
    model = build(6, [*parts, wide, narrow])
    assert model.units[-1].transient / MB == pytest.approx(40)
    model = build(6, [*parts, wide, replace(narrow, inputs=60 * MB)])
    assert model.units[-1].transient / MB > 60


def test_the_block_of_a_table_is_its_largest_column():
    frame = pd.DataFrame({"a": np.arange(100), "b": np.arange(100, dtype="int8")})
    table = pa.table({"a": np.arange(50), "b": np.arange(50, dtype="int8")})
    values = [frame, frame.b, table, frame.groupby("b"), np.ones(100), 5]
    assert [find_block(value) for value in values] == [800, 232, 400, 0, 0, 0]


def test_views_of_a_released_result_are_no_memory_that_a_process_keeps():
    # Parts of the first result are 1 MB of 40, and keep all of it until they are released.
    records = [record(40 * MB), record(1 * MB, live=40 * MB)]
    records += [
        replace(record(1), before=140 * MB, live=1 * MB),
        replace(record(1), before=103 * MB),
    ]
    assert find_retained(SampleResult(tuple(records), 100 * MB, True)) == 3 * MB


@pytest.mark.parametrize(
    ("units", "threads", "expected"),
    [(4, 1, 0), (8, 1, 2), (64, 1, 8), (128, 1, 8), (16, 2, 3), (240, 2, 12)],
)
def test_blocks_leave_gaps_in_freed_memory_the_more_tasks_run(units, threads, expected):
    parts = [record(0, need=20 * MB, after=110 * MB) for _ in range(3)]
    model = build(units, [*parts, record(1), record(1)])
    assert find_gaps(model, Layout(1, threads)) / MB == pytest.approx(expected)


@pytest.mark.parametrize(
    ("units", "threads", "expected"),
    [(4, 1, 0), (16, 1, 10.573), (32, 2, 21.146), (256, 1, 54), (512, 1, 54)],
)
def test_tasks_that_write_leave_more_gaps_in_each_thread(units, threads, expected):
    sampled = max(3, -(-units // 80))  # 1.25 % of the tasks
    parts = [record(0, need=20 * MB, after=110 * MB, written=MB) for _ in range(sampled)]
    model = build(units, [*parts, record(1), record(1)])
    assert find_gaps(model, Layout(1, threads)) / MB == pytest.approx(expected, rel=1e-4)


def test_the_memory_that_is_needed_is_below_the_end_of_the_interval():
    peaks = [400e6, 410e6, 405e6]
    interval = find_interval(peaks, 100e6)
    assert interval.value < find_demand(peaks, 100e6) < interval.high
    assert find_demand(peaks, 100e6, 0.99) > find_demand(peaks, 100e6, 0.9)


@pytest.mark.parametrize("kind", ["shuffles", "writes"])
def test_jobs_that_shuffle_or_write_need_up_to_the_end_of_the_interval(kind):
    """For them no smaller share of the growth has been measured."""
    peaks = [400e6, 410e6, 405e6]
    assert (
        find_demand(peaks, 100e6, **{kind: True})
        == find_interval(peaks, 100e6, **{kind: True}).high
    )


def test_the_interval_of_a_time_has_the_same_factor_on_both_sides():
    found = find_time_interval(10.0, 0.3, 0.9)
    assert found.high / 10 == pytest.approx(10 / found.low)
    assert find_time_interval(10.0, 0.3, 0.99).high > found.high


@pytest.mark.parametrize(
    ("points", "x", "expected"),
    [
        ([(10, 100), (11, 110)], 20, 200),  # sizes too similar to show an exponent
        ([(1, 100), (2, 400)], 4, 600),  # never more than linear
        ([(1, 100), (2, 50)], 4, 75),  # never falling: the mean
        ([(0, 7), (0, 9)], 50, 8),
        ([], 1, 0),
    ],
)
def test_growth_is_between_constant_and_linear(points, x, expected):
    assert fit_growth(points)(x) == pytest.approx(expected)


def test_a_higher_confidence_has_a_wider_interval():
    found = [find_interval([400e6], 100e6, confidence) for confidence in (0.5, 0.8, 0.9, 0.99)]
    widths = [each.high - each.low for each in found]
    assert widths == sorted(widths)
    assert len({each.value for each in found}) == 1
    inexact = find_interval([400e6], 100e6, exact=False)
    assert inexact.high > found[2].high


def build_shuffle(shares, outputs, parts=24):
    """A shuffle with tasks, of whose sampled tables each output gets a share."""
    graph = {("table", part): [] for part in range(parts)}
    for output in range(outputs):
        graph |= {("split", output, part): [("table", part)] for part in range(parts)}
        graph["out", output] = [("split", output, part) for part in range(parts)]
    divided = divide_graph(graph, [("out", output) for output in range(outputs)])
    splits = {
        number: TablePiece(unit.members[0][1], outputs)
        for number, unit in enumerate(divided.units)
        if unit.members[0][0] == "split"
    }
    steps = plan_sample(divided, {}, splits=splits)
    tables = iter(shares)
    records = []
    for step in steps:
        name = divided.units[step.unit].members[0][0]
        if name == "table":
            pieces = {number: size * MB for number, size in enumerate(next(tables))}
            records.append(record(30 * MB, need=60 * MB, pieces=pieces))
        elif name == "split":
            records.append(record(MB, 30 * MB))
        else:
            records.append(record(MB, 40 * MB, need=80 * MB))
    info = GraphInfo(
        tuple(divided.unit_of["out", output] for output in range(outputs)),
        tuple(range(len(divided.units))),
        splits=splits,
    )
    model = build_model(divided, info, steps, SampleResult(tuple(records), 100 * MB, True))
    return divided, model


def test_the_output_partition_of_a_frequent_key_has_its_share_of_the_rows():
    # In each table 18 of 30 MB have one key; in the second one other rows differ.
    shares = [[18, 4, 4, 4], [18, 0, 8, 4], [18, 4, 4, 4]]
    divided, model = build_shuffle(shares, 4)
    pieces = [model.units[divided.unit_of["split", output, 7]] for output in range(4)]
    assert [piece.output / MB for piece in pieces] == pytest.approx([18, 4, 4, 4])
    assert all(piece.is_view for piece in pieces)
    outputs = [model.units[divided.unit_of["out", output]] for output in range(4)]
    assert [each.transient / MB for each in outputs] == pytest.approx([864, 192, 192, 192])
    assert not any(each.is_view for each in outputs)
    assert not model.extrapolated


def test_sorted_tables_are_divided_evenly():
    # Each of the sampled tables has rows of another output.
    shares = [[30, 0, 0, 0], [0, 30, 0, 0], [0, 0, 0, 30]]
    divided, model = build_shuffle(shares, 4)
    pieces = [model.units[divided.unit_of["split", output, 7]] for output in range(4)]
    assert [piece.output / MB for piece in pieces] == pytest.approx([7.5] * 4)


def test_the_simulated_shuffle_holds_all_tables_and_the_partition_of_the_frequent_key():
    shares = [[18, 4, 4, 4]] * 3
    _, model = build_shuffle(shares, 4)
    memory = ProcessBaseline(0.0, 0.0, 0.0)
    timeline = Simulation(model.units, model.targets, memory, 1, 1, jitter=0.0).run()
    # 24 tables of 30 MB; the partition of 432 MB needs twice its size.
    assert max(timeline.peaks) / MB == pytest.approx(24 * 30 + 2 * 24 * 18, rel=0.01)


def test_later_stages_of_a_shuffle_have_the_outputs_of_their_pieces():
    """Four outputs in two stages: the first divides by the last binary digit of their number."""
    graph = {("table", part): [] for part in range(4)}
    for part in range(4):
        graph |= {("first", digit, part): [("table", part)] for digit in range(2)}
    for part in range(4):
        low, high = part % 2, part // 2
        graph["middle", part] = [("first", low, 2 * high), ("first", low, 2 * high + 1)]
        graph |= {("second", digit, part): [("middle", part)] for digit in range(2)}
    for part in range(4):
        low, high = part % 2, part // 2
        graph["out", part] = [("second", high, low), ("second", high, low + 2)]
    targets = [("out", part) for part in range(4)]
    divided = divide_graph(graph, targets)
    stages = {"first": 0, "second": 1}
    splits = {
        number: TablePiece(unit.members[0][1], 4, stages[unit.members[0][0]], 2)
        for number, unit in enumerate(divided.units)
        if unit.members[0][0] in stages
    }
    steps = plan_sample(divided, {}, splits=splits)
    sizes = {"table": 100, "middle": 80}
    records = []
    for step in steps:
        name = divided.units[step.unit].members[0][0]
        pieces = {0: 10 * MB, 1: 10 * MB, 2: 20 * MB, 3: 60 * MB} if name == "table" else {}
        inputs = {"middle": 80, "out": 80}.get(name, 0)
        records.append(record(sizes.get(name, 1) * MB, inputs * MB, pieces=pieces))
    info = GraphInfo(
        tuple(divided.unit_of[key] for key in targets), tuple(range(len(divided.units))),
        splits=splits,
    )  # fmt: skip
    model = build_model(divided, info, steps, SampleResult(tuple(records), 100 * MB, True))

    def output(*key):
        return model.units[divided.unit_of[key]].output / MB

    assert [output("first", digit, 0) for digit in range(2)] == pytest.approx([30, 70])
    assert [output("middle", part) for part in range(4)] == pytest.approx([60, 140, 60, 140])
    # Of the rows of the outputs 0 and 2 a third is of output 0, of those of 1 and 3 a seventh.
    assert [output("second", 0, part) for part in range(2)] == pytest.approx([20, 20])
    assert [output("second", 1, part) for part in range(2)] == pytest.approx([40, 120])


@pytest.mark.parametrize(("later", "expected"), [(10, 2), (6, 2), (4, 0.8)])
def test_tasks_of_other_classes_leave_gaps_in_the_same_freed_memory(later, expected):
    """Four tables are read and used by four other tasks, which makes eight tasks of a thread."""
    graph = {("read", part): [] for part in range(4)}
    for part in range(4):
        graph["use", part] = [("read", part), ("read", (part + 1) % 4)]
    graph["all"] = [("use", part) for part in range(4)]
    divided = divide_graph(graph, ["all"])
    steps = plan_sample(divided, {})
    records = []
    for step in steps:
        layer = divided.units[step.unit].members[0][0]
        heap = {"read": 10, "use": later}.get(layer, 0)
        inputs = 0 if layer == "read" else len(step.inputs) * MB
        after = (101 + heap) * MB
        records.append(record(MB, inputs, need=20 * MB, after=after, has_tables=True))
    info = GraphInfo((divided.unit_of["all"],), tuple(range(len(divided.units))))
    model = build_model(divided, info, steps, SampleResult(tuple(records), 100 * MB, True))
    assert find_gaps(model, Layout(1, 1)) / MB == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "below", "above"),
    [
        ({}, 0.2, 0.18),
        ({"threads": 4}, 0.22, 0.22),
        ({"tables": False, "threads": 4}, 0.28, 0.28),
        ({"writes": True, "threads": 4}, 0.2, 0.45),
        ({"shuffles": True}, 0.3, 0.3),
        ({"shuffles": True, "writes": True}, 0.3, 0.45),  # the wider one on each side
    ],
)
def test_the_interval_has_the_errors_of_the_class_of_a_job(kind, below, above):
    found = find_interval([400e6], 100e6, **kind)
    assert (400e6 - found.low) / 300e6 == pytest.approx(below)
    assert (found.high - 400e6) / 300e6 == pytest.approx(above)


@pytest.mark.parametrize(
    ("need", "size", "is_view"), [(0, 10, True), (1, 10, False), (0, 4, False)]
)
def test_a_result_without_memory_that_is_most_of_its_input_is_a_view(need, size, is_view):
    graph = {}
    for part in range(4):
        graph |= {("read", part): []} | {
            ("all", 2 * part + each): [("read", part)] for each in (0, 1)
        }
        graph["both", part] = [("all", 2 * part + each) for each in (0, 1)]
    divided = divide_graph(graph, [("both", part) for part in range(4)])
    steps = plan_sample(divided, {})
    records = {
        "read": record(10 * MB, need=10 * MB),
        "all": record(size * MB, 10 * MB, need=need * MB),
        "both": record(MB, 2 * size * MB, need=MB),
    }
    names = [divided.units[step.unit].members[0][0] for step in steps]
    targets = tuple(divided.unit_of["both", part] for part in range(4))
    info = GraphInfo(targets, tuple(range(len(divided.units))), {})
    result = SampleResult(tuple(records[name] for name in names), 100 * MB, True)
    model = build_model(divided, info, steps, result)
    of_all = [model.units[divided.unit_of["all", part]] for part in range(8)]
    assert {unit.is_view for unit in of_all} == {is_view}
    assert not any(unit.is_view for unit in model.units if unit not in of_all)
