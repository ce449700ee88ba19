"""Advice from forecasts: toy jobs with known needs, and one from the sample to the cluster."""

from __future__ import annotations

import json
import pickle
import xml.etree.ElementTree as ET
from dataclasses import replace

import dask
import dask.array as da
import dask.config
import numpy as np
import pytest
from html_pages import read_page

import hyperplane
from hyperplane.core.units import round_bytes
from hyperplane.errors import DoesNotFit, RequestError
from hyperplane.forecasts.advise import advise_layout
from hyperplane.forecasts.evaluate import SampledJob
from hyperplane.forecasts.growth import Growth
from hyperplane.forecasts.layout import find_layout
from hyperplane.forecasts.layout_search import LayoutCandidate
from hyperplane.forecasts.layout_simulator import LayoutSimulator
from hyperplane.forecasts.measured_advice import describe_option
from hyperplane.forecasts.model import ClassModel, GraphModel
from hyperplane.forecasts.result import Forecast
from hyperplane.forecasts.unit_cost import UnitCost
from hyperplane.spec.worker import WorkerSpec

MB, GB = 10**6, 10**9
_FLAT = Growth(1, 1, 0)
_CLASS = ClassModel(False, *[_FLAT] * 6)


@pytest.fixture(scope="module")
def plan():
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )


def make_job(plan, need=200 * MB, count=64, seconds=2.0, adds=0.0, **options):
    """Return a job of equal units that need memory for a time, and end in one unit."""
    units = [
        UnitCost(0, number, (), 100.0, need, seconds, {"s": adds} if adds else {})
        for number in range(count)
    ]
    units.append(UnitCost(1, count, tuple(range(count)), 100.0, 1.0, 0.0, {}, ("s",)))
    model = GraphModel(
        tuple(units), (count,), (_CLASS, _CLASS), 100.0 * MB, 0.0, 0.0, count * seconds, {}, 0.0
    )
    values = {"has_shuffles": bool(adds), "depends_on_method": bool(adds), **options}
    return SampledJob(
        model, ("load", "sum"), find_layout(plan), plan, 0.9, exact=True, tasks=len(units), **values
    )


def make_forecast(job, **options):
    values = {"refused": False, "reasons": (), "cost": 1.0, "confidence": 0.9, **options}
    return Forecast(1, 1, 1, 1, 1.0, 1.0, job=job, **values)


def test_results_in_files_have_the_interval_of_a_shuffle(plan):
    job = make_job(plan)
    filed = replace(_CLASS, in_files=0.9)
    exchange = replace(job, model=replace(job.model, classes=(filed, _CLASS)))
    shuffle = replace(job, has_shuffles=True)
    for found in (exchange, shuffle):
        interval = found.find_interval(1, 400 * MB)
        assert (interval.low / MB, interval.high / MB) == pytest.approx((310, 490))
        assert found.find_demand(400 * MB) / MB == pytest.approx(490)
    assert job.find_demand(400 * MB) / MB == pytest.approx(430)


