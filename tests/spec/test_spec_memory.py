"""The memory policy."""

import pickle

import dask.config
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.errors import RequestError
from hyperplane.spec.memory import MemoryPolicy, find_policy_faults

NAMES = ("target", "spill", "pause", "terminate")


def _faults(**thresholds):
    with pytest.raises(RequestError) as caught:
        MemoryPolicy(**thresholds)
    return caught.value.faults


def test_defaults_equal_the_documentation_and_dask():
    policy = MemoryPolicy()
    assert policy.to_dict() == {"target": 0.60, "spill": 0.70, "pause": 0.80, "terminate": 0.95}
    import distributed  # noqa: F401 - brings Dask's own defaults

    for key, value in policy.as_config().items():
        assert dask.config.get(key) == value


def test_as_config_returns_keys_of_dask():
    policy = MemoryPolicy(target=0.5, spill=False, pause=0.85, terminate=1)
    assert policy.as_config() == {
        "distributed.worker.memory.target": 0.5,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": 0.85,
        "distributed.worker.memory.terminate": 1,
    }


def test_as_env_returns_environment_variables_of_dask():
    policy = MemoryPolicy(target=0.5, spill=False, pause=0.85, terminate=0.95)
    assert policy.as_env() == {
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "0.5",
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.85",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.95",
    }


FRACTIONS = st.just(False) | st.floats(0, 1, exclude_min=True)


@given(st.tuples(FRACTIONS, FRACTIONS, FRACTIONS, FRACTIONS))
def test_dask_reads_the_environment_as_the_policy_says(thresholds):
    rising = iter(sorted(value for value in thresholds if value is not False))
    policy = MemoryPolicy(*(value if value is False else next(rising) for value in thresholds))
    read = dask.config.collect_env(policy.as_env())
    assert read["distributed"]["worker"]["memory"] == policy.to_dict()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value",
    [0, 0.0, -0.1, 1.01, 80, True, None, "0.8", "80%", float("nan"), float("inf"), [0.8], {}],
)
def test_a_threshold_that_is_neither_a_fraction_nor_false_is_a_fault(name, value):
    faults = [fault for fault in _faults(**{name: value}) if fault.where == f"memory.{name}"]
    [fault] = faults
    assert fault.asked == repr(value)
    assert fault.allowed == "a fraction in (0, 1], or False for never"


@pytest.mark.parametrize("value", [1e-9, 0.96, 1, 1.0, np.float64(0.97), False])
def test_fractions_up_to_one_are_accepted(value):
    policy = MemoryPolicy(target=False, spill=False, pause=False, terminate=value)
    assert policy.terminate == value


@pytest.mark.parametrize(
    ("thresholds", "where", "allowed"),
    [
        ({"target": 0.75}, "memory.spill", "at least memory.target (0.75)"),
        ({"pause": 0.5}, "memory.pause", "at least memory.spill (0.7)"),
        ({"terminate": 0.75}, "memory.terminate", "at least memory.pause (0.8)"),
        # A disabled threshold does not hide the order of the others.
        (
            {"spill": False, "pause": False, "terminate": 0.5},
            "memory.terminate",
            "at least memory.target (0.6)",
        ),
    ],
)
def test_a_threshold_below_the_previous_one_is_a_fault(thresholds, where, allowed):
    [fault] = _faults(**thresholds)
    assert (fault.where, fault.allowed) == (where, allowed)
    assert "below the one before it" in fault.advice


def test_equal_thresholds_are_allowed():
    assert MemoryPolicy(target=0.7, spill=0.7, pause=0.7, terminate=0.7).pause == 0.7


def test_all_faults_are_reported_together():
    faults = _faults(target=2, spill=True, pause=0.9, terminate=0.5)
    assert [fault.where for fault in faults] == [
        "memory.target",
        "memory.spill",
        "memory.terminate",
    ]


def test_unknown_names_in_a_mapping_are_faults():
    faults = find_policy_faults({"pauze": 0.5, 1: 2, "pause": 7}, "site.")
    assert [(fault.where, fault.asked) for fault in faults] == [
        ("site.pauze", "0.5"),
        ("site.1", "2"),
        ("site.pause", "7"),
    ]
    assert faults[0].allowed == "one of target, spill, pause, terminate"
    assert find_policy_faults({}, "") == []


def test_the_text_shows_percentages():
    policy = MemoryPolicy(terminate=False)
    assert str(policy) == "target 60%, spill 70%, pause 80%, terminate never"


def test_policies_compare_hash_and_pickle_by_value():
    assert MemoryPolicy() == MemoryPolicy(0.6, 0.7, 0.8, 0.95)
    assert hash(MemoryPolicy()) == hash(pickle.loads(pickle.dumps(MemoryPolicy())))
    with pytest.raises(AttributeError):
        MemoryPolicy().pause = 0.5
