"""Pools: types of nodes."""

import pytest
from pydantic import ValidationError

from hyperplane.errors import RequestError
from hyperplane.spec.pool import PoolSpec, canonical_pool_name

GOOD = {
    "name": "4_32",
    "cores": 4,
    "ram_gb": 32,
    "allocatable_cores": 3.5,
    "allocatable_ram_gb": 7.2,
}


def _faults(**changes):
    values = {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}
    with pytest.raises(RequestError) as caught:
        PoolSpec(**values)
    return {fault.where: (fault.asked, fault.allowed) for fault in caught.value.faults}


def test_allocatable_memory_is_in_bytes_and_cores_are_rounded_down():
    pool = PoolSpec(**GOOD)
    assert pool.allocatable_ram == 7_200_000_000
    assert pool.whole_cores == 3
    assert (pool.alias, pool.gpus, pool.price_per_hour) == ("", 0, None)


def test_allocatable_sizes_may_equal_the_nominal_ones():
    pool = PoolSpec(**{**GOOD, "allocatable_cores": 4, "allocatable_ram_gb": 32})
    assert pool.whole_cores == 4


@pytest.mark.parametrize(
    ("changes", "where", "asked", "allowed"),
    [
        ({"allocatable_cores": 4.5}, "allocatable_cores", "4.5", "at most cores, the nominal 4"),
        ({"allocatable_ram_gb": 33}, "allocatable_ram_gb", "33", "at most ram_gb, the nominal 32"),
        ({"allocatable_cores": 0.9}, "allocatable_cores", "0.9", "at least 1.0"),
        ({"cores": 0}, "cores", "0", "more than 0.0"),
        ({"ram_gb": float("nan")}, "ram_gb", "nan", "a finite number"),
        ({"ram_gb": "much"}, "ram_gb", "'much'", "a number"),
        ({"cores": ...}, "cores", "nothing", "a value; this key is required"),
        ({"gpus": 1.5}, "gpus", "1.5", "a whole number"),
        ({"gpus": -1}, "gpus", "-1", "at least 0"),
        ({"price_per_hour": -1}, "price_per_hour", "-1", "at least 0.0"),
        ({"coers": 3}, "coers", "3", "one of " + ", ".join(PoolSpec.model_fields)),
    ],
)
def test_a_fault_names_the_key(changes, where, asked, allowed):
    assert _faults(**changes) == {where: (asked, allowed)}


def test_all_faults_are_reported_together():
    assert set(_faults(allocatable_cores=5, allocatable_ram_gb=33, gpus=-1, foo=1)) == {
        "allocatable_cores",
        "allocatable_ram_gb",
        "gpus",
        "foo",
    }


@pytest.mark.parametrize(
    "name", ["16_16", "POOL_16_16", "pool-16-16", "DASK_POOL_16_16", "Dask-Pool-16-16", " 16-16 "]
)
def test_spellings_of_a_name_are_normalized(name):
    assert canonical_pool_name(name) == "16_16"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "4_32 (3.5 cores, 7.2 GB)"),
        ({"gpus": 4, "allocatable_cores": 3}, "4_32 (3 cores, 7.2 GB, 4 GPUs)"),
    ],
)
def test_the_text_shows_allocatable_cores_memory_and_gpus(changes, text):
    assert str(PoolSpec(**{**GOOD, **changes})) == text


def test_a_pool_is_immutable():
    with pytest.raises(ValidationError):
        PoolSpec(**GOOD).cores = 8
