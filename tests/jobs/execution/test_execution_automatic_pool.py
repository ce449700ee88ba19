"""Pools that earlier runs of a step choose."""

from __future__ import annotations

import pytest

from hyperplane.history import PlanSummary, RunRecord, WorkerUsage
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.automatic_pool import AUTO, size_step, uses_auto
from hyperplane.jobs.execution.run_recording import NO_POOL

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
