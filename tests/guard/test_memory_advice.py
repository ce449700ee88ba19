"""The fix that is computed from the figures of reports."""

from __future__ import annotations

from typing import Any

import pytest

from hyperplane.guard.memory_advice import (
    MemoryFailure,
    WorkerLayout,
    advise,
    describe_operation,
    explain,
)
from hyperplane.guard.memory_report import Cause, MemoryReport, RunningTask

MB = 10**6
WRITE = (
    "do not put all partitions into one: write them, as with to_parquet or hyperplane.save, reduce "
    "them, or take a part of them"
)
PLAN = WorkerLayout(ram_per_proc=500 * MB, nprocs=4, nthreads=2)


def make_task(key: str = "sum-1", prefix: str = "sum", **fields: int) -> RunningTask:
    figures = {"memory_before": 150, "inputs": 0, "reserved_before": 300, **fields}
    figures.setdefault("inputs_held", figures["inputs"])
    return RunningTask(key, prefix, 1.0, **{name: size * MB for name, size in figures.items()})


def make_report(
    *running: RunningTask, peak: int = 480, reserved: int = 640, limit: int = 500, **fields: Any
) -> Any:
    values = {"cause": "terminate", "held": {}, "spilled": 0, "time": 0.0, "threads": 2, **fields}
    return MemoryReport(
        worker="tcp://127.0.0.1:1",
        name="0",
        peak=peak * MB,
        limit=limit * MB,
        running=running,
        pid=1,
        empty=150 * MB,
        reserved=reserved * MB,
        **values,
    )


def make_failure(*running: RunningTask, cause: Cause = "terminate", **fields: Any) -> MemoryFailure:
    others = {name: fields.pop(name) for name in ("input_type", "results") if name in fields}
    report = make_report(*running, cause=cause, **fields)
    return MemoryFailure(running[0].key, running[0].prefix, cause, (report,), **others)


