"""Dependencies of random graphs, against a plain search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.errors import RequestError
from hyperplane.jobs.definition.dependencies import (
    dependency_faults,
    resolve_dependencies,
    waves,
)
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step

graphs = st.integers(1, 7).flatmap(
    lambda count: st.lists(
        st.none() | st.lists(st.integers(0, count - 1), max_size=3),
        min_size=count,
        max_size=count,
    )
)


def named(graph):
    names = [f"s{index}" for index in range(len(graph))]
    return names, [
        indices if indices is None else [names[index] for index in indices] for indices in graph
    ]


def pipeline_of(graph) -> Pipeline:
    steps = []
    for name, depends_on in zip(*named(graph), strict=True):
        options = {} if depends_on is None else {"depends_on": depends_on}
        steps.append(Step(name=name, kind="command", argv=("true",), **options))
    return Pipeline.from_steps("p", steps)


def reachable_from(edges, name):
    """The steps that a step waits for, directly or through others."""
    reachable, pending = set(), list(edges[name])
    while pending:
        step = pending.pop()
        if step not in reachable:
            reachable.add(step)
            pending += edges[step]
    return reachable


@given(graphs)
def test_a_cycle_is_a_fault_and_nothing_else_is(graph):
    names, depends_on = named(graph)
    edges = dict(zip(names, resolve_dependencies(names, depends_on), strict=True))
    cyclic = any(name in reachable_from(edges, name) for name in names)
    assert bool(dependency_faults(names, depends_on)) == cyclic


@given(graphs)
def test_steps_run_once_after_all_that_they_wait_for(graph):
    try:
        pipeline = pipeline_of(graph)
    except RequestError:
        return
    edges = {step.name: step.depends_on for step in pipeline.steps}
    flat = [name for wave in waves(pipeline) for name in wave]
    assert sorted(flat) == sorted(edges)
    done: set[str] = set()
    for wave in waves(pipeline):
        ready = [name for name in edges if name not in done and done.issuperset(edges[name])]
        assert tuple(ready) == wave
        done |= set(wave)
    assert done == set(edges)


def test_the_fault_of_a_cycle_names_its_steps():
    faults = dependency_faults(["a", "b", "c"], [["c"], ["a"], ["b"]])
    assert [fault.asked for fault in faults] == ["a -> c -> b -> a"]


def test_a_step_without_depends_on_can_close_a_cycle():
    (fault,) = dependency_faults(["a", "b"], [["b"], None])
    assert fault.asked == "a -> b -> a"
    assert "waits for the previous step" in fault.advice


def test_a_long_cycle_is_shortened():
    names = [f"s{index}" for index in range(20_000)]
    (fault,) = dependency_faults(names, [[names[index - 1]] for index in range(len(names))])
    assert fault.asked.endswith(" -> ...")
    assert len(fault.asked) < 200


def test_a_long_chain_of_steps_is_valid():
    names = [f"s{index}" for index in range(20_000)]
    assert dependency_faults(names, [None] * len(names)) == []


def test_duplicate_dependencies_are_dropped():
    assert resolve_dependencies(["a", "b"], [None, ["a", "a"]]) == ((), ("a",))


def test_unknown_names_are_reported_with_similar_ones():
    (fault,) = dependency_faults(["clean", "load"], [None, ["clan"]])
    assert fault.where == "1.depends_on.0"
    assert fault.advice == "did you mean clean?"
    (fault,) = dependency_faults(["a", "b"], [None, ["something else"]])
    assert fault.advice == "the steps are 'a', 'b'"


@pytest.mark.parametrize("depends_on", [["a"], ["b", "a"]])
def test_a_step_cannot_wait_for_itself(depends_on):
    faults = dependency_faults(["a", "b"], [depends_on, []])
    assert [fault.where for fault in faults] == [f"0.depends_on.{depends_on.index('a')}"]