def test_the_advised_layout_has_the_upper_end_below_the_spill_threshold(plan):
    advice = advise_layout(make_job(plan), (), None, False)
    for option in advice.options:
        assert option.high <= 0.7 * option.worker.ram_per_proc
        # A process, its connections, and the need of each thread that has one of the 64 units.
        processes = option.nodes * option.worker.nprocs
        threads = min(option.worker.nthreads, -(-64 // processes))
        assert option.peak == pytest.approx(110 * MB + threads * 200 * MB, abs=MB)
    assert advice.option in advice.options
    assert advice.simulated < advice.considered / 20
    least = min(option.core_hours for option in advice.options)
    assert advice.option.core_hours <= 1.1 * least
    assert advice.unit == "core-hours"


def test_the_lower_end_is_that_of_the_largest_process(plan):
    """One process has a large unit, and the others have small ones."""
    job = make_job(plan)
    units = list(job.model.units)
    units[0] = replace(units[0], transient=500 * MB)
    job = replace(job, model=replace(job.model, units=tuple(units)))
    worker = WorkerSpec(4, 1, 2 * GB, 4)
    simulator = LayoutSimulator(job, False, False)
    option = simulator.simulate(LayoutCandidate(hyperplane.pools()["8_16"], 1, worker, 0, 0, 0))
    assert option.peak == pytest.approx(610 * MB, abs=MB)
    # 30 % of the growth over an empty process.
    assert option.low == pytest.approx((610 - 0.28 * 510) * MB, abs=2 * MB)


@pytest.mark.parametrize(
    ("options", "share"), [({}, 0.1), ({"has_shuffles": True}, 0.3), ({"written": 1.0}, 0.45)]
)
def test_a_job_that_shuffles_or_writes_may_need_more(plan, options, share):
    job = make_job(plan, **{name: value for name, value in options.items() if name != "written"})
    job = replace(job, model=replace(job.model, written=options.get("written", 0.0)))
    assert job.find_demand(500.0 * MB) == pytest.approx((500 + share * 400) * MB)


def test_a_unit_that_needs_more_than_a_small_node_leaves_out_its_pool(plan):
    advice = advise_layout(make_job(plan, need=4.6 * GB), (), None, False)
    left_out = dict(advice.left_out)
    assert {"8_8", "4_32"} <= set(left_out)
    assert "at least 5." in left_out["8_8"]
    assert advice.pool.name not in left_out
    [option, *_] = [each for each in advice.options if each.pool.name == "16_16"]
    assert (option.worker.nprocs, option.worker.nthreads) == (1, 1)


def test_a_job_that_fits_on_no_node_is_an_error_with_the_need(plan):
    with pytest.raises(DoesNotFit, match=r"96_768.*at least .* are needed"):
        advise_layout(make_job(plan, need=900 * GB), (), None, False)


def test_only_the_pool_that_is_asked_for_is_considered(plan):
    advice = advise_layout(make_job(plan), (), "hyperplane-med-mid-mem", False)
    assert {option.pool.name for option in advice.options} == {"16_32"}


def test_prices_are_compared_if_all_pools_have_one(plan):
    key = "hyperplane.pools.pool_{}.price_per_hour"
    prices = {key.format(name): 10.0 for name in hyperplane.pools()}
    with dask.config.set({**prices, key.format("8_16"): 0.01}):
        advice = advise_layout(make_job(plan), (), None, False)
    assert (advice.pool.name, advice.unit) == ("8_16", "USD")
    assert advice.option.price == pytest.approx(0.01 * advice.option.seconds / 3600)
    assert "USD" in str(advice)


def test_layouts_of_this_machine_have_the_memory_that_they_need(plan, monkeypatch):
    from hyperplane.forecasts import advise
    from hyperplane.spec.capacity import MachineCapacity

    monkeypatch.setattr(advise, "read_capacity", lambda reserve: MachineCapacity(4, 8 * GB))
    advice = make_forecast(make_job(plan)).advise()
    assert advice.option.is_local
    running = replace(make_job(plan), plan=None)  # on a running cluster of this machine
    assert make_forecast(running).advise().option.is_local
    elsewhere = replace(running, layout=replace(running.layout, is_local=False))
    assert not make_forecast(elsewhere).advise().option.is_local
    with pytest.raises(DoesNotFit, match=r"advise\(local=False\)"):
        make_forecast(make_job(plan, need=9 * GB)).advise()
    assert (advice.worker.nprocs, advice.worker.nthreads) == (2, 2)
    # 510 MB and a tenth of the growth over an empty process, divided by 0.7.
    assert advice.worker.ram_per_proc == pytest.approx((510 + 0.1 * 410) / 0.7 * MB, abs=10 * MB)
    assert advice.as_arguments()["engine"] == "local"
    planned = hyperplane.plan_cluster(advice, local_fit="exact")
    assert (planned.engine, planned.dask_workers) == ("local", 2)
    assert planned.worker.ram_per_proc == advice.worker.ram_per_proc


def test_layouts_whose_graph_is_another_one_are_left_out_with_the_reason(plan):
    advice = advise_layout(make_job(plan, adds=10.0 * MB), (), None, False)
    assert "another method" in dict(advice.left_out)["a single process"]
    assert all(option.nodes * option.worker.nprocs > 1 for option in advice.options)


def test_pools_with_gpus_are_left_out(plan):
    with dask.config.set({"hyperplane.gpu_pools.enabled": True}):
        advice = advise_layout(make_job(plan), (), None, False)
    assert any("GPUs" in reason for _, reason in advice.left_out)


def test_tasks_whose_memory_depends_on_values_leave_out_all_layouts(plan):
    job = make_job(plan)
    varying = replace(_CLASS, spread=3.0)
    job = replace(job, model=replace(job.model, classes=(varying, _CLASS)))
    with pytest.raises(DoesNotFit, match="depends on values"):
        advise_layout(job, (), "16_16", False)


@pytest.mark.parametrize("has_job", [True, False])
def test_a_refused_forecast_has_no_advice(plan, has_job):
    job = make_job(plan, refusals=("the graph is not deterministic",)) if has_job else None
    found = make_forecast(job, refused=True, reasons=("the graph is not deterministic",))
    for work in (
        found.advise, lambda: hyperplane.size_cluster(found), lambda: hyperplane.plan_cluster(found)
    ):  # fmt: skip
        with pytest.raises(RequestError, match=r"not deterministic.*rules='classic'"):
            work()


def test_a_forecast_that_is_refused_for_its_own_limit_has_advice(plan):
    found = make_forecast(make_job(plan), refused=True, reasons=("give each process more memory",))
    advice = found.advise(local=False)
    assert advice.nodes >= 1
    assert "more memory" not in str(advice)


def test_all_faults_of_a_call_are_reported(plan):
    with pytest.raises(RequestError) as caught:
        make_forecast(make_job(plan)).advise("16_17", local=1)
    assert [fault.where for fault in caught.value.faults] == ["local", "pool"]
    with pytest.raises(RequestError, match="pool"):
        make_forecast(make_job(plan)).advise("16_16", local=True)


def test_forecasts_and_advice_are_accepted_as_sizes(plan):
    found = make_forecast(make_job(plan))
    advice = hyperplane.size_cluster(found, pool="16_32")
    assert isinstance(advice, hyperplane.MeasuredAdvice)
    planned = hyperplane.plan_cluster(advice, engine="local", local_fit="exact")
    assert planned.worker.nprocs == advice.worker.nprocs
    assert planned.pool.name == "16_32"
    assert hyperplane.plan_cluster(found).engine == "local"


def test_advice_prints_and_converts(plan):
    advice = advise_layout(make_job(plan, notes=("a note",), read=5 * MB), (), None, False)
    text = str(advice)
    for words in (
        "65 tasks, 128 CPU s, 5 MB of files",
        f"; it needs at most about {round_bytes(advice.option.high)}",
        "warning",
        "a note",
    ):
        assert words in text
    assert "confidence" not in text, "that of the upper end has not been measured"
    for each in advice.alternatives:
        assert describe_option(each) in text
    document = json.loads(json.dumps(advice.to_dict()))
    assert (document["rules"], document["pool"]) == ("measured", advice.pool.name)
    assert sum(each["on_front"] for each in [document, *document["alternatives"]]) == len(
        advice.front
    )
    assert len(document["alternatives"]) == len(advice.alternatives)
    page = read_page(advice._repr_html_())
    assert page.tags.count("svg") == 1
    assert page.cells.count("recommended") == 1
    assert all(text in page.cells for row in advice.rows() for text in row)
    assert len(pickle.dumps(advice)) < 10**6


def test_the_picture_has_a_point_for_each_option_and_colors_of_dark_pages(plan):
    advice = advise_layout(make_job(plan), (), None, False)
    picture = ET.fromstring(advice.to_svg())
    name = "{http://www.w3.org/2000/svg}"
    points = picture.findall(f"{name}circle")
    assert len(points) == len(advice.options) + 1
    assert sum("hp-front" in each.get("class") for each in points) == len(advice.front)
    assert all(
        0 < float(each.get("cx")) < 560 and 0 < float(each.get("cy")) < 300 for each in points
    )
    assert "prefers-color-scheme:dark" in picture.find(f"{name}style").text


def test_own_nodes_without_a_price_are_in_the_picture(plan):
    own = hyperplane.PoolSpec(
        name="own", cores=8, ram_gb=64, allocatable_cores=7, allocatable_ram_gb=58, price_per_hour=0
    )
    advice = advise_layout(make_job(plan), (), own, False)
    assert {option.cost for option in advice.options} == {0}
    assert "<circle" in advice.to_svg()
    axes = advice.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["own"]


@pytest.mark.slow
@pytest.mark.process
def test_collections_are_measured_unless_an_operation_is_given():
    numbers = da.ones((2000, 2000), chunks=(200, 2000))
    advice = hyperplane.size_cluster(numbers.sum())
    assert isinstance(advice, hyperplane.MeasuredAdvice)
    assert not advice.option.is_local
    for arguments in ({"operation": "sum"}, {"rules": "classic"}):
        classic = hyperplane.size_cluster(numbers, **arguments)
        assert isinstance(classic, hyperplane.SizingAdvice)
        assert classic.data_gb == 0.032


@pytest.mark.slow
@pytest.mark.process
def test_a_job_that_its_sample_shows_to_be_too_large_gets_no_published_answer():
    def sort(block):
        return np.sort(block, axis=None)[:1].reshape(1, 1)

    parts = da.ones((4000, 4000), chunks=2000).map_blocks(sort, chunks=(1, 1), dtype=float)
    tiny = hyperplane.PoolSpec(
        name="tiny", cores=2, ram_gb=0.1, allocatable_cores=2, allocatable_ram_gb=0.1
    )
    with pytest.raises(DoesNotFit, match=r"at least .* are needed"):
        hyperplane.size_cluster(parts.sum(), pool=tiny)


@pytest.mark.slow
@pytest.mark.process
def test_the_published_rules_answer_with_the_reason_if_nothing_can_be_sampled():
    def fail(block):
        raise ZeroDivisionError("no result")

    numbers = da.ones((2000, 2000), chunks=(200, 2000)).map_blocks(fail, dtype=float)
    advice = hyperplane.size_cluster(numbers)
    assert isinstance(advice, hyperplane.SizingAdvice)
    assert advice.memory_gb == 8 * 0.032
    assert "not measured: the sample failed: ZeroDivisionError: no result" in advice.warnings[0]
    assert "not measured" in str(advice)


def test_measured_rules_refuse_what_is_no_job():
    with pytest.raises(RequestError) as caught:
        hyperplane.size_cluster("100GB", "groupby", rules="measured")
    assert [fault.where for fault in caught.value.faults] == ["operation", "data"]
    with pytest.raises(RequestError, match="'measured' or 'classic'"):
        hyperplane.size_cluster("100GB", rules="best")


def allocate(size):
    return np.ones(size // 8)


@pytest.mark.slow
@pytest.mark.cluster
def test_from_the_sample_to_a_cluster_on_which_the_job_does_not_spill(plan):
    parts = [dask.delayed(np.sum)(dask.delayed(allocate)(100 * MB)) for _ in range(12)]
    job = dask.delayed(sum)(parts)
    found = hyperplane.forecast(job, plan)
    client, cluster = hyperplane.initialize_cluster(found)
    try:
        workers = client.sync(client.scheduler.identity, n_workers=-1)["workers"].values()
        advised = found.advise()
        assert len(workers) == advised.worker.nprocs
        assert {each["memory_limit"] for each in workers} == {advised.worker.ram_per_proc}
        assert client.compute(job).result() == 12 * 100 * MB // 8

        def spilled(dask_worker):
            return dask_worker.data.cumulative_metrics.get(("disk-write", "bytes"), 0)

        assert not any(client.run(spilled).values())
    finally:
        client.close()
        cluster.close()