@pytest.mark.parametrize(
    ("failure", "layout", "fix"),
    [
        pytest.param(
            make_failure(make_task()),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.5)",
            id="a growing task: twice the limit, and 2 GB more than it",
        ),
        pytest.param(
            make_failure(
                make_task("('repartitiontofewer-1', 0)", "repartitiontofewer", inputs=300),
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.5)",
            id="all partitions in one task, as compute() does: no smaller partitions",
        ),
        pytest.param(
            make_failure(
                make_task("('repartitiontofewer-1', 0)", "repartitiontofewer", inputs=800),
                cause="inputs",
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.4)",
            id="inputs larger than the limit: twice, and a process",
        ),
        pytest.param(
            make_failure(
                make_task("('repartitiontofewer-1', 0)", "repartitiontofewer", inputs=80_000),
                cause="inputs",
                input_type="pandas.core.frame.DataFrame",
            ),
            WorkerLayout(500 * MB, node_ram=64_000 * MB),
            f"{WRITE}: a process needs about 204.76 GB, and no node has more than 64.00 GB for it",
            id="inputs larger than every node",
        ),
        pytest.param(
            make_failure(make_task("finalize-1", "finalize", inputs=80_000), cause="inputs"),
            PLAN,
            f"{WRITE}: a process needs about 204.76 GB",
            id="very large inputs, on nodes whose memory is unknown",
        ),
        pytest.param(
            make_failure(
                make_task("('concat-1', 0)", "concat", inputs=100),
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            'df = df.repartition(partition_size="14MB")',
            id="dd.concat of large partitions",
        ),
        pytest.param(
            make_failure(
                make_task("('sum-tree-1', 0)", "sum-tree", inputs=800),
                cause="inputs",
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.4)",
            id="results of an aggregation whose parts are too large to be shuffled",
        ),
        pytest.param(
            make_failure(
                make_task("('sum-tree-1', 0)", "sum-tree", inputs=900),
                cause="inputs",
                input_type="pandas.core.frame.DataFrame",
                limit=4000,
            ),
            WorkerLayout(ram_per_proc=4000 * MB, nprocs=4, nthreads=2),
            "split_out=2 in the aggregation",
            id="results of an aggregation whose parts can be shuffled",
        ),
        pytest.param(
            make_failure(make_task(), reserved=1500),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.5)",
            id="an array whose size is known",
        ),
        pytest.param(
            make_failure(make_task(), reserved=1500),
            WorkerLayout(500 * MB, nprocs=4, node_ram=4000 * MB),
            "initialize_cluster(..., nprocs=1, ram_gb_per_proc=2.5)",
            id="fewer processes on a node",
        ),
        pytest.param(
            make_failure(make_task(), reserved=1500),
            WorkerLayout(500 * MB, nprocs=2, nodes=3, node_ram=4000 * MB),
            "initialize_cluster(..., num_workers=1, nprocs=1, ram_gb_per_proc=2.5)",
            id="fewer nodes on one machine",
        ),
        pytest.param(
            make_failure(make_task(), reserved=1500),
            WorkerLayout(500 * MB, node_ram=1000 * MB, pools={"4_32": 7000 * MB, "8_8": 900 * MB}),
            'initialize_cluster(..., pool="4_32", ram_gb_per_proc=2.5)',
            id="another pool",
        ),
        pytest.param(
            make_failure(make_task("a-1"), make_task("a-2")),
            PLAN,
            "initialize_cluster(..., nthreads=1)",
            id="tasks that fit one by one",
        ),
        pytest.param(
            make_failure(*(make_task(f"a-{n}") for n in range(4)), reserved=800),
            PLAN,
            "initialize_cluster(..., nthreads=2)",
            id="two of four tasks fit together",
        ),
        pytest.param(
            make_failure(make_task("a-1"), make_task("a-2"), reserved=2300),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.8)",
            id="tasks that do not fit alone either",
        ),
        pytest.param(
            make_failure(
                make_task("('sum-tree-1', 0)", "sum-tree", inputs=950, memory_before=1350),
                input_type="pandas.core.frame.DataFrame",
                peak=3800,
                limit=4000,
            ),
            WorkerLayout(ram_per_proc=4000 * MB, nprocs=4, nthreads=2),
            "split_out=2 in the aggregation",
            id="a group-by with many keys",
        ),
        pytest.param(
            make_failure(
                make_task("('lambda-1', 3)", "lambda", inputs=100, memory_before=250),
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            'df = df.repartition(partition_size="14MB")',
            id="a large partition",
        ),
        pytest.param(
            make_failure(
                make_task("('shuffle-transfer-1', 3)", "shuffle-transfer", inputs=100),
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            'df = df.repartition(partition_size="8MB")',
            id="a partition that is too large to be shuffled",
        ),
        pytest.param(
            make_failure(
                make_task("('hash-join-transfer-1', 3)", "hash-join-transfer", inputs=100),
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            'left, right = (df.repartition(partition_size="8MB") for df in (left, right))',
            id="a partition that is too large to be merged",
        ),
        pytest.param(
            make_failure(
                make_task("('p2pshuffle-1', 3)", "p2pshuffle", inputs=100),
                input_type="pandas.core.frame.DataFrame",
            ),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.5)",
            id="one key, whose rows are one partition however many there are",
        ),
        pytest.param(
            make_failure(make_task(), cause="spill disk", held={"x": 320 * MB}, results=900 * MB),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=1.4)",
            id="results that are still to come",
        ),
        pytest.param(
            make_failure(make_task(), cause="allocation", peak=160, reserved=2300),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.8)",
            id="an allocation that was refused",
        ),
        pytest.param(
            make_failure(make_task(), cause="allocation", peak=160, reserved=300),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.5)",
            id="an allocation of unknown size",
        ),
        pytest.param(
            make_failure(make_task("a-1"), make_task("a-2"), threads=1),
            PLAN,
            "initialize_cluster(..., ram_gb_per_proc=2.5)",
            id="a task that waits for another on the only thread",
        ),
        pytest.param(
            make_failure(make_task()),
            WorkerLayout(500 * MB, nprocs=1, node_ram=780 * MB),
            "initialize_cluster(..., ram_gb_per_proc=0.7)",
            id="a node has less than twice the limit",
        ),
        pytest.param(
            make_failure(make_task()),
            WorkerLayout(500 * MB, nprocs=1, node_ram=780 * MB, pools={"4_4": 2000 * MB}),
            'initialize_cluster(..., pool="4_4", ram_gb_per_proc=2)',
            id="a pool has more",
        ),
        pytest.param(
            make_failure(make_task(), reserved=1500),
            WorkerLayout(500 * MB, nprocs=1, node_ram=780 * MB),
            "smaller partitions or chunks: a process needs about 1.73 GB, and no node has more "
            "than 700 MB for it",
            id="more than a node has",
        ),
    ],
)
def test_the_fix_holds_the_measured_peak(
    failure: MemoryFailure, layout: WorkerLayout, fix: str
) -> None:
    assert advise(failure, layout) == fix
    assert explain(failure, layout).endswith(f"Fix: {fix}")


