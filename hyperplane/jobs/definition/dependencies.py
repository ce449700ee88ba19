"""Dependencies between steps: validation and execution order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import suggest_names

#: Maximum names of a list or cycle in a message.
_MAX_SHOWN = 12
#: Maximum faults before suggestions and faults of cycles are omitted: a malicious file must not
#: keep a processor busy.
_MAX_FAULTS = 50


class SupportsDependencies(Protocol):
    """Object with a name and dependencies, such as a Step."""

    @property
    def name(self) -> str:
        """Name of the step."""
        ...

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Names of the steps that it waits for."""
        ...


class SupportsSteps(Protocol):
    """Object with steps, such as a Pipeline."""

    @property
    def steps(self) -> Sequence[SupportsDependencies]:
        """Its steps."""
        ...


def resolve_dependencies(
    names: Sequence[str], depends_on: Sequence[Sequence[str] | None]
) -> tuple[tuple[str, ...], ...]:
    """Return the steps that each step waits for.

    ``depends_on`` has an item for each step. A step with None waits for the previous step, so that
    a file without dependencies runs from top to bottom; a step with ``[]`` waits for none.
    Duplicate names are dropped.

    Examples
    --------
    >>> resolve_dependencies(["a", "b", "c"], [None, None, None])
    ((), ('a',), ('b',))
    >>> resolve_dependencies(["a", "b", "c"], [None, [], ["a", "b"]])
    ((), (), ('a', 'b'))
    """
    before: tuple[str, ...] = ()
    resolved = []
    for name, dependencies in zip(names, depends_on, strict=True):
        resolved.append(before if dependencies is None else tuple(dict.fromkeys(dependencies)))
        before = (name,)
    return tuple(resolved)


def dependency_faults(
    names: Sequence[str], depends_on: Sequence[Sequence[str] | None]
) -> list[Fault]:
    """Return the faults of step names and dependencies.

    These are duplicate names, unknown names, steps that wait for themselves, and cycles. ``where``
    has the index of the step and the field, such as ``"2.depends_on.0"``.
    """
    faults, first_index = [], dict[str, int]()
    for index, name in enumerate(names):
        if first_index.setdefault(name, index) != index:
            allowed = "a unique name"
            faults.append(Fault(f"{index}.name", repr(name), allowed))
    for index, dependencies in enumerate(depends_on):
        for position, other in enumerate(dependencies or ()):
            where = f"{index}.depends_on.{position}"
            if other not in first_index:
                suggestion = suggest_names(other, first_index) if len(faults) < _MAX_FAULTS else ""
                advice = suggestion or f"the steps are {_shorten_names(names)}"
                faults.append(Fault(where, repr(other), "the name of a step", advice))
            elif other == names[index]:
                faults.append(Fault(where, repr(other), "the name of another step"))
    return faults + _cycle_faults(names, resolve_dependencies(names, depends_on), first_index)


def _cycle_faults(
    names: Sequence[str], depends_on: Sequence[Sequence[str]], first_index: dict[str, int]
) -> list[Fault]:
    """Return a fault for each cycle found, without steps that wait for themselves.

    Iterative: a chain of ten thousand steps exceeds Python's recursion limit.
    """
    faults: list[Fault] = []
    done, path = set[str](), dict[str, None]()
    for start in first_index:
        stack = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop(name)
                done.add(name)
                continue
            if name in done or name in path:
                continue
            path[name] = None
            stack.append((name, True))
            for other in depends_on[first_index[name]]:
                if other in path and other != name and len(faults) < _MAX_FAULTS:
                    members = list(path)
                    cycle = [*members[members.index(other) :], other]
                    faults.append(_cycle_fault(cycle, first_index[name]))
                elif other in first_index:
                    stack.append((other, False))
    return faults


def _cycle_fault(names: list[str], index: int) -> Fault:
    asked = " -> ".join(names if len(names) <= _MAX_SHOWN else [*names[:_MAX_SHOWN], "..."])
    allowed = "dependencies without cycles"
    advice = "each waits for the next; a step without depends_on waits for the previous step"
    return Fault(f"{index}.depends_on", asked, allowed, advice)


def _shorten_names(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(repr, names[:_MAX_SHOWN])) + more


def waves(pipeline: SupportsSteps) -> tuple[tuple[str, ...], ...]:
    """Group the names of a pipeline's steps into waves that can run concurrently.

    Each step is in the first wave after those of its dependencies; within a wave, names are in the
    order of the file.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step
    >>> steps = [
    ...     Step(name="a", kind="command", argv=("true",)),
    ...     Step(name="b", kind="command", argv=("true",), depends_on=("a",)),
    ...     Step(name="c", kind="command", argv=("true",), depends_on=("a",)),
    ... ]
    >>> waves(Pipeline.from_steps("p", steps))
    (('a',), ('b', 'c'))
    """
    return order_in_waves(pipeline.steps)


def order_in_waves(steps: Sequence[SupportsDependencies]) -> tuple[tuple[str, ...], ...]:
    """Group the names of steps into waves, as :func:`waves` does."""
    missing = {step.name: len(step.depends_on) for step in steps}
    position = {step.name: index for index, step in enumerate(steps)}
    followers = _followers(steps)
    wave = [name for name, count in missing.items() if not count]
    result = []
    while wave:
        result.append(tuple(wave))
        next_wave = []
        for name in wave:
            for follower in followers[name]:
                missing[follower] -= 1
                if not missing[follower]:
                    next_wave.append(follower)
        wave = sorted(next_wave, key=position.__getitem__)
    return tuple(result)


def _followers(steps: Sequence[SupportsDependencies]) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = {step.name: [] for step in steps}
    for step in steps:
        for name in step.depends_on:
            followers[name].append(step.name)
    return followers
