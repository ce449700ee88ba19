"""Bounds of memory and time hold for every simulation."""

from __future__ import annotations

import random

import pytest

from hyperplane.forecasts.bounds import JobBounds
from hyperplane.forecasts.model import GraphModel
from hyperplane.forecasts.simulate import Simulation
from hyperplane.forecasts.simulated_memory import ProcessBaseline
from hyperplane.forecasts.unit_cost import UnitCost

MEMORY = ProcessBaseline(empty=100.0, retained=10.0, shuffle_buffer=1e12)


def make_model(units, targets=None):
    return GraphModel(
        tuple(units), tuple(targets or [len(units) - 1]), (), MEMORY.empty, 0.0, 0.0, 0.0, {}, 0.0
    )


def unit(number, *dependencies, output=0.0, transient=0.0, seconds=1.0, **options):
    return UnitCost(0, number, dependencies, output, transient, seconds, **options)


def test_the_largest_unit_has_its_inputs():
    units = [unit(0, output=30), unit(1, output=40), unit(2, 0, 1, transient=5)]
    assert JobBounds(make_model(units)).find_peak(2, 1, MEMORY) == 110 + 75


def test_a_view_of_an_input_needs_no_memory():
    units = [unit(0, output=30), unit(1, 0, output=20, is_view=True), unit(2, 0, 1, transient=5)]
    for targets in ([2], [0, 1, 2]):
        bounds = JobBounds(make_model(units, targets))
        found = Simulation(units, targets, MEMORY, 1, 1, jitter=0.0).run()
        assert bounds.find_peak(1, 1, MEMORY) == max(found.peaks) == 110 + 35
    alone = [unit(0, output=30), unit(1, 0, output=20, is_view=True), unit(2, 1, transient=5)]
    assert JobBounds(make_model(alone)).find_peak(1, 1, MEMORY) == 110 + 30


@pytest.mark.parametrize(
    ("processes", "threads", "need"), [(1, 1, 8), (1, 3, 24), (2, 2, 16), (1, 9, 40)]
)
def test_the_threads_start_the_first_units_together(processes, threads, need):
    units = [unit(number, transient=8) for number in range(5)]
    assert JobBounds(make_model(units)).find_peak(processes, threads, MEMORY) == 110 + need


def test_results_and_shuffled_rows_are_on_all_processes():
    results = JobBounds(make_model([unit(each, output=60) for each in range(4)], range(4)))
    assert [results.find_peak(each, 1, MEMORY) for each in (1, 2, 4)] == [350, 230, 170]
    parts = [unit(number, adds={"s": 100.0}) for number in range(4)]
    shuffle = JobBounds(make_model([*parts, unit(4, 0, 1, 2, 3, ends=("s",))]))
    assert shuffle.find_peak(1, 1, MEMORY) == pytest.approx(110 + 0.55 * 400)


def test_a_unit_has_only_the_results_that_it_needs_in_its_process():
    parts = [UnitCost(0, number, (), 10.0, 10.0, 1.0) for number in range(8)]
    together = UnitCost(0, 8, tuple(range(8)), 0.0, 1.0, 1.0, inputs=(0.5,) * 8)
    model = make_model([*parts, together], [8])
    found = Simulation(model.units, model.targets, MEMORY, 4, 1, jitter=0.0).run()
    # One part, and the next one: no process has all eight.
    assert JobBounds(model).find_peak(4, 1, MEMORY) <= max(found.peaks) < 110 + 8 * 10


def test_the_time_is_that_of_the_work_and_of_the_longest_chain():
    units = [unit(0), unit(1, 0), unit(2, 1), *(unit(number) for number in range(3, 9))]
    bounds = JobBounds(make_model(units))
    assert [bounds.find_seconds(each) for each in (1, 3, 9)] == [9, 3, 3]
    assert bounds.width == 7


def _random_units(chosen, count):
    for number in range(count):
        first = max(0, number - 30)
        others = chosen.sample(range(first, number), min(number - first, chosen.choice([0, 1, 3])))
        output = chosen.choice([0, 5, 50]) * chosen.random()
        yield UnitCost(
            0, chosen.randrange(1000), tuple(sorted(others)), output,
            output + chosen.random() * 20, chosen.random(),
            adds={"s": 10.0} if number < count // 2 and chosen.random() < 0.2 else {},
            inputs=tuple(50 * chosen.random() for _ in others) if chosen.random() < 0.3 else (),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_no_simulation_is_below_the_bounds(seed):
    chosen = random.Random(seed)
    units = list(_random_units(chosen, 80))
    end = UnitCost(0, 10**4, tuple(range(80)), 0.0, 0.0, 0.0, ends=("s",))
    model = make_model([*units, end], [40, 80])
    bounds = JobBounds(model)
    for processes in (1, 2, 7):
        for threads in (1, 2, 5):
            found = Simulation(
                model.units, model.targets, MEMORY, processes, threads, jitter=0.0
            ).run()
            assert bounds.find_peak(processes, threads, MEMORY) <= max(found.peaks) * (1 + 1e-9)
            assert bounds.find_seconds(processes * threads) <= found.seconds * (1 + 1e-9)
