"""Forecasts of real collections; the sample runs in a separate process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from html_pages import read_page
from scale import scaled

import hyperplane
from hyperplane.core.units import round_bytes
from hyperplane.errors import RequestError
from hyperplane.forecasts import collection_graph, reasons
from hyperplane.forecasts.exact_inputs import explain_limit
from hyperplane.forecasts.result import Forecast

MB = 10**6


@pytest.fixture(scope="module")
def plan():
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("events")
    numbers = np.arange(20_000)
    for part in range(8):
        frame = pd.DataFrame({"k": numbers + 10_000 * part, "v": numbers * 0.5, "g": numbers % 3})
        frame.to_parquet(path / f"{part}.parquet")
    return path


def allocate(size):
    return np.ones(size // 8)


def describe_pools():
    import pyarrow

    started_with = Path("/proc/self/environ").read_bytes()
    chosen = os.environ.get("ARROW_DEFAULT_MEMORY_POOL", "")
    return (
        f"{b'ARROW_DEFAULT' in started_with} {chosen} {pyarrow.default_memory_pool().backend_name}"
    )


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_sample_of_a_forked_worker_gets_its_memory_pool_after_arrow_is_loaded(plan, tmp_path):
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        pytest.skip("the pool is set for all processes")

    def write(file):
        Path(file).write_text(describe_pools())

    file = tmp_path / "pools"
    assert not hyperplane.forecast(dask.delayed(write)(str(file)), plan).refused
    assert file.read_text() == "False system system"
    client, cluster = hyperplane.start(plan)
    try:
        assert set(client.run(describe_pools).values()) == {"False system system"}
    finally:
        client.close()
        cluster.close()


@pytest.mark.slow
@pytest.mark.process
def test_a_function_that_needs_a_known_memory(plan):
    parts = [dask.delayed(np.sum)(dask.delayed(allocate)(200 * MB)) for _ in range(20)]
    found = hyperplane.forecast(dask.delayed(sum)(parts), plan)
    assert not found.refused
    # A process with its modules, and two blocks: the one that is summed up and the next.
    assert 50 * MB < found.peak - 400 * MB < 300 * MB
    assert found.total > 1.9 * found.peak
    assert found.largest_term == "running allocate, sum"
    assert found.low < found.peak < found.high < 2 * found.peak
    assert json.loads(found.to_json())["peak"] == found.peak
    assert "running allocate, sum" in str(found)
    page = read_page(found._repr_html_())
    assert page.tags.count("svg") == 1
    assert page.classes.count("hp-bar") == (found.limit > 0)
    assert all(text in page.cells for row in found.rows() for text in row)
    assert max(found.series.peaks) == pytest.approx(found.peak, rel=0.001)
    assert found.cpu_low < found.cpu_s < found.cpu_high
    assert found.wall_low < found.wall_s < found.wall_high


def make_block(rows):
    return np.ones((rows, 10_000))


def take_row(left, right, row):
    return left[row] + right[0]


@pytest.mark.slow
@pytest.mark.process
def test_tasks_that_fail_with_inputs_of_others_get_their_own(plan):
    blocks = [dask.delayed(make_block)(30 - part) for part in range(20)]
    rows = [
        dask.delayed(take_row)(left, right, 29 - part)
        for part, (left, right) in enumerate(pairwise(blocks))
    ]
    found = hyperplane.forecast(dask.delayed(sum)(rows), plan)
    assert not found.refused
    assert found.sampled < 15


def test_own_inputs_are_limited():
    blocks = [dask.delayed(make_block)(part) for part in range(200)]
    job = dask.delayed(take_row)(blocks, [dask.delayed(sum)(blocks)], 0)
    graph = collection_graph.materialize(job, {})
    kinds = graph.units.kinds
    assert "200 of 200 first tasks" in explain_limit(graph, [kinds.index("take_row")])
    assert not explain_limit(graph, [kinds.index("make_block")])


@pytest.mark.slow
@pytest.mark.process
def test_more_threads_need_more_memory_in_a_process():
    numbers = da.random.default_rng(0).random((8000, 4000), chunks=(500, 4000)).sum()
    peaks = []
    for nthreads in (1, 4):
        layout = hyperplane.plan_cluster(
            num_workers=1, nprocs=1, nthreads=nthreads, ram_gb_per_proc=2, engine="local",
            local_fit="exact",
        )  # fmt: skip
        peaks.append(hyperplane.forecast(numbers, layout).peak)
    assert peaks[1] - peaks[0] > 20 * MB


@pytest.mark.slow
@pytest.mark.process
def test_writing_is_sampled_in_another_folder(plan, folder, tmp_path):
    frame = dd.read_parquet(folder)
    target = tmp_path / "out"
    job = frame.to_parquet(target, write_index=False, compute=False)
    found = hyperplane.forecast(job, plan)
    assert not found.refused
    assert found.sampled
    assert list(tmp_path.rglob("*.parquet")) == []
    assert found.read == sum(path.stat().st_size for path in folder.iterdir())
    job.compute()
    written = sum(path.stat().st_size for path in target.glob("*.parquet"))
    assert found.written == pytest.approx(written, rel=0.05)
    assert f"{round_bytes(found.written)} written" in str(found)
    assert json.loads(found.to_json())["written"] == found.written


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("ordered", scaled([False], [True, False]))
def test_a_shuffle_is_sampled_with_output_partitions_of_the_true_size(plan, folder, ordered):
    frame = dd.read_parquet(folder)
    if ordered:
        frame = frame.assign(k=(frame.k * 7919) % 1000)
    job = frame.merge(frame[["k", "g"]].rename(columns={"g": "h"}), on="k").groupby("h").v.sum()
    found = hyperplane.forecast(job, plan)
    assert not found.refused, found.reasons
    # Two tables of 160,000 rows, of two and three columns and the number of the partition.
    assert 6 * MB < found.shuffled < 12 * MB
    assert found.reasons == (
        "how many rows of a shuffle are in memory at a time differs between runs",
    )


def _xarray_mean():
    import xarray

    numbers = da.ones((4000, 2000), chunks=(200, 2000))
    return xarray.Dataset({"value": (("time", "x"), numbers)}).mean("time")


KINDS = {
    "bag": lambda folder: db.from_sequence(range(200), npartitions=10).map(str).frequencies(),
    "groupby": lambda folder: dd.read_parquet(folder).groupby("k").v.sum(),
    "array": lambda folder: da.ones((4000, 4000), chunks=500).T.dot(
        da.ones((4000, 10), chunks=500)
    ),
    "cumsum": lambda folder: dd.read_parquet(folder).v.cumsum(),
    "helper": lambda folder: hyperplane.dataframe.group_agg(
        dd.read_parquet(folder), "g", {"v": "sum"}
    ),
    "xarray": lambda folder: _xarray_mean(),
}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", scaled(["bag", "groupby"], list(KINDS)))
def test_collections_of_all_kinds(plan, folder, kind):
    found = hyperplane.forecast(KINDS[kind](folder), plan)
    assert not found.refused, found.reasons
    assert 30 * MB < found.peak < 500 * MB
    assert found.cost > 0


@pytest.mark.slow
@pytest.mark.process
def test_an_array_that_is_rechunked_through_a_shuffle(plan):
    with dask.config.set({"array.rechunk.method": "p2p"}):
        numbers = da.ones((4000, 4000), chunks=(200, 4000)).rechunk((4000, 200)).sum()
        found = hyperplane.forecast(numbers, plan)
    assert not found.refused, found.reasons
    assert found.shuffled == 4000 * 4000 * 8


def fail(number):
    raise ZeroDivisionError(f"no result for {number}")


_calls = []


def unequal_runs(number):
    _calls.append(number)
    return np.ones(10**6 * len(_calls))


def be_killed(number):
    assert Path("/proc/self/oom_score_adj").read_text() == "1000\n"
    os.kill(os.getpid(), signal.SIGKILL)


def depends_on_value(number):
    return float(np.ones((40 if number % 20 > 10 else 4) * 10**6).sum())


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fail, r"the sample failed: ZeroDivisionError: no result for \d+"),
        (unequal_runs, "not deterministic"),
        (depends_on_value, "depends on values"),
        (be_killed, "was killed, because a task took all memory"),
    ],
)
def test_jobs_that_no_sample_can_show_are_refused(plan, function, words):
    # Names, because random ones would change which of them are sampled.
    parts = [dask.delayed(function)(number, dask_key_name=("part", number)) for number in range(40)]
    found = hyperplane.forecast(dask.delayed(len)(parts), plan)
    assert found.refused
    assert any(re.search(words, reason) for reason in found.reasons)
    assert "refused" in str(found)


@pytest.mark.slow
@pytest.mark.process
def test_a_forecast_above_the_spill_threshold_is_refused():
    layout = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, engine="local", local_fit="exact"
    )
    parts = [dask.delayed(np.sum)(dask.delayed(allocate)(150 * MB)) for _ in range(20)]
    found = hyperplane.forecast(dask.delayed(sum)(parts), layout)
    assert found.refused
    assert found.peak > 400 * MB
    assert "350 MB" in found.reasons[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda frame, path: dask.delayed(list)(frame.to_csv(path / "*.csv", compute=False)),
        lambda frame, path: dask.delayed(list)(
            frame.to_bag().to_textfiles(path / "*.txt", compute=False)
        ),
        lambda frame, path: da.ones((40, 40), chunks=10).store(np.zeros((40, 40)), compute=False),
        lambda frame, path: frame.to_orc(path / "orc", compute=False),
        lambda frame, path: dask.delayed(list)(
            db.from_sequence([{"a": 1}], npartitions=1).to_avro(
                str(path / "*.avro"),
                {"name": "row", "type": "record", "fields": [{"name": "a", "type": "int"}]},
                compute=False,
            )
        ),
    ],
    ids=["csv", "text", "array", "orc", "avro"],
)
def test_jobs_that_would_write_to_their_target_are_refused(plan, tmp_path, make):
    frame = dd.from_pandas(pd.DataFrame({"a": ["x", "y"]}), npartitions=2)
    found = hyperplane.forecast(make(frame, tmp_path), plan)
    assert found.refused
    assert "would write to their target" in found.reasons[0]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (found.peak, found.sampled) == (0, 0)


def test_a_source_larger_than_those_of_the_sample_is_a_reason_to_refuse(folder):
    graph = collection_graph.materialize(dd.read_parquet(folder).v.sum(), {})
    [first, *_] = graph.units.members_of(0)
    assert not reasons._find_larger_sources(graph, [_step(first)])
    graph.info.weights[graph.units.members_of(0)[-1]] *= 10
    assert "was not sampled" in reasons._find_larger_sources(graph, [_step(first)])[0]


def _step(unit):
    from hyperplane.forecasts.sample_plan import SampleStep

    return SampleStep(unit, {}, frozenset())


def test_all_faults_are_reported_at_once():
    with pytest.raises(RequestError) as caught:
        hyperplane.forecast(pd.DataFrame(), "plan", budget=0, confidence=1.5)
    assert [fault.where for fault in caught.value.faults] == [
        "collection", "budget", "confidence", "plan",
    ]  # fmt: skip
    assert "nothing was sampled" in str(caught.value)


def test_without_a_plan_and_a_cluster_the_message_says_what_to_pass():
    with pytest.raises(RequestError, match=r"plan=hyperplane\.plan_cluster"):
        hyperplane.forecast(da.ones(3))


@pytest.mark.process
@pytest.mark.parametrize(
    "imports",
    [
        "import hyperplane; import hyperplane.forecasts.model",
        "import hyperplane.forecasts.model; import hyperplane",
        "from hyperplane import forecast; import hyperplane.forecasts.forecast",
    ],
)
def test_the_function_is_not_replaced_by_a_module(imports):
    code = f"{imports}\nimport types; assert isinstance(hyperplane.forecast, types.FunctionType)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_result_prints_what_is_known():
    found = Forecast(
        peak=1_234_567_890,
        low=10**9,
        high=1_500_000_000,
        total=2_469_135_780,
        cpu_s=12.5,
        wall_s=6.2,
        refused=False,
        reasons=("a note",),
        cost=0.5,
        confidence=0.9,
        terms=(("shuffle buffers", 800 * MB),),
        layout="2 worker processes x 1 thread",
        limit=4 * 10**9,
        read=10**9,
        written=300 * MB,
        cpu_low=8.0,
        cpu_high=20.0,
        wall_low=4.0,
        wall_high=9.0,
        tasks=901,
        sampled=30,
    )
    text = str(found)
    assert text.splitlines() == [
        "peak    1.23 GB in the largest worker process (1 GB to 1.5 GB with 90 % confidence)",
        "mostly  shuffle buffers, 800 MB",
        "total   2.47 GB in 2 worker processes x 1 thread",
        "time    12.5 CPU s (8 to 20), 6.2 s of wall time (4 to 9)",
        "limit   4 GB for each worker process",
        "data    1 GB read, 300 MB written",
        "sample  30 of 901 tasks, 0.5 CPU s",
        "note    a note",
    ]
