import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hyperplane.errors import RequestError
from hyperplane.ml import Range
from hyperplane.ml.search.space import (
    Choice,
    describe,
    from_stored,
    list_grid,
    parse_space,
    suggest,
    to_stored,
)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"low": 2, "high": 1}, {"high"}),
        ({"low": "a", "high": float("nan")}, {"low", "high"}),
        ({"low": True, "high": 2}, {"low"}),
        ({"low": 0, "high": 1, "scale": "log"}, {"low"}),
        ({"low": 1, "high": 2, "scale": "cube"}, {"scale"}),
        ({"low": 1, "high": 2, "step": 0.5}, {"step"}),
        ({"low": -1.7e308, "high": 1.7e308}, {"high"}),
        ({"low": 1.0, "high": 2.0, "step": -1}, {"step"}),
        ({"low": 1.0, "high": 2.0, "step": 0.1, "scale": "log"}, {"step"}),
    ],
)
def test_a_range_names_each_invalid_argument(arguments, wrong):
    with pytest.raises(RequestError) as caught:
        Range(**arguments)
    assert {fault.where for fault in caught.value.faults} == wrong


def test_distributions_of_scipy_become_ranges():
    space = {
        "a": stats.loguniform(1e-3, 10),
        "b": stats.randint(1, 10),
        "c": stats.uniform(2, 3),
        "d": np.array([1, 2]),
    }
    parameters, faults = parse_space(space)
    assert faults == []
    assert parameters == {
        "a": Range(1e-3, 10.0, "log"),
        "b": Range(1, 9),
        "c": Range(2.0, 5.0),
        "d": Choice((1, 2)),
    }


@pytest.mark.parametrize("values", [3, "abc", [], stats.norm(), {}, None])
def test_other_values_are_faults(values):
    parameters, faults = parse_space({"x": values})
    assert parameters == {}
    assert [fault.where for fault in faults] == ["space.x"]


@pytest.mark.parametrize("space", [{}, None, [("x", [1])]])
def test_a_space_is_a_mapping_with_parameters(space):
    assert [fault.where for fault in parse_space(space)[1]] == ["space"]


def test_a_grid_has_all_combinations_in_order():
    parameters, _ = parse_space({"a": [1, 2], "b": Range(0.0, 0.3, step=0.1), "c": Range(3, 4)})
    grid, faults = list_grid(parameters)
    assert faults == []
    assert len(grid) == 2 * 4 * 2
    assert grid[0] == {"a": 1, "b": 0.0, "c": 3}
    assert grid[-1] == {"a": 2, "b": pytest.approx(0.3), "c": 4}


def test_a_grid_needs_lists():
    parameters, _ = parse_space({"a": Range(0.0, 1.0), "b": [1]})
    assert [fault.where for fault in list_grid(parameters)[1]] == ["space.a"]


def test_a_grid_with_too_many_combinations_is_not_listed():
    grid, faults = list_grid({"a": Range(0, 10**9), "b": Choice((1, 2))})
    assert grid == []
    assert [(fault.where, fault.asked) for fault in faults] == [
        ("space", "2,000,000,002 combinations")
    ]


def test_a_space_of_functions_is_the_same_in_the_next_process():
    spaces = [{"f": Choice((lambda x: x, object()))} for _ in range(2)]
    assert spaces[0] != spaces[1]
    assert describe(spaces[0]) == describe(spaces[1])


def test_objects_are_stored_by_position():
    space = {"layers": Choice(((50,), (50, 50)))}
    values = {"layers": space["layers"].values[1]}
    assert to_stored(values, space) == {"layers": 1}
    assert from_stored({"layers": 1}, space) == values
    assert suggest(optuna.create_study().ask(), space)["layers"] in space["layers"].values


@given(
    st.floats(0.001, 10), st.floats(0.001, 10), st.sampled_from(["linear", "log", "reverse_log"])
)
def test_drawn_values_are_in_the_range_and_can_be_stored(first, second, scale):
    low, high = sorted((first, second))
    parameters = {"x": Range(low, high, scale)}
    optuna.logging.disable_default_handler()
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).ask()
    value = suggest(trial, parameters)["x"]
    assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
    again = from_stored(to_stored({"x": value}, parameters), parameters)["x"]
    assert again == pytest.approx(value)


def test_a_reversed_log_scale_draws_mostly_large_values():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    space = {"x": Range(0.01, 1.0, "reverse_log")}
    values = [suggest(study.ask(), space)["x"] for _ in range(200)]
    assert np.median(values) > 0.8


@pytest.mark.parametrize("step", [1e-300, 5e-324])
def test_a_step_with_an_infinite_number_of_values_is_refused(step):
    with pytest.raises(RequestError, match="step = "):
        Range(0.0, 1e300, step=step)