def test_the_text_has_all_figures() -> None:
    first = make_report(make_task("sum-1", inputs=80), make_task("mean-2", "mean"), peak=470)
    last = make_report(
        make_task("sum-1", inputs=80), peak=481, held={"from-map": 90 * MB}, spilled=30 * MB
    )
    text = explain(MemoryFailure("sum-1", "sum", "cgroup", (first, last)), PLAN)
    assert text.splitlines()[:-1] == [
        "task sum-1 (sum) did not fit in the memory of a worker: worker tcp://127.0.0.1:1 was "
        "killed by the kernel at the limit of its control group (batch job or container).",
        "Peak 481 MB of 500 MB; inputs of the task 80 MB; an empty worker uses 150 MB; "
        "tried 2 times.",
        "Also in memory: results (from-map 90 MB); of these 30 MB on disk.",
    ]


def test_tasks_beside_it_are_listed_with_the_growth_since_they_began() -> None:
    """A task that waits for others fails with the process, for their memory."""
    waits = make_task("driver-1", "driver", memory_before=150)
    inner = make_task("inner-1", "inner", memory_before=160)
    text = explain(make_failure(waits, inner), PLAN)
    grown = "the process grew by 320 MB since"
    assert f"Also in memory: 1 other running task (inner; {grown} it began)." in text
    text = explain(make_failure(waits, inner, make_task("sum-1", memory_before=200)), PLAN)
    assert f"Also in memory: 2 other running tasks (inner, sum; {grown} they began)." in text


@pytest.mark.parametrize(
    ("prefix", "operation"),
    [
        ("groupby-sum-chunk", "groupby-sum"),
        ("read-parquet", "read-parquet"),
        ("hashjoinp2p", "merge"),
        ("shuffle-transfer", "shuffle (sending rows)"),
        ("shuffle-barrier", "shuffle"),
    ],
)
def test_operations_have_the_words_of_collections(prefix: str, operation: str) -> None:
    assert describe_operation(prefix) == operation


def test_parts_of_array_reductions_have_the_name_of_the_reduction() -> None:
    assert describe_operation("mean_agg-aggregate") == "mean"
    assert describe_operation("mean_combine-partial") == "mean"
    assert describe_operation("my_agg") == "my_agg", "a function of the user"


def test_memory_that_is_no_result_and_not_of_the_task_is_listed() -> None:
    """A task that makes rows is not the reason if shuffles fill the memory."""
    task = make_task(memory_before=440, held_before=90)
    text = explain(make_failure(task, held={"x": 90 * MB}, spilled=30 * MB), PLAN)
    assert "results (x 90 MB); of these 30 MB on disk; 230 MB before the task began that" in text
    assert "no results" not in explain(make_failure(make_task()), PLAN)


def test_a_report_without_figures_has_a_fix() -> None:
    empty = MemoryReport("tcp://w", "0", "kernel", 0, 0, (), {}, 0, 1, 1, 0.0)
    layout = WorkerLayout(500 * MB, nprocs=4, node_ram=4000 * MB)
    assert "Fix: initialize_cluster(" in explain(
        MemoryFailure("sum-1", "sum", "kernel", (empty,)), layout
    )


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (270, "by results that are not written to disk"),
        (40, "by memory that is not that of results"),
    ],
)
def test_a_pause_names_what_fills_the_memory(held: int, reason: str) -> None:
    failure = make_failure(make_task(), cause="paused", held={"build": held * MB}, peak=440)
    assert f"was paused at 88% of its limit {reason}." in explain(failure, PLAN)
