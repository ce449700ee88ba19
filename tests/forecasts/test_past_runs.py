"""Forecasts from the records of earlier runs."""

from __future__ import annotations

import math

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import pytest

import hyperplane
from hyperplane.forecasts import past_runs
from hyperplane.forecasts.collection_graph import materialize
from hyperplane.forecasts.layout import find_layout
from hyperplane.forecasts.past_runs import predict_growth
from hyperplane.history import ComputationUsage, PlanSummary, RunRecord, list_runs
from hyperplane.history.program import find_program
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run

MB = 10**6


def plan(nthreads=2, **options):
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=nthreads, ram_gb_per_proc=4, engine="local", **options
    )


def make_sum(rows=8000):
    """Return a job without files: its chunks are counted."""
    return da.ones((rows, 500), chunks=(1000, 500)).sum()


def find_size(collection):
    return past_runs.JobSize.of(materialize(collection, {}))


def write_record(collection, number=1, *, run=None, **usage):
    """Write the record of a run of a job."""
    size = find_size(collection)
    figures = {
        "name": "sum",
        "structure": size.structure,
        "sources": size.sources,
        "input": size.input,
        "processes": 1,
        "threads": 2,
        "peak": 500 * MB,
        "total": 500 * MB,
        "empty": 100 * MB,
        "seconds": 8.0,
        "cpu_seconds": 10.0,
        "started": 1_800_000_000.0 + number,
    }
    record = RunRecord(
        **{
            "name": new_run_name("flights", number),
            "cluster": "flights",
            "started": number,
            "ended": number + 60,
            "plan": PlanSummary(engine="local", nodes=1, nprocs=1, nthreads=2),
            "program": find_program(),
            "computations": (ComputationUsage(**{**figures, **usage}),),
            **(run or {}),
        }
    )
    return write_run(record)


def test_the_same_job_is_forecast_by_its_last_run():
    record = write_record(make_sum())
    found = hyperplane.forecast(make_sum(), plan())
    assert (found.peak, found.refused) == (500 * MB, False)
    assert found.low < 480 * MB < 520 * MB < found.high
    assert (found.runs, found.sampled, found.cost) == ((record.name,), 0, 0)
    assert (found.cpu_s, found.wall_s) == (10, 8)
    assert f"measured in run {record.name} of " in found.reasons[0]
    assert "this job has the same partitions" in found.reasons[0]
    text = str(found)
    assert "history  1 earlier run; nothing was sampled" in text
    assert "sample " not in text
    assert found.to_dict()["runs"] == [record.name]


@pytest.mark.slow
@pytest.mark.process
def test_history_can_be_left_out():
    write_record(make_sum())
    found = hyperplane.forecast(make_sum(), plan(), history=False)
    assert found.runs == ()
    assert found.sampled > 0


def test_a_change_of_the_input_is_scaled_within_its_bounds():
    write_record(make_sum())
    found = hyperplane.forecast(make_sum(12_000), plan())
    assert 500 * MB < found.peak < 700 * MB  # constant, and proportional growth
    assert found.low <= 500 * MB
    assert found.high >= 700 * MB
    assert found.cpu_s == pytest.approx(15)
    assert found.wall_s == pytest.approx(12)
    assert "this job has 1.5 times the partitions" in found.reasons[0]


def test_runs_of_other_sizes_show_how_the_memory_grows():
    for number, (rows, growth) in enumerate([(8000, 400), (9000, 450), (12_000, 600)], 1):
        write_record(make_sum(rows), number, peak=(100 + growth) * MB)
    found = hyperplane.forecast(make_sum(16_000), plan())
    # One run of each size still leaves some of the prior exponent; 900 MB would be proportional.
    assert 700 * MB < found.peak < 900 * MB < found.high
    assert len(found.runs) == 3
    assert "and in 2 earlier runs" in found.reasons[0]


def test_more_runs_of_one_size_narrow_the_interval():
    widths = []
    for number in (1, 2, 3, 4, 5):
        write_record(make_sum(), number, peak=(500 + number) * MB)
        found = hyperplane.forecast(make_sum(), plan())
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.8 * widths[0]


@pytest.mark.slow
@pytest.mark.process
def test_a_larger_change_is_sampled_again():
    record = write_record(make_sum(2000))
    found = hyperplane.forecast(make_sum(8000), plan())
    assert found.sampled > 0
    assert found.runs == ()
    assert f"run {record.name}" in found.reasons[-1]
    assert "now 4 times as large, and at most a factor of 2.1 is scaled" in found.reasons[-1]


