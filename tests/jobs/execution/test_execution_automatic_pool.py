"""Pools that earlier runs of a step choose."""

from __future__ import annotations

import pytest

from hyperplane.history import PlanSummary, RunRecord, WorkerUsage
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.definition.step_rules import AUTO
from hyperplane.jobs.execution.automatic_pool import needs_forecast, size_step, uses_auto
from hyperplane.jobs.execution.run_recording import NO_POOL
from hyperplane.jobs.execution.step_forecast import StepForecast

GB = 10**9
POOLS = {
    "small": Resources(cores=4, ram_gb=4),
    "medium": Resources(cores=8, ram_gb=16),
    "tall": Resources(cores=8, ram_gb=64),
    "wide": Resources(cores=32, ram_gb=64),
    "gpu": Resources(cores=4, ram_gb=64, gpus=1),
}
OUT = {"out of memory": 1}


def step(resources=None, cluster=None):
    options = {"resources": resources} if resources else {}
    return Step(name="s", kind="command", argv=("true",), cluster=cluster, **options)


def of_step(*usages, reason="done"):
    workers = [WorkerUsage(**usage) for usage in usages]
    return RunRecord(
        name="r", cluster="", started=0, ended=1, exit_reason=reason, workers=workers, step="s"
    )


def usage(pool, peak, cores=1.0, **others):
    limit = int(POOLS[pool].ram_gb * GB)
    return {"name": pool, "limit": limit, "peak": int(peak * GB), "busy_cores": cores, **others}


def choose(*records, gpus=0):
    sized = size_step(step({"pool": AUTO, "gpus": gpus}), records, POOLS, "medium")
    (reason,) = sized.reasons
    assert reason.startswith(f"resources.pool: auto is {sized.step.resources.pool}: ")
    return sized.step.resources.pool, reason


def test_without_a_run_it_is_the_documented_pool():
    name, reason = choose()
    assert name == "medium"
    assert reason.endswith("no run of this step is recorded: hyperplane.jobs.default_pool")


@pytest.mark.parametrize(
    ("peak", "cores", "expected"),
    [
        (3.2, 1.0, "small"),
        (3.3, 1.0, "medium"),  # more than 80 % of 4 GB
        (1.0, 5.0, "medium"),
        (20.0, 8.0, "tall"),
        (1.0, 8.4, "medium"),  # more than the pool has cannot be measured but on this machine
        (60.0, 1.0, "tall"),
    ],
)
def test_the_smallest_pool_with_the_memory_and_cores_of_the_last_runs(peak, cores, expected):
    record = of_step(usage("medium", peak, cores))
    assert choose(record, of_step(usage("medium", 0.5)))[0] == expected


def test_more_than_any_pool_has_is_the_largest_and_says_so():
    name, reason = choose(of_step(usage("tall", 63.0, causes=OUT), reason="out of memory"))
    assert name in ("tall", "wide")
    assert reason.endswith("no pool has more")


def test_only_the_newest_runs_count():
    records = [of_step(usage("small", 1.0))] * 5 + [of_step(usage("wide", 50.0))]
    assert choose(*records)[0] == "small"


def test_gpus_are_kept():
    assert choose(of_step(usage("gpu", 1.0)), gpus=1)[0] == "gpu"
    assert choose(of_step(usage("gpu", 30.0)))[0] == "tall"


def test_a_size_in_which_it_died_is_not_used_again():
    died = of_step(usage("small", 1.0, causes=OUT), reason="out of memory")
    name, reason = choose(died)
    assert name == "medium"
    assert reason.endswith("out of memory with 4 GB")
    grown = of_step(usage("small", 1.0, causes=OUT), usage("medium", 2.0))
    assert choose(grown)[0] == "medium"
    assert choose(grown, died)[0] == "medium"


def test_a_newer_run_that_had_enough_in_that_size_counts_more():
    died = of_step(usage("small", 3.9, causes=OUT), usage("medium", 2.0))
    enough = of_step(usage("small", 1.0))
    assert choose(enough, died)[0] == "medium"  # the peak of the older run still counts
    small = of_step(usage("small", 1.0, causes=OUT), usage("medium", 1.0))
    assert choose(enough, small)[0] == "small"


def test_where_no_memory_is_measured_the_smallest_size_that_was_enough_is_kept():
    unknown = of_step({"name": "tall", "limit": 64 * GB}), of_step(usage("medium", 0, 0.0))
    name, reason = choose(*unknown)
    assert name == "medium"
    assert "a size that was enough in 2 earlier runs" in reason
    assert choose(of_step({"name": NO_POOL}))[0] == "small"


def test_a_record_without_figures_decides_nothing():
    assert choose(of_step())[0] == "medium"
    assert choose(of_step(), of_step(usage("medium", 0.5)))[0] == "small"
    empty = RunRecord(name="c", cluster="c", started=0, ended=1, step="s")
    assert size(empty)[:2] == ("medium", 8.0)


