"""The arguments of one call: which of them the caller gave, and what advice or a step fills in."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from hyperplane import config
from hyperplane.errors import Fault, check
from hyperplane.public_calls import unknown_name
from hyperplane.spec.plan import ClusterPlan

Function = TypeVar("Function", bound=Callable[..., Any])

#: Value of an argument that the caller left out.
LEFT_OUT: Any = object()

_LAYOUT = ("nprocs", "nthreads", "ram_gb_per_proc", "cores_per_worker")


@runtime_checkable
class Advice(Protocol):
    """Something that knows the arguments of the cluster it advises, such as a SizingAdvice."""

    def as_arguments(self) -> dict[str, Any]:
        """Arguments of :func:`initialize_cluster`."""
        ...


class _OtherNodes:
    """Advice with another number of nodes."""

    def __init__(self, advice: Advice, num_workers: object) -> None:
        self._advice, self._num_workers = advice, num_workers

    def as_arguments(self) -> dict[str, Any]:
        """The arguments of the advice, with the caller's number of nodes."""
        return {**self._advice.as_arguments(), "num_workers": self._num_workers}


def marks_left_out(function: Function) -> Function:
    """Give ``LEFT_OUT`` to a function for every argument that its caller left out.

    An argument that was given stays what it is, even when it equals the documented default: the
    signature keeps the defaults for readers. Advice in the first place may have ``num_workers=``
    beside it.
    """
    signature = inspect.signature(function)
    left_out = {
        name: LEFT_OUT
        for name, parameter in signature.parameters.items()
        if parameter.default is not parameter.empty
    }

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and "num_workers" in kwargs:
            check(_of_a_plan(args[0], kwargs["num_workers"]))
            if isinstance(args[0], Advice):
                args = (_OtherNodes(args[0], kwargs.pop("num_workers")), *args[1:])
        bound = signature.bind(*args, **kwargs)
        bound.arguments = {**left_out, **bound.arguments}
        # None is how programs pass on that they have no value for such an argument.
        for name, parameter in signature.parameters.items():
            if parameter.default is None and bound.arguments[name] is None:
                bound.arguments[name] = LEFT_OUT
        return function(*bound.args, **bound.kwargs)

    return cast(Function, call)


def given_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller gave, of the ``locals()`` of a function that is marked."""
    found = {name: value for name, value in arguments.items() if value is not LEFT_OUT}
    others = found.pop("others")
    return {**found, **others}


def _of_a_plan(first: object, num_workers: object) -> list[Fault]:
    return [_beside("num_workers", num_workers)] if isinstance(first, ClusterPlan) else []


def _beside(name: str, value: object) -> Fault:
    return Fault(name, repr(value), "nothing beside a plan", "give it to plan_cluster")


def beside_a_plan(function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[Fault]:
    """A fault for each argument beside a plan that differs from its documented default."""
    parameters = inspect.signature(function).parameters
    for name, value in given.items():
        if name == "num_workers":
            continue
        if name not in parameters:
            known = [one for one in parameters if one != "others"]
            yield unknown_name(name, value, known, function.__name__)
            continue
        default = parameters[name].default
        if (type(value), value) != (type(default), default):
            yield _beside(name, value)


def checked_flag(name: str, value: object) -> bool:
    """A flag that is no part of a plan."""
    check([] if isinstance(value, bool) else [Fault(name, repr(value), "True or False")])
    return bool(value)


def of_the_step(num_workers: object) -> dict[str, Any]:
    """Arguments that the pipeline gives to a step that has a cluster; a call's own words win."""
    found = dict(json.loads(os.environ.get("HYPERPLANE_CLUSTER") or "{}"))
    if isinstance(num_workers, Advice):
        for name in num_workers.as_arguments():
            found.pop(name, None)
    return found


def advised(advice: Advice, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of advice, less its layout where the caller gives a part of one.

    The layout of advice is that of its pool, and so the pool fills in what the caller left open.
    """
    found = advice.as_arguments()
    if "pool" in found and {*_LAYOUT, "ram_gb_proc"} & given.keys():
        for name in _LAYOUT:
            found.pop(name, None)
    return found


def with_merged_policy(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the configured thresholds where ``memory=`` names only some of them."""
    memory = given.get("memory")
    if not isinstance(memory, Mapping):
        return dict(given)
    return {**given, "memory": {**config.memory_policy().to_dict(), **memory}}
