"""Values at paths in JSON: lookup, insertion and comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from hyperplane.asl.json_path import Condition, JsonPath, Operand, PathStep, parse_path
from hyperplane.asl.strict_json import is_number, json_type
from hyperplane.core.units import plural

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
#: Value of an operand whose path matches nothing.
_MISSING = object()


class PathNotFound(LookupError):
    """A path has no value in a JSON document."""


#: Cached, because parsing a path for each item of a Map would take longer than the lookup.
cached_path = lru_cache(maxsize=4096)(parse_path)


def find_value(path: JsonPath, root: Any) -> Any:
    """Return the value of a definite path, or the list of all matches of any other path.

    Raises PathNotFound if a definite part of the path has no value.

    Examples
    --------
    >>> find_value(parse_path("$.a[?(@.n > 1)].n"), {"a": [{"n": 1}, {"n": 2}, {"n": 3}]})
    [2, 3]
    """
    nodes, definite = [root], True
    for number, step in enumerate(path.steps):
        if definite and not step.deep and not _is_applicable(step, nodes[0]):
            raise PathNotFound(f"{path.text} has no value: {_describe_end(path, number, nodes[0])}")
        nodes = [child for node in nodes for child in _matches(step, node, root)]
        definite = definite and step.kind in ("name", "index") and not step.deep
    return nodes[0] if definite else nodes


def _is_applicable(step: PathStep, node: Any) -> bool:
    """Whether a step can be applied to the value of the definite path before it."""
    if step.kind == "name":
        return isinstance(node, dict) and step.value in node
    if step.kind == "index":
        return isinstance(node, list) and -len(node) <= step.value < len(node)
    if step.kind == "filter":
        return isinstance(node, (dict, list))
    return isinstance(node, list) or step.kind == "all"


def _describe_end(path: JsonPath, number: int, node: Any) -> str:
    """Describe why a step of a path cannot be applied to ``node``, the value before it."""
    step = path.steps[number]
    at = ("$$" if path.context else "$") + "".join(map(_format_step, path.steps[:number]))
    if step.kind == "name" and isinstance(node, dict):
        return f"the object at {at} has no field {step.value!r}"
    if step.kind == "index" and isinstance(node, list):
        return f"the array at {at} has {plural(len(node), 'item')}"
    needed = {"name": "an object", "filter": "an object or an array"}.get(step.kind, "an array")
    return f"the value at {at} is {json_type(node)}, not {needed}"


def _format_step(step: PathStep) -> str:
    """Format a name or an index, as in a path."""
    if step.kind == "index":
        return f"[{step.value}]"
    return f".{step.value}" if _PLAIN_NAME.fullmatch(step.value) else f"[{step.value!r}]"


def _matches(step: PathStep, node: Any, root: Any) -> Iterator[Any]:
    if not step.deep:
        yield from _children(step, node, root)
        return
    todo = [node]
    while todo:
        current = todo.pop()
        yield from _children(step, current, root)
        below = (
            current.values()
            if isinstance(current, dict)
            else current
            if isinstance(current, list)
            else ()
        )
        todo += reversed(list(below))


def _children(step: PathStep, node: Any, root: Any) -> Iterator[Any]:
    kind, value = step.kind, step.value
    if isinstance(node, dict):
        if kind == "name" and value in node:
            yield node[value]
        elif kind == "all":
            yield from node.values()
        # json-path applies a filter to an object, not to its members.
        elif kind == "filter" and _matches_condition(value, node, root):
            yield node
    elif isinstance(node, list):
        if kind in ("index", "indices"):
            for index in (value,) if kind == "index" else value:
                if -len(node) <= index < len(node):
                    yield node[index]
        elif kind == "slice":
            yield from node[slice(*value)]
        elif kind == "all":
            yield from node
        elif kind == "filter":
            yield from (item for item in node if _matches_condition(value, item, root))


def _matches_condition(condition: Condition, node: Any, root: Any) -> bool:
    op, parts = condition.op, condition.parts
    if op == "not":
        return not _matches_condition(parts[0], node, root)
    if op == "and":
        return all(_matches_condition(part, node, root) for part in parts)
    if op == "or":
        return any(_matches_condition(part, node, root) for part in parts)
    values = [_operand_value(part, node, root) for part in parts]
    if op == "exists":
        return values[0] is not _MISSING
    left, right = values
    if op in ("==", "!="):
        return json_equal(left, right) is (op == "==")
    if not (is_number(left) and is_number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        return False
    return bool({"<": left < right, "<=": left <= right, ">": left > right}.get(op, left >= right))


def _operand_value(operand: Operand, node: Any, root: Any) -> Any:
    if operand.start == "literal":
        return operand.value
    start = node if operand.start == "@" else root
    try:
        return find_value(JsonPath(operand.start, False, operand.value), start)
    except PathNotFound:
        return _MISSING


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; ``true`` is not 1, and 1.0 is 1.

    Examples
    --------
    >>> json_equal({"a": [1]}, {"a": [1.0]}), json_equal(True, 1)
    (True, False)
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            json_equal(left[key], right[key]) for key in left
        )
    return bool(left == right)


def put_value(path: JsonPath, root: Any, value: Any) -> Any:
    """Return a copy of ``root`` with a value at a reference path.

    Missing objects on the path are created. Raises PathNotFound if a value on the path is neither
    an object nor a list that is long enough.

    Examples
    --------
    >>> put_value(parse_path("$.a.b"), {"x": 1}, 2)
    {'x': 1, 'a': {'b': 2}}
    """
    top: list[Any] = [root]
    holder: Any = top
    key: Any = 0
    for number, step in enumerate(path.steps):
        inner = holder[key]
        if step.kind == "name" and isinstance(inner, dict):
            inner = dict(inner)
            inner.setdefault(step.value, {})
        elif step.kind == "index" and isinstance(inner, list) and step.value < len(inner):
            inner = list(inner)
        else:
            raise PathNotFound(f"{path.text} cannot be set: {_describe_end(path, number, inner)}")
        holder[key] = inner
        holder, key = inner, step.value
    holder[key] = value
    return top[0]
