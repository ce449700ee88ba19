"""What a path finds in JSON, and where a result goes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from hyperplane.asl.paths import Condition, Operand, Path, Step, parse_path

#: Stands for what a path in a filter does not find.
_NOTHING = object()


class NotFound(LookupError):
    """A path leads nowhere in this JSON."""


#: Reading a path again and again, for each item of a Map, would take longer than following it.
cached_path = lru_cache(maxsize=4096)(parse_path)


def find(path: Path, root: Any) -> Any:
    """Follow a path.

    Parameters
    ----------
    path : Path
        What :func:`hyperplane.asl.paths.parse_path` returns.
    root : JSON
        Where it starts.

    Returns
    -------
    JSON
        The value, for a definite path; for others a list of all that match, perhaps empty.

    Raises
    ------
    NotFound
        A ``LookupError``: a definite part of the path leads nowhere.

    Examples
    --------
    >>> find(parse_path("$.a[?(@.n > 1)].n"), {"a": [{"n": 1}, {"n": 2}, {"n": 3}]})
    [2, 3]
    """
    nodes, definite = [root], True
    for number, step in enumerate(path.steps):
        if definite and not step.deep and not _applies(step, nodes[0]):
            raise NotFound(f"{path.text} finds nothing: step {number + 1} does not apply")
        nodes = [found for node in nodes for found in _matches(step, node, root)]
        definite = definite and step.kind in ("name", "index") and not step.deep
    return nodes[0] if definite else nodes


def _applies(step: Step, node: Any) -> bool:
    """Whether a step fits what a definite path has led to so far."""
    if step.kind == "name":
        return isinstance(node, dict) and step.value in node
    if step.kind == "index":
        return isinstance(node, list) and -len(node) <= step.value < len(node)
    if step.kind == "filter":
        return isinstance(node, (dict, list))
    return isinstance(node, list) or step.kind == "all"


def _matches(step: Step, node: Any, root: Any) -> Iterator[Any]:
    if not step.deep:
        yield from _children(step, node, root)
        return
    todo = [node]
    while todo:
        one = todo.pop()
        yield from _children(step, one, root)
        below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        todo += reversed(list(below))


def _children(step: Step, node: Any, root: Any) -> Iterator[Any]:
    kind, value = step.kind, step.value
    if isinstance(node, dict):
        if kind == "name" and value in node:
            yield node[value]
        elif kind == "all":
            yield from node.values()
        # An object is filtered as a whole, not member by member.
        elif kind == "filter" and _holds(value, node, root):
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
            yield from (one for one in node if _holds(value, one, root))


def _holds(condition: Condition, node: Any, root: Any) -> bool:
    op, parts = condition.op, condition.parts
    if op == "not":
        return not _holds(parts[0], node, root)
    if op == "and":
        return all(_holds(part, node, root) for part in parts)
    if op == "or":
        return any(_holds(part, node, root) for part in parts)
    values = [_value(part, node, root) for part in parts]
    if op == "exists":
        return values[0] is not _NOTHING
    left, right = values
    if op in ("==", "!="):
        return same(left, right) is (op == "==")
    if not (_number(left) and _number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        return False
    return bool({"<": left < right, "<=": left <= right, ">": left > right}.get(op, left >= right))


def _value(operand: Operand, node: Any, root: Any) -> Any:
    if operand.start == "literal":
        return operand.value
    start = node if operand.start == "@" else root
    try:
        return find(Path(operand.start, False, operand.value), start)
    except NotFound:
        return _NOTHING


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; ``true`` is not 1, and 1.0 is 1.

    Examples
    --------
    >>> same({"a": [1]}, {"a": [1.0]}), same(True, 1)
    (True, False)
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def put(path: Path, root: Any, value: Any) -> Any:
    """A copy of ``root`` with a value at a reference path; nothing given is changed.

    Parameters
    ----------
    path : Path
        A reference path. Objects on its way that are not there are made.
    root, value : JSON
        What to copy, and what to put into it.

    Returns
    -------
    JSON

    Raises
    ------
    NotFound
        A ``LookupError``: something on the way is neither an object nor a list of that length.

    Examples
    --------
    >>> put(parse_path("$.a.b"), {"x": 1}, 2)
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
            raise NotFound(f"{path.text} cannot be put there: step {number + 1} does not apply")
        holder[key] = inner
        holder, key = inner, step.value
    holder[key] = value
    return top[0]