def of_cluster(ram, demand, **worker):
    figures = {"name": "0", "limit": int(ram * GB), "demand": int(demand * GB), **worker}
    return RunRecord(
        name="c", cluster="c", started=0, ended=1, step="s",
        plan=PlanSummary(ram_per_proc=int(ram * GB), nprocs=2), workers=(WorkerUsage(**figures),),
    )  # fmt: skip


CLUSTER = {"pool": AUTO, "nprocs": 2, "nthreads": 2}


def size(*records, **arguments):
    sized = size_step(step(cluster={**CLUSTER, **arguments}), records, POOLS, "medium")
    cluster = sized.step.cluster
    return cluster["pool"], cluster["ram_gb_per_proc"], sized.reasons[0]


def test_the_memory_of_worker_processes_comes_from_earlier_clusters():
    assert size()[:2] == ("medium", 8.0)
    assert size(ram_gb_per_proc=1.5)[:2] == ("small", 1.5)
    assert size(ram_gb_proc=1.5)[:2] == ("small", 1.5)
    assert size(of_cluster(8, 1.0))[:2] == ("small", 1.7)
    assert size(of_cluster(8, 1.0), of_cluster(8, 6.0))[:2] == ("tall", 10)
    assert size(of_cluster(8, 1.0), ram_gb_per_proc=3)[1] == 1.7
    assert size(of_cluster(8, 1.0), cores_per_worker=20)[0] == "wide"


def test_a_cluster_that_was_out_of_memory_grows():
    died = of_cluster(2, 1.1, causes=OUT)
    pool, ram, reason = size(died)
    assert (pool, ram) == ("medium", 3.0)
    assert "out of memory with 2 GB" in reason
    assert size(of_cluster(2, 1.1, causes=OUT), of_cluster(3, 1.0))[1] == 3.0
    assert size(of_cluster(2, 1.0), died)[1] == 1.9  # a newer one had enough with 2 GB
    assert size(of_cluster(64, 60.0, causes=OUT))[2].endswith("no pool has more for 2 processes")


def test_processes_that_do_not_fit_have_the_least_memory():
    pools = {"tiny": Resources(cores=8, ram_gb=0.5)}
    asked = step(cluster={"pool": AUTO, "nprocs": 8, "nthreads": 1})
    sized = size_step(asked, [], pools, "tiny")
    assert sized.step.cluster["ram_gb_per_proc"] == 0.1
    assert sized.reasons[0].endswith("no pool has more for 8 processes")


def test_other_steps_are_unchanged():
    plain = step({"pool": "small"}, {"pool": "medium"})
    assert not uses_auto(plain)
    assert size_step(plain, [], POOLS, "medium").step is plain
    named = {**POOLS, AUTO: Resources(cores=1, ram_gb=1)}  # a site may have such a pool
    assert size_step(step({"pool": AUTO}), [], named, "medium").step.resources.pool == AUTO


TARGET = "job.py:totals"


def forecast_step(**fields):
    return Step(
        name="s", kind="command", argv=("true",), forecast=TARGET,
        **(fields or {"resources": {"pool": AUTO}}),
    )  # fmt: skip


def choose_forecast(forecast, *records, **fields):
    sized = size_step(forecast_step(**fields), records, POOLS, "medium", forecast)
    return sized.step, sized.reasons[0]


@pytest.mark.parametrize(
    ("node", "cores", "expected"),
    [
        ({2: 3.1}, 0, "small"),
        ({2: 3.3}, 0, "medium"),  # more than 80 % of 4 GB
        ({2: 1.0}, 5, "medium"),
        ({4: 3.3, 8: 14.0, 32: 40.0}, 0, "tall"),  # 16 GB are too few for 8 threads
        ({4: 3.1, 8: 14.0, 32: 40.0}, 0, "small"),
        ({2: 1.0}, 400, "wide"),  # no pool has so many cores
        ({2: 60.0}, 0, "tall"),
    ],
)
def test_a_forecast_chooses_the_smallest_pool_for_all_processes(node, cores, expected):
    bytes_of = {threads: int(size * GB) for threads, size in node.items()}
    sized, reason = choose_forecast(StepForecast(TARGET, node=bytes_of, cores=cores))
    assert sized.resources.pool == expected
    assert reason.startswith(f"resources.pool: auto is {expected}: up to ")
    assert "in all processes by the forecast of job.py:totals" in reason
    assert reason.endswith("; no pool has more") == (node == {2: 60.0})


def test_a_forecast_sizes_the_worker_processes_of_a_cluster():
    found = StepForecast(TARGET, high=GB, ram_per_proc=1_430_000_000, runs=2)
    sized, reason = choose_forecast(found, cluster={**CLUSTER, "ram_gb_per_proc": 9})
    assert (sized.cluster["pool"], sized.cluster["ram_gb_per_proc"]) == ("small", 1.5)
    assert Step.from_json(sized.to_json()) == sized  # as the steps of rendered jobs are
    assert reason == (
        "cluster.pool: auto is small, ram_gb_per_proc 1.5: up to 1 GB in a process by the "
        "forecast of job.py:totals, from 2 earlier runs of the program"
    )


