"""The line at the end of a run: when there is one, and the sizes that it proposes."""

import pytest

from hyperplane import config
from hyperplane.guard.run_summary import describe_size, summarize_run
from hyperplane.history import PlanSummary, RunRecord, TaskUsage, WorkerUsage
from hyperplane.spec.pool import PoolSpec

GB = 10**9
PLAN = PlanSummary(nprocs=5, nthreads=3, ram_per_proc=2 * GB, nodes=1)


def run(minutes=1.0, *, tasks=1, plan=PLAN, **worker):
    usage = {"name": "0", "limit": 2 * GB, "peak": GB, **worker}
    usage = {"demand": usage["peak"] + usage.get("spilled", 0), **usage}
    return RunRecord(
        name="r",
        cluster="c",
        started=0,
        ended=minutes * 60,
        plan=plan,
        workers=(WorkerUsage(**usage),),
        tasks=[TaskUsage(name="sum", count=1)] * tasks,
    )


@pytest.mark.parametrize(
    "record",
    [
        run(),
        run(minutes=60, peak=int(1.2 * GB)),
        run(minutes=5, peak=GB // 10),
        run(minutes=60, tasks=0, peak=GB // 10),
        run(paused_seconds=2.0),
        run(spilled=GB // 10),
        run(restarts=1, causes={"client": 1}),
        run(minutes=60, limit=0),
        RunRecord(name="r", cluster="c", started=0, ended=1),
    ],
)
def test_there_is_nothing_to_say(record):
    assert summarize_run(record, []) == ""


def test_the_summary_of_a_long_run_has_the_memory_that_would_do():
    expected = "peak 0.4 of 2 GB per process, 20 % of it: ram_gb_per_proc=0.7 would do"
    assert summarize_run(run(minutes=11, peak=int(0.4 * GB)), []) == expected


def test_the_summary_has_pauses_and_spilled_results():
    record = run(peak=int(1.7 * GB), paused_seconds=30.0, spilled=GB, spilling_seconds=20)
    assert summarize_run(record, []) == (
        "peak 1.7 of 2 GB per process, paused 30 s in all, up to 1 GB on disk, for 20 s: "
        "ram_gb_per_proc=4.5 would do"
    )


def test_killed_workers_needed_more_than_they_had():
    record = run(peak=int(1.9 * GB), restarts=2, causes={"out of memory": 2})
    assert summarize_run(record, []) == (
        "peak 1.9 of 2 GB per process, 2 restarts for lack of memory: "
        "at least ram_gb_per_proc=3.4, or what the error of a failed task proposes"
    )


def test_the_summary_has_the_peak_of_a_worker_whose_limit_has_grown():
    record = run(peak=3 * GB, limit=int(4.5 * GB))
    assert summarize_run(record, []) == (
        "peak 3 of 4.5 GB per process, with free memory of the machine beyond 2 GB: "
        "ram_gb_per_proc=5 would do"
    )


def test_the_summary_has_the_figure_of_the_error_of_a_failed_task():
    fix = "initialize_cluster(..., ram_gb_per_proc=4)"
    killed = run(peak=int(1.9 * GB), restarts=1, causes={"out of memory": 1})
    assert summarize_run(killed, [], fix=fix) == (
        "peak 1.9 of 2 GB per process, 1 restart for lack of memory: "
        "initialize_cluster(..., ram_gb_per_proc=4), as the error of a task proposes"
    )
    paused = run(peak=int(1.7 * GB), paused_seconds=30.0)
    assert summarize_run(paused, [], fix=fix).endswith("ram_gb_per_proc=2.9 would do")


@pytest.mark.usefixtures("published_pools")
@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        (0.4, "ram_gb_per_proc=0.7 would do (pool 16_16)"),
        (3.2, "ram_gb_per_proc=5.4 would do"),
        (10, "ram_gb_per_proc=17 would do (pool 16_128)"),
        (
            100,
            "ram_gb_per_proc=167 would do (fewer processes on each node: no pool has so much "
            "memory)",
        ),
    ],
)
def test_the_pool_that_would_do(demand, expected):
    plan = PLAN.model_copy(update={"pool": "16_32"})
    record = run(plan=plan, peak=GB, demand=int(demand * GB))
    assert describe_size(record, list(config.pools().values())) == expected


def pool(name: str, price: float | None = None) -> PoolSpec:
    cores, ram = map(int, name.split("_"))
    return PoolSpec(
        name=name,
        cores=cores,
        ram_gb=ram,
        allocatable_cores=cores - 1.0,
        allocatable_ram_gb=ram - 2.0,
        price_per_hour=price,
    )


def long_run(**plan):
    present = PlanSummary(nprocs=5, nthreads=1, ram_per_proc=2 * GB, nodes=3, pool="32_64", **plan)
    return run(minutes=120, peak=int(0.4 * GB), plan=present)


def test_a_smaller_pool_saves_core_hours_or_money():
    pools = [pool("8_8"), pool("32_64")]
    assert summarize_run(long_run(), pools, "EUR").endswith("(pool 8_8, saves 144 core-hours)")
    priced = [pool("8_8", 0.25), pool("32_64", 1.5)]
    assert summarize_run(long_run(), priced, "EUR").endswith("(pool 8_8, saves 7.5 EUR)")
    adaptive = long_run(max_nodes=9)
    assert describe_size(adaptive, priced, "EUR").endswith("saves at least 7.5 EUR)")


def test_a_larger_pool_saves_nothing():
    present = PlanSummary(nprocs=5, nthreads=1, ram_per_proc=GB, nodes=1, pool="8_8")
    record = run(peak=GB, demand=4 * GB, plan=present)
    pools = [pool("8_8", 0.25), pool("32_64", 1.5)]
    assert describe_size(record, pools, "EUR") == "ram_gb_per_proc=6.7 would do (pool 32_64)"
