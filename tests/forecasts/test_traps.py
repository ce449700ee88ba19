"""Jobs of which a sample shows too little are refused, or have an upper bound and a note.

test_forecast.py has those that only a run of the sample shows: tasks whose memory depends on a
value, that return other results when they are repeated, fail, or take all memory, and a forecast
above the spill threshold.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.forecasts import reasons
from hyperplane.forecasts.collection_graph import materialize
from hyperplane.forecasts.evaluate import SampledJob, evaluate_timelines, simulate_layout
from hyperplane.forecasts.layout import Layout
from hyperplane.forecasts.model import build_model
from hyperplane.forecasts.records import KeyStatistics, SampleResult, TaskRecord
from hyperplane.forecasts.sample_plan import plan_sample

MB = 10**6
FILES = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    for part in range(FILES):
        rows = 200_000 if part == 17 else 1_000
        pd.DataFrame({"k": np.arange(rows), "v": 1.0}).to_parquet(path / f"{part:02}.parquet")
    return path


def sample(graph, outputs, needs=(20 * MB,), exact=True, keys=(), **options):
    """Return the steps of a sample and synthetic records, the needs one after the other."""
    info = graph.info
    steps = plan_sample(graph.units, info.weights, info.takes, info.barriers)
    records = []
    for number, step in enumerate(steps):
        size = outputs(step)
        need = size + needs[number % len(needs)]
        inputs = 10 * MB * len(step.inputs)  # also if all are the same piece of data
        records.append(
            TaskRecord(1, 1, 150 * MB, 150 * MB + need, 0, 0, inputs, (size,), **options)
        )
    return steps, SampleResult(tuple(records), 150 * MB, exact, records[0], keys=keys)


def evaluate(graph, steps, result, shuffles=False):
    """Return the forecast on a layout, and the notes."""
    model = build_model(graph.units, graph.info, steps, result)
    layout = Layout(2, 1)
    job = SampledJob(
        model, graph.units.kinds, layout, None, 0.9, shuffles, False, exact=result.exact
    )
    found = evaluate_timelines(job, simulate_layout(model, layout), layout)
    return model, found, reasons.find_notes(graph, result, model, found.typical)


def make_tree(parts=40):
    loads = [dask.delayed(len, name=f"load-{each}")([each]) for each in range(parts)]
    return materialize(dask.delayed(sum)(loads), {})


def test_the_largest_file_is_sampled(folder):
    log = dd.read_parquet(folder)
    graph = materialize(log[log.k > 5], {})
    steps = plan_sample(graph.units, graph.info.weights)
    largest = max(graph.info.weights, key=graph.info.weights.get)
    assert largest in {step.unit for step in steps}
    assert not reasons.find_sample_refusals(graph, steps, SampleResult((), 0, True))
    others = [step for step in steps if step.unit != largest]
    [refusal] = reasons.find_sample_refusals(graph, others, SampleResult((), 0, True))
    assert "was not sampled" in refusal


def test_another_size_of_a_repeated_task_is_refused():
    graph = make_tree()
    steps, result = sample(graph, lambda step: 10 * MB)
    other = replace(result, repeated=replace(result.records[0], outputs=(20 * MB,)))
    assert not reasons.find_sample_refusals(graph, steps, result)
    assert "not deterministic" in reasons.find_sample_refusals(graph, steps, other)[0]


def test_tasks_of_one_size_with_unequal_memory_are_refused():
    graph = make_tree()
    steps, result = sample(graph, lambda step: 0, needs=(20 * MB, 500 * MB, 20 * MB))
    model, found, _ = evaluate(graph, steps, result)
    assert "depends on values" in reasons.find_unequal(graph.units.kinds, model, found.typical)[0]
    steps, result = sample(graph, lambda step: 0, needs=(500 * MB,))
    model, found, _ = evaluate(graph, steps, result)
    assert not reasons.find_unequal(graph.units.kinds, model, found.typical)


def test_results_that_grow_beyond_the_sample_are_an_upper_bound():
    graph = make_tree(100)

    def grow(step):
        return 50 * MB * len(step.leaves) if step.inputs else MB

    steps, result = sample(graph, grow)
    _, found, notes = evaluate(graph, steps, result)
    assert any("rather an upper bound" in note for note in notes)
    # The interval begins at what the sample has shown.
    assert found.interval.low < 0.5 * found.interval.value
    steps, result = sample(graph, lambda step: 30 * MB)
    _, found, notes = evaluate(graph, steps, result)
    assert not any("upper bound" in note for note in notes)
    # Of a sample with more of the data, the interval is wide, too.
    graph = make_tree(16)
    steps, result = sample(graph, grow)
    model, found, notes = evaluate(graph, steps, result)
    [ratio] = model.extrapolated.values()
    assert ratio < reasons.EXTRAPOLATED
    assert found.interval.low < 0.7 * found.interval.value
    [note] = notes
    assert f"the sample has {round(100 / ratio)} %" in note


def test_rows_in_shuffle_buffers_are_bounded_from_above():
    graph = make_tree()
    steps, result = sample(graph, lambda step: 0, needs=(300 * MB,))
    widths = []
    for shuffles in (False, True):
        _, found, _ = evaluate(graph, steps, result, shuffles)
        widths.append(found.interval.high - found.interval.value)
    assert widths[1] > widths[0]
    frame = dd.from_pandas(pd.DataFrame({"k": range(100)}), npartitions=20)
    shuffled = materialize(frame.shuffle("k"), {"dataframe.shuffle.method": "p2p"})
    found = reasons.find_notes(
        shuffled, SampleResult((), 0, True), SimpleNamespace(extrapolated={}, shuffled=1),
        SimpleNamespace(terms={}),
    )  # fmt: skip
    assert found == ["how many rows of a shuffle are in memory at a time differs between runs"]


def test_a_frequent_key_is_named_with_what_to_do():
    frame = dd.from_pandas(pd.DataFrame({"k": range(100)}), npartitions=20)
    graph = materialize(frame.shuffle("k"), {"dataframe.shuffle.method": "p2p"})
    keys = (KeyStatistics("shuffle", ("k",), None, "7", 0.6),)
    [note] = reasons.find_frequent_keys(
        graph, SampleResult((), 0, True, keys=keys), SimpleNamespace(shuffled=10**9)
    )
    assert "60 % of the rows" in note
    assert "600 MB" in note
    assert "further key column" in note


def test_peaks_that_the_system_does_not_record_make_the_interval_wider():
    graph = make_tree()
    widths = []
    for exact in (True, False):
        steps, result = sample(graph, lambda step: 0, needs=(300 * MB,), exact=exact)
        _, found, notes = evaluate(graph, steps, result)
        widths.append(found.interval.high - found.interval.low)
        assert any("does not record peaks" in note for note in notes) is not exact
    assert widths[1] == pytest.approx(1.5 * widths[0])


def test_a_graph_of_many_different_operations_is_refused(monkeypatch):
    graph = make_tree()
    assert not reasons.find_graph_reasons(graph)
    monkeypatch.setattr(reasons, "MOST_CLASSES", 1)
    assert "different tasks, too many for a sample" in reasons.find_graph_reasons(graph)[0]


def test_a_graph_that_is_too_large_to_simulate_is_refused(monkeypatch):
    monkeypatch.setattr(reasons, "MOST_UNITS", 10)
    [reason] = reasons.find_graph_reasons(make_tree())
    assert "too much time and memory to simulate" in reason


def test_results_on_a_cluster_are_refused(distributed_client):
    frame = dd.from_pandas(pd.DataFrame({"k": range(100)}), npartitions=2).persist()
    with pytest.raises(ValueError, match=r"before persist\(\)"):
        materialize(frame.k.sum(), {})


@pytest.fixture
def distributed_client():
    from distributed import Client

    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as one:
        yield one


def test_tasks_that_write_to_their_target_are_refused():
    stored = da.ones((40, 40), chunks=10).store(np.zeros((40, 40)), compute=False)
    assert "would write to their target" in reasons.find_graph_reasons(materialize(stored, {}))[0]


def test_an_array_that_tasks_rechunk_has_a_note():
    numbers = da.ones((40, 40), chunks=(4, 40))
    empty = SampleResult((), 0, True)
    model, timeline = SimpleNamespace(extrapolated={}, shuffled=0), SimpleNamespace(terms={})
    with dask.config.set({"array.rechunk.method": "tasks"}):
        graph = materialize(numbers.rechunk((40, 4)), {})
    [note] = reasons.find_notes(graph, empty, model, timeline)
    assert "array.rechunk.method" in note
    assert not reasons.find_notes(materialize(numbers.sum(), {}), empty, model, timeline)


@pytest.mark.parametrize("reduce", [lambda x: x.std(axis=0), lambda x: x.sum(), lambda x: x])
def test_partitions_of_a_rechunk_are_known_if_other_tasks_are_fused_with_it(reduce):
    with dask.config.set({"array.rechunk.method": "p2p"}):
        numbers = da.ones((400, 300), chunks=(20, 300)).rechunk((400, 30))
    graph = materialize(reduce(numbers), {})
    [*takes] = graph.info.takes.values()
    assert sorted(partition for [(_, partition, _)] in takes) == list(range(10))
    assert {count for [(_, _, count)] in takes} == {10}


@pytest.mark.slow
@pytest.mark.process
def test_a_value_that_decides_about_memory_is_refused():
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=4, engine="local", local_fit="exact"
    )

    def allocate(frame):
        return pd.DataFrame({"mean": [np.ones(int(frame.v.sum()) * 10**6).mean()]})

    rows = pd.DataFrame({"v": [1.0] * 20 + [60.0] * 20})
    frame = dd.from_pandas(rows, npartitions=40).map_partitions(allocate, meta={"mean": float})
    found = hyperplane.forecast(frame.sum(), plan)
    assert found.refused
    assert any("depends on values" in reason for reason in found.reasons)


@pytest.mark.parametrize(("need", "refused"), [(300, True), (140, False), (100, False)])
def test_tasks_that_need_more_with_fewer_different_inputs_are_refused(need, refused):
    """A join in which the same keys are several times, because some tables replace the others."""
    graph = make_tree()
    steps, result = sample(graph, lambda step: 1000)
    assert [step.narrow for step in steps[-2:]] == [False, True]
    wide, narrow = result.records[-2:]
    wide = replace(wide, peak=wide.before + 100 * MB)
    narrow = replace(narrow, peak=narrow.before + need * MB)
    result = replace(result, records=(*result.records[:-2], wide, narrow))
    found = reasons.find_sample_refusals(graph, steps, result)
    assert bool(found) == refused
    if refused:
        assert "100.0 MB" in found[0] or "100 MB" in found[0]
        assert found[0].endswith("Forecast the job with fewer files, of which a sample has more")