@pytest.mark.parametrize(
    "usage",
    [
        {"failed": 1},
        {"shared": True},
        {"disturbed": True},
        {"spilled": 10 * MB},
        {"held": 90 * MB},
        {"threads": 1},
        {"empty": 0},
        {"structure": "other"},
        {"run": {"program": "another.py"}},
        {"input": 5 * MB},
    ],
)
def test_other_runs_do_not_count(usage):
    write_record(make_sum(), **usage)
    graph = materialize(make_sum(), {})
    found = past_runs.forecast_from_runs(graph, find_layout(plan()), 0.9, find_program())
    assert found == (None, "")


def test_a_run_of_the_same_step_counts_whatever_its_program(monkeypatch):
    names = {"pipeline": "nightly", "step": "sum", "program": "other.py"}
    write_record(make_sum(), run=names)
    monkeypatch.setenv("HYPERPLANE_JOB_PIPELINE", "nightly")
    monkeypatch.setenv("HYPERPLANE_JOB_STEP", "sum")
    assert len(hyperplane.forecast(make_sum(), plan()).runs) == 1


def test_other_numbers_of_processes_share_the_input():
    write_record(make_sum(), processes=1)
    two = hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=2, ram_gb_per_proc=4, engine="local", local_fit="exact"
    )
    found = hyperplane.forecast(make_sum(16_000), two)
    assert found.peak == 500 * MB
    assert found.total == pytest.approx(1000 * MB)


def test_a_limit_below_the_upper_end_is_refused():
    write_record(make_sum(), peak=3000 * MB)
    found = hyperplane.forecast(make_sum(), plan())
    assert found.refused
    assert "results are written to disk" in found.reasons[0]
    assert found.runs


def test_another_version_of_dask_is_named():
    write_record(make_sum(), run={"versions": {"dask": "2020.1.0", "pandas": "1.0"}})
    assert hyperplane.forecast(make_sum(), plan()).reasons[1] == "that run had dask 2020.1.0"


@pytest.mark.slow
@pytest.mark.process
def test_advice_from_a_forecast_without_a_sample_takes_one():
    write_record(make_sum())
    found = hyperplane.forecast(make_sum(), plan())
    assert (found.runs, found.job) != ((), None)
    advice = found.advise(local=True)
    assert advice.option.is_local
    assert advice.job.tasks == found.tasks
    assert advice.chosen.peak < 400 * MB  # of the sample; the record has 500 MB


@pytest.mark.slow
@pytest.mark.process
def test_a_size_is_measured_by_a_sample_also_after_a_run():
    write_record(make_sum(), processes=2, threads=1)
    advice = hyperplane.size_cluster(make_sum())
    assert isinstance(advice, hyperplane.MeasuredAdvice)


def test_a_value_that_is_no_flag_is_refused():
    with pytest.raises(hyperplane.RequestError, match="history"):
        hyperplane.forecast(make_sum(), plan(), history="yes")


def test_growth_of_runs():
    assert predict_growth([1.0], [5e8]).center == pytest.approx(math.log(5e8))
    one, four = predict_growth([1.0], [5e8]), predict_growth([1.0] * 4, [5e8] * 4)
    assert four.quantile(0.9) < one.quantile(0.9)
    assert predict_growth([1.0] * 4, [3e8, 5e8, 8e8, 4e8]).scale > four.scale
    assert predict_growth([2.0], [5e8]).scale > one.scale
    steep = predict_growth([2.0, 1.0], [1e8, 9e8])
    assert steep.exponent == 1


@pytest.mark.cluster
def test_the_second_run_needs_no_sample(tmp_path):
    """A job that runs on a cluster is recognized by its graph on the scheduler."""
    for part in range(6):
        frame = pd.DataFrame({"key": range(1000), "value": 1.0})
        frame.to_parquet(tmp_path / f"part-{part}.parquet")

    def make(files):
        paths = [str(tmp_path / f"part-{part}.parquet") for part in range(files)]
        table = dd.read_parquet(paths)
        return table[table.value > 0].groupby("key").value.sum()

    layout = plan(nthreads=1, local_fit="exact")
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        client, cluster = hyperplane.start(layout)
        client.compute(make(4)).result()
        client.close()
        cluster.close()
        (run,) = list_runs()
        usage = max(run.computations, key=lambda each: each.tasks)
        assert usage.input == sum(
            (tmp_path / f"part-{part}.parquet").stat().st_size for part in range(4)
        )
        assert 50 * MB < usage.empty <= usage.peak
        assert usage.cpu_seconds > 0
        assert (usage.count, usage.failed, usage.shared) == (1, 0, False)
        found = hyperplane.forecast(make(4), layout)
        assert found.runs == (run.name,)
        assert found.peak == usage.peak or usage.peak - usage.empty < 10 * MB
        larger = hyperplane.forecast(make(6), layout)
        assert larger.runs == (run.name,)
        assert "1.5 times the input" in larger.reasons[0]