def test_a_forecast_that_failed_leaves_the_default_pool_and_says_why():
    failed = StepForecast(TARGET, failure="ValueError:\n no  data")
    sized, reason = choose_forecast(failed)
    assert sized.resources.pool == "medium"
    expected = "the forecast of job.py:totals failed (ValueError: no data)"
    assert reason.endswith(f"and {expected}: hyperplane.jobs.default_pool")
    sized, reason = choose_forecast(failed, cluster={**CLUSTER, "ram_gb_per_proc": 1.5})
    assert (sized.cluster["pool"], sized.cluster["ram_gb_per_proc"]) == ("small", 1.5)
    assert reason.endswith(f"no run of its clusters is recorded as complete, and {expected}")


def test_before_the_forecast_the_default_pool_says_that_it_is_made_later():
    sized, reason = choose_forecast(None)
    assert sized.resources.pool == "medium"
    assert reason.endswith("until job.py:totals is forecast, when the step starts")
    _, reason = choose_forecast(None, cluster={**CLUSTER, "ram_gb_per_proc": 1.5})
    assert reason.endswith("as given until job.py:totals is forecast, when the step starts")


def test_the_cluster_on_other_machines_says_nothing_about_the_pool_of_the_step():
    found = StepForecast(TARGET, high=GB, ram_per_proc=2 * GB)
    both = {"resources": {"pool": AUTO}, "cluster": CLUSTER}
    sized, reason = choose_forecast(found, **both)
    assert (sized.resources.pool, sized.cluster["ram_gb_per_proc"]) == ("medium", 2)
    assert "is of its cluster, whose processes are on other machines" in reason


def test_records_of_earlier_runs_count_more_than_a_forecast():
    found = StepForecast(TARGET, high=GB, ram_per_proc=40 * GB, node={2: 50 * GB})
    run = of_step(usage("medium", 2.0))
    sized, reason = choose_forecast(found, run)
    assert sized.resources.pool == "small"
    assert "2 GB at most in 1 earlier run" in reason
    sized, _ = choose_forecast(found, of_cluster(8, 1.0), cluster=CLUSTER)
    assert sized.cluster["ram_gb_per_proc"] == 1.7


def test_a_forecast_is_needed_only_where_no_run_is_recorded():
    both = {"resources": {"pool": AUTO}, "cluster": CLUSTER}
    run, cluster = of_step(usage("medium", 2.0)), of_cluster(8, 1.0)
    assert needs_forecast(forecast_step(), [])
    assert needs_forecast(forecast_step(), [of_step()])  # it has no figures
    assert not needs_forecast(forecast_step(), [run])
    assert needs_forecast(forecast_step(**both), [run])
    assert needs_forecast(forecast_step(**both), [cluster])
    assert not needs_forecast(forecast_step(**both), [run, cluster])
    assert not needs_forecast(forecast_step(cluster=CLUSTER), [cluster])
    assert not needs_forecast(step({"pool": AUTO}), [])


def test_a_run_that_failed_for_another_reason_does_not_take_the_place_of_a_forecast():
    found = StepForecast(TARGET, high=GB, ram_per_proc=3 * GB, node={2: 50 * GB})
    both = {"resources": {"pool": AUTO}, "cluster": CLUSTER}
    failed = of_step(usage("tall", 0.2), reason="failed").model_copy(update={"job": "one"})
    started = of_cluster(3, 0.2).model_copy(update={"job": "one"})
    assert needs_forecast(forecast_step(**both), [failed, started])
    sized, reason = choose_forecast(found, failed, started, **both)
    assert (sized.resources.pool, sized.cluster["ram_gb_per_proc"]) == ("tall", 3)
    assert "in all processes by the forecast" in reason
    # As soon as the job has succeeded, or was out of memory, its runs count.
    for reason, causes in (("done", {}), ("out of memory", OUT), ("failed", OUT)):
        again = of_step(usage("tall", 0.3, causes=causes), reason=reason)
        again = again.model_copy(update={"job": "one"})
        assert not needs_forecast(forecast_step(**both), [again, failed, started])
    assert choose(failed)[0] == "small"  # without a forecast it is all that is known


def test_after_a_forecast_that_was_too_low_the_next_size_is_larger():
    found = StepForecast(TARGET, high=GB, ram_per_proc=GB, node={2: 2 * GB})
    both = {"resources": {"pool": AUTO}, "cluster": CLUSTER}
    first, _ = choose_forecast(found, **both)
    assert (first.resources.pool, first.cluster["ram_gb_per_proc"]) == ("small", 1)
    died = of_step(usage("small", 3.9, causes=OUT), reason="out of memory")
    second, reason = choose_forecast(found, of_cluster(1, 1.0, causes=OUT), died, **both)
    assert (second.resources.pool, second.cluster["ram_gb_per_proc"]) == ("medium", 1.7)
    assert reason.endswith("out of memory with 4 GB")


def test_a_forecast_is_kept_as_json():
    found = StepForecast(TARGET, high=1, ram_per_proc=2, node={4: 3, 16: 4}, cores=5, cost=0.5)
    assert StepForecast.from_json(found.to_json()) == found
    with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
        StepForecast.from_json("{}")
