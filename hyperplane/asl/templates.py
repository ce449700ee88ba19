"""Payload templates: ``Parameters``, ``ItemSelector``, ``ResultSelector`` and ``BatchInput``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.asl.errors import StateError
from hyperplane.asl.intrinsics import IntrinsicSyntax, cached_intrinsic, evaluate, parse_intrinsic
from hyperplane.asl.path_lookup import PathNotFound, cached_path, find_value
from hyperplane.asl.paths import PathSyntax, parse_path

DYNAMIC_SUFFIX = ".$"


def fill_template(template: Any, data: Any, context: Any) -> Any:
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
        return [fill_template(one, data, context) for one in template]
    if not isinstance(template, dict):
        return template
    return {
        name.removesuffix(DYNAMIC_SUFFIX): (
            evaluate_dynamic(value, data, context)
            if name.endswith(DYNAMIC_SUFFIX)
            else fill_template(value, data, context)
        )
        for name, value in template.items()
    }


def evaluate_dynamic(text: str, data: Any, context: Any) -> Any:
    """What a path or an intrinsic stands for."""
    if not text.startswith("$"):
        return evaluate(cached_intrinsic(text), data, context)
    path = cached_path(text)
    try:
        return find_value(path, context if path.context else data)
    except PathNotFound as error:
        raise StateError("States.ParameterPathFailure", str(error)) from None


def find_syntax_error(text: object) -> str:
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


TemplateError = tuple[tuple[str | int, ...], Any, str]


def find_template_errors(
    template: Any, path: tuple[str | int, ...] = ()
) -> Iterator[TemplateError]:
    """Where a template is wrong: the path to the field, its value, and why."""
    if isinstance(template, list):
        for number, one in enumerate(template):
            yield from find_template_errors(one, (*path, number))
    elif isinstance(template, dict):
        for name, value in template.items():
            if not name.endswith(DYNAMIC_SUFFIX):
                yield from find_template_errors(value, (*path, name))
                continue
            if name.removesuffix(DYNAMIC_SUFFIX) in template:
                yield (*path, name), value, f"{name.removesuffix(DYNAMIC_SUFFIX)} is there too"
            if why := find_syntax_error(value):
                yield (*path, name), value, why
