"""Payload templates: ``Parameters``, ``ResultSelector``, ``ItemSelector``, ``BatchInput``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.asl.errors import StateError
from hyperplane.asl.intrinsic_calls import (
    IntrinsicSyntax,
    cached_intrinsic,
    evaluate,
    parse_intrinsic,
)
from hyperplane.asl.json_path import PathSyntax, parse_path
from hyperplane.asl.path_lookup import PathNotFound, cached_path, find_value
from hyperplane.asl.strict_json import json_type

DYNAMIC_SUFFIX = ".$"


def fill_template(template: Any, data: Any, context: Any) -> Any:
    """Copy a template and evaluate the fields whose names end in ``.$``.

    ``data`` and ``context`` are the values of ``$`` and ``$$``. Raises
    ``States.ParameterPathFailure`` or ``States.IntrinsicFailure``.

    Examples
    --------
    >>> fill_template({"id.$": "$.order", "plain": "$.order"}, {"order": 7}, {})
    {'id': 7, 'plain': '$.order'}
    """
    if isinstance(template, list):
        return [fill_template(item, data, context) for item in template]
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
    """Evaluate a path or an intrinsic function."""
    if not text.startswith("$"):
        return evaluate(cached_intrinsic(text), data, context)
    path = cached_path(text)
    try:
        return find_value(path, context if path.context else data)
    except PathNotFound as error:
        raise StateError("States.ParameterPathFailure", str(error)) from None


def find_syntax_error(text: object) -> str:
    """Return the syntax error of a path or an intrinsic function; empty if it is valid.

    Examples
    --------
    >>> find_syntax_error("$.a[0]"), find_syntax_error("States.UUID()")
    ('', '')
    >>> find_syntax_error("$.a[")
    'the end at character 5, expected an index, a slice, *, a quoted name or ?('
    """
    if not isinstance(text, str):
        return f"{json_type(text)} is no text; a value that is used as it is has a name without .$"
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
    """Yield the errors of a template: location of the field, its value, and the reason."""
    if isinstance(template, list):
        for number, item in enumerate(template):
            yield from find_template_errors(item, (*path, number))
    elif isinstance(template, dict):
        for name, value in template.items():
            if not name.endswith(DYNAMIC_SUFFIX):
                yield from find_template_errors(value, (*path, name))
                continue
            if name.removesuffix(DYNAMIC_SUFFIX) in template:
                plain = name.removesuffix(DYNAMIC_SUFFIX)
                yield (*path, name), value, f"{plain} has a value, too: keep one of the two fields"
            if why := find_syntax_error(value):
                yield (*path, name), value, why
