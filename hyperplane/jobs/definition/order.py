"""Which step waits for which, and what can run when."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from hyperplane.errors import Fault
from hyperplane.jobs.definition.wording import suggest_names

if TYPE_CHECKING:
    from hyperplane.jobs.definition.models import Pipeline, Step

#: Names of a list or cycle that a message shows.
_MAX_SHOWN = 12
#: Faults that are looked into: a hostile file must not keep a processor busy.
_MAX_FAULTS = 50


def resolve_dependencies(
    names: Sequence[str], asked: Sequence[Sequence[str] | None]
) -> tuple[tuple[str, ...], ...]:
    """The steps that each step waits for.

    Parameters
    ----------
    names : sequence of str
        Names of the steps, in the order of the file.
    asked : sequence of (sequence of str, or None)
        What each step says it depends on; None when it does not say.

    Returns
    -------
    tuple of tuple of str
        A step that does not say waits for the step before it, so that a file which says nothing
        runs from top to bottom; one that says ``[]`` waits for none. Names given twice count once.

    Examples
    --------
    >>> resolve(["a", "b", "c"], [None, None, None])
    ((), ('a',), ('b',))
    >>> resolve(["a", "b", "c"], [None, [], ["a", "b"]])
    ((), (), ('a', 'b'))
    """
    before: tuple[str, ...] = ()
    resolved = []
    for name, said in zip(names, asked, strict=True):
        resolved.append(before if said is None else tuple(dict.fromkeys(said)))
        before = (name,)
    return tuple(resolved)


def dependency_faults(names: Sequence[str], asked: Sequence[Sequence[str] | None]) -> list[Fault]:
    """What is wrong with names and dependencies.

    Parameters
    ----------
    names, asked
        As for :func:`resolve`.

    Returns
    -------
    list of Fault
        Names given twice, names that no step has, steps that wait for themselves, and cycles.
        ``where`` is the index of the step and the field, ``"2.depends_on.0"``.
    """
    faults, first = [], dict[str, int]()
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            allowed = "a name that no other step has"
            faults.append(Fault(f"{index}.name", repr(name), allowed))
    for index, said in enumerate(asked):
        for place, other in enumerate(said or ()):
            where = f"{index}.depends_on.{place}"
            if other not in first:
                near = suggest_names(other, first) if len(faults) < _MAX_FAULTS else ""
                advice = near or f"the steps are {_shorten_names(names)}"
                faults.append(Fault(where, repr(other), "the name of a step", advice))
            elif other == names[index]:
                faults.append(Fault(where, repr(other), "the name of another step"))
    return faults + _cycle_faults(names, resolve_dependencies(names, asked), first)


def _cycle_faults(
    names: Sequence[str], depends_on: Sequence[Sequence[str]], first: dict[str, int]
) -> list[Fault]:
    """One fault for each cycle that a walk meets; steps that wait for themselves are told before.

    Iterative: a chain of ten thousand steps is longer than Python's stack.
    """
    faults: list[Fault] = []
    done, path = set[str](), dict[str, None]()
    for start in first:
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
            for other in depends_on[first[name]]:
                if other in path and other != name and len(faults) < _MAX_FAULTS:
                    members = list(path)
                    cycle = [*members[members.index(other) :], other]
                    faults.append(_cycle_fault(cycle, first[name]))
                elif other in first:
                    stack.append((other, False))
    return faults


def _cycle_fault(names: list[str], index: int) -> Fault:
    asked = " -> ".join(names if len(names) <= _MAX_SHOWN else [*names[:_MAX_SHOWN], "..."])
    allowed = "steps that wait for each other in no circle"
    advice = "each waits for the next, also where no depends_on stands: for the step before it"
    return Fault(f"{index}.depends_on", asked, allowed, advice)


def _shorten_names(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(repr, names[:_MAX_SHOWN])) + more


def ready(pipeline: Pipeline, done: Collection[str]) -> tuple[Step, ...]:
    """The steps that can start: not done, and all that they wait for done.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    done : collection of str
        Names of the steps that are done.

    Returns
    -------
    tuple of Step
        In the order of the file. Steps that run now are among them.

    Examples
    --------
    >>> from hyperplane.jobs.definition.models import Pipeline, Step
    >>> steps = [Step(name=name, kind="command", argv=("true",)) for name in ("a", "b")]
    >>> [step.name for step in ready(Pipeline.from_steps("p", steps), done={"a"})]
    ['b']
    """
    finished = set(done)
    return tuple(
        step
        for step in pipeline.steps
        if step.name not in finished and finished.issuperset(step.depends_on)
    )


def waves(pipeline: Pipeline) -> tuple[tuple[str, ...], ...]:
    """The names of the steps in waves: a step stands in the first wave that it can run in.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.

    Returns
    -------
    tuple of tuple of str
        As many waves as the longest chain has steps; in each, the order of the file.

    Examples
    --------
    >>> from hyperplane.jobs.definition.models import Pipeline, Step
    >>> steps = [
    ...     Step(name="a", kind="command", argv=("true",)),
    ...     Step(name="b", kind="command", argv=("true",), depends_on=("a",)),
    ...     Step(name="c", kind="command", argv=("true",), depends_on=("a",)),
    ... ]
    >>> waves(Pipeline.from_steps("p", steps))
    (('a',), ('b', 'c'))
    """
    missing = {step.name: len(step.depends_on) for step in pipeline.steps}
    place = {step.name: index for index, step in enumerate(pipeline.steps)}
    followers = _followers(pipeline)
    wave = [name for name, count in missing.items() if not count]
    found = []
    while wave:
        found.append(tuple(wave))
        free = []
        for name in wave:
            for follower in followers[name]:
                missing[follower] -= 1
                if not missing[follower]:
                    free.append(follower)
        wave = sorted(free, key=place.__getitem__)
    return tuple(found)


def dependents(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """The steps that cannot run when a step fails: all that wait for it, however far behind.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    name : str
        Name of the step.

    Returns
    -------
    tuple of str
        In the order of the file.

    Examples
    --------
    >>> from hyperplane.jobs.definition.models import Pipeline, Step
    >>> steps = [Step(name=name, kind="command", argv=("true",)) for name in ("a", "b", "c")]
    >>> dependents(Pipeline.from_steps("p", steps), "a")
    ('b', 'c')
    """
    followers = _followers(pipeline)
    found, todo = set[str](), [name]
    while todo:
        for follower in followers[todo.pop()]:
            if follower not in found:
                found.add(follower)
                todo.append(follower)
    return tuple(step.name for step in pipeline.steps if step.name in found)


def _followers(pipeline: Pipeline) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = {step.name: [] for step in pipeline.steps}
    for step in pipeline.steps:
        for name in step.depends_on:
            followers[name].append(step.name)
    return followers
