"""Sizes of Spark executors, and settings with properties of Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane.core.units import bytes_to_gb, gb_to_bytes
from hyperplane.errors import RequestError
from hyperplane.spec.spark_options import (
    MIB,
    MIN_EXECUTOR,
    MIN_HEAP,
    SparkOptions,
    add_overhead,
    subtract_overhead,
)


@given(st.integers(512, 2_000_000))
def test_a_heap_survives_the_way_through_a_plan(mebibytes: int) -> None:
    memory = add_overhead(mebibytes * MIB)
    assert subtract_overhead(gb_to_bytes(bytes_to_gb(memory))) == mebibytes * MIB


@given(st.integers(MIN_EXECUTOR, 2**42))
def test_a_heap_and_its_overhead_fit_and_use_the_memory(memory: int) -> None:
    heap = subtract_overhead(memory)
    assert heap >= MIN_HEAP
    assert add_overhead(heap) <= memory < add_overhead(heap + MIB)


def test_a_plan_divides_the_memory_of_an_executor() -> None:
    plan = hyperplane.plan_cluster(
        engine="spark:local", num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=1
    )
    options = SparkOptions.of(plan.options)
    assert options.heap + options.overhead == 10**9
    assert "heap" in dict(plan.rows())["memory of an executor"]
    other = hyperplane.plan_cluster(engine="ray:local", num_workers=1, nprocs=1, nthreads=1)
    with pytest.raises(RequestError, match="SparkOptions"):
        SparkOptions.of(other.options)


def test_too_little_memory_is_refused_with_the_other_faults() -> None:
    with pytest.raises(RequestError) as caught:
        hyperplane.plan_cluster(engine="spark:local", ram_gb_per_proc=0.5, ngpus=1)
    assert {fault.where for fault in caught.value.faults} == {"ram_gb_per_proc", "ngpus"}
    assert "939.5 MB" in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"spark.master": "local"}, "the cluster does not set"),
        ({"sparkle": 1}, "name of a property of Spark"),
        ({"spark.x": "a\nb"}, "without line breaks"),
        ({"spark.x": [1]}, "properties"),
        ("spark.x=1", "properties"),
    ],
)
def test_wrong_properties_are_refused(properties: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        hyperplane.plan_cluster(engine="spark:local", engine_options={"properties": properties})
