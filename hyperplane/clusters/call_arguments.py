"""Arguments of one call: passed by the caller, or taken from advice or a pipeline step."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from hyperplane import config
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import unknown_name
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import OMITTED, ClusterArguments

Function = TypeVar("Function", bound=Callable[..., Any])

_LAYOUT = ("nprocs", "nthreads", "ram_gb_per_proc", "cores_per_worker")


@runtime_checkable
class Advice(Protocol):
    """An object with arguments for a cluster, such as a SizingAdvice."""

    def as_arguments(self) -> dict[str, Any]:
        """Return arguments of :func:`initialize_cluster`."""
        ...


class _AdviceWithNodes:
    """Advice with another number of nodes."""

    def __init__(self, advice: Advice, num_workers: object) -> None:
        self._advice, self._num_workers = advice, num_workers

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of the advice, with the caller's number of nodes."""
        return {**self._advice.as_arguments(), "num_workers": self._num_workers}


def mark_omitted(function: Function) -> Function:
    """Decorate a function so that it receives ``OMITTED`` for each argument left out.

    The signature keeps the documented defaults for readers. An argument that is passed stays
    unchanged, even when it equals its default, except that None counts as left out where it is
    the default. If the first positional argument is advice, ``num_workers=`` may be passed too and
    overrides the number of nodes of the advice.
    """
    signature = inspect.signature(function)
    omitted = {
        name: OMITTED
        for name, parameter in signature.parameters.items()
        if parameter.default is not parameter.empty
    }

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and "num_workers" in kwargs:
            check(_find_plan_conflict(args[0], kwargs["num_workers"]))
            if isinstance(args[0], Advice):
                args = (_AdviceWithNodes(args[0], kwargs.pop("num_workers")), *args[1:])
        bound = signature.bind(*args, **kwargs)
        bound.arguments = {**omitted, **bound.arguments}
        # Programs pass None on for an argument that they have no value for.
        for name, parameter in signature.parameters.items():
            if parameter.default is None and bound.arguments[name] is None:
                bound.arguments[name] = OMITTED
        return function(*bound.args, **bound.kwargs)

    return cast(Function, call)


def _find_plan_conflict(first: object, num_workers: object) -> list[Fault]:
    return (
        [_argument_beside_plan("num_workers", num_workers)]
        if isinstance(first, ClusterPlan)
        else []
    )


def _argument_beside_plan(name: str, value: object) -> Fault:
    return Fault(name, repr(value), "no arguments besides the plan", "pass it to plan_cluster")


def find_arguments_beside_plan(
    function: Callable[..., Any], arguments: ClusterArguments
) -> Iterator[Fault]:
    """Yield a fault for each argument beside a plan that differs from its documented default."""
    parameters = inspect.signature(function).parameters
    for name, value in arguments.given.items():
        if name == "num_workers":
            continue
        default = parameters["ram_gb_per_proc" if name == "ram_gb_proc" else name].default
        if (type(value), value) != (type(default), default):
            yield _argument_beside_plan(name, value)
    known = [parameter for parameter in parameters if parameter != "others"]
    for name, value in arguments.unknown.items():
        yield unknown_name(name, value, known, function.__name__)


def check_flag(name: str, value: object) -> bool:
    """Return a flag that is not part of a plan, or raise a RequestError."""
    check([] if isinstance(value, bool) else [Fault(name, repr(value), "True or False")])
    return bool(value)


def read_step_arguments(num_workers: object) -> dict[str, Any]:
    """Read the cluster arguments of the pipeline step that this process runs, if any.

    Arguments of the call take precedence, and so does advice in the place of ``num_workers``.
    """
    arguments = dict(json.loads(os.environ.get("HYPERPLANE_CLUSTER") or "{}"))
    if isinstance(num_workers, Advice):
        for name in num_workers.as_arguments():
            arguments.pop(name, None)
    return arguments


def select_advised_arguments(advice: Advice, given: Collection[str]) -> dict[str, Any]:
    """Return the arguments of advice, without its layout if the caller passes part of a layout.

    The layout of advice is that of its pool, so the pool then supplies the rest of the layout.
    """
    arguments = advice.as_arguments()
    if "pool" in arguments and {*_LAYOUT, "ram_gb_proc"} & set(given):
        for name in _LAYOUT:
            arguments.pop(name, None)
    return arguments


def merge_memory_policy(arguments: ClusterArguments) -> ClusterArguments:
    """Fill in the configured thresholds where ``memory=`` names only some of them."""
    memory = arguments.memory
    if not isinstance(memory, Mapping):
        return arguments
    return replace(arguments, memory={**config.memory_policy().to_dict(), **memory})
