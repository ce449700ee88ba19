"""Payload templates: ``Parameters``, ``ItemSelector``, ``ResultSelector`` and ``BatchInput``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.asl.errors import StateError
from hyperplane.asl.intrinsics import IntrinsicSyntax, cached_intrinsic, evaluate, parse_intrinsic
from hyperplane.asl.path_lookup import NotFound, cached_path, find
from hyperplane.asl.paths import PathSyntax, parse_path

DYNAMIC = ".$"


def fill(template: Any, data: Any, context: Any) -> Any:
    """A template with its fields worked out.

    Parameters
    ----------
    template : JSON
        In it, fields whose names end in ``.$`` hold a path or an intrinsic.
    data, context : JSON
        What ``$`` and ``$$`` stand for.

    Returns
    -------
    JSON
        A copy, with those fields under their names without ``.$``.

    Raises
    ------
    StateError
        ``States.ParameterPathFailure`` or ``States.IntrinsicFailure``.

    Examples
    --------
    >>> fill({"id.$": "$.order", "plain": "$.order"}, {"order": 7}, {})
    {'id': 7, 'plain': '$.order'}
    """
    if isinstance(template, list):
        return [fill(one, data, context) for one in template]
    if not isinstance(template, dict):
        return template
    return {
        name.removesuffix(DYNAMIC): (
            dynamic(value, data, context) if name.endswith(DYNAMIC) else fill(value, data, context)
        )
        for name, value in template.items()
    }


def dynamic(text: str, data: Any, context: Any) -> Any:
    """What a path or an intrinsic stands for."""
    if not text.startswith("$"):
        return evaluate(cached_intrinsic(text), data, context)
    path = cached_path(text)
    try:
        return find(path, context if path.context else data)
    except NotFound as error:
        raise StateError("States.ParameterPathFailure", str(error)) from None


def problem(text: object) -> str:
    """What is wrong with a path or an intrinsic; empty when nothing is.

    Examples
    --------
    >>> problem("$.a[0]"), problem("States.UUID()")
    ('', '')
    >>> problem("$.a[")
    'the end at character 5, where an index, a slice, *, a quoted name or ?( may stand'
    """
    if not isinstance(text, str):
        return "it is no text"
    try:
        if text.startswith("$"):
            parse_path(text)
        else:
            parse_intrinsic(text)
    except (PathSyntax, IntrinsicSyntax) as error:
        return str(error)
    return ""


Problem = tuple[tuple[str | int, ...], Any, str]


def problems(template: Any, path: tuple[str | int, ...] = ()) -> Iterator[Problem]:
    """Where a template is wrong: the path to the field, its value, and why."""
    if isinstance(template, list):
        for number, one in enumerate(template):
            yield from problems(one, (*path, number))
    elif isinstance(template, dict):
        for name, value in template.items():
            if not name.endswith(DYNAMIC):
                yield from problems(value, (*path, name))
                continue
            if name.removesuffix(DYNAMIC) in template:
                yield (*path, name), value, f"{name.removesuffix(DYNAMIC)} is there too"
            if why := problem(value):
                yield (*path, name), value, why
