"""JSONPath as States Language machines write it: text to steps.

The language means the dialect of the Java library json-path, which differs from RFC 9535 in
whether a path is definite (one value) or not (a list of values) and in what a filter is applied
to. What the two would answer differently and is rare is refused: unions of names, functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

#: How deep filters and their parentheses may nest.
DEEPEST = 16

Kind = Literal["name", "index", "indices", "slice", "all", "filter"]

_PLAIN = re.compile(r"(?:[^\s.\[\]()'\",:*?@$\\]|\\.)+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INDICES = re.compile(r"-?[0-9]{1,9}(?:\s*,\s*-?[0-9]{1,9})*")
_SLICE = re.compile(r"(-?[0-9]{1,9})?\s*:\s*(-?[0-9]{1,9})?")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?")
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_WORD = re.compile(r"true|false|null")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


class PathSyntax(ValueError):
    """A path that cannot be read; the message says where and what may stand there."""


@dataclass(frozen=True)
class Step:
    """One step of a path; ``deep`` is that of two dots, which also looks below."""

    kind: Kind
    value: Any = None
    deep: bool = False


@dataclass(frozen=True)
class Operand:
    """A side of a comparison in a filter: a literal, or steps from ``@`` or from ``$``."""

    start: Literal["literal", "@", "$"]
    value: Any


@dataclass(frozen=True)
class Condition:
    """A filter: ``op`` is a comparison, ``exists``, ``not``, ``and`` or ``or``."""

    op: str
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Path:
    """A path that was read.

    Parameters
    ----------
    text : str
        As it is written.
    context : bool
        Whether it starts at the context object, as ``$$.Execution.Id`` does.
    steps : tuple of Step
        From the root down.
    """

    text: str
    context: bool
    steps: tuple[Step, ...]

    @property
    def definite(self) -> bool:
        """Whether it leads to one value, rather than to a list of all that match."""
        return all(step.kind in ("name", "index") and not step.deep for step in self.steps)

    @property
    def reference(self) -> bool:
        """Whether it is a reference path: names and indexes from the front only."""
        return self.definite and all(step.kind == "name" or step.value >= 0 for step in self.steps)


def parse_path(text: str) -> Path:
    """Read a path.

    Parameters
    ----------
    text : str
        ``$``, or ``$$`` for the context object, and steps: ``.name``, ``['name']``, ``[0]``,
        ``[-1]``, ``[0,2]``, ``[1:3]``, ``[*]``, ``..name`` and ``[?(@.price < 10)]``. A
        backslash before any character of ``.name`` takes it as it is.

    Returns
    -------
    Path

    Raises
    ------
    PathSyntax
        A ``ValueError`` that says what is wrong, and where.

    Examples
    --------
    >>> parse_path("$.orders[0].price").definite
    True
    >>> parse_path("$.orders[*].price").definite
    False
    """
    if not text.startswith("$"):
        raise PathSyntax("a path starts with $")
    context = text.startswith("$$")
    steps, end = _steps(text, 2 if context else 1, 0)
    if end != len(text):
        raise _unexpected(text, end, ". or [")
    return Path(text, context, steps)


def _unexpected(text: str, position: int, allowed: str) -> PathSyntax:
    found = repr(text[position]) if position < len(text) else "the end"
    return PathSyntax(f"{found} at character {position + 1}, where {allowed} may stand")


def _steps(text: str, position: int, depth: int) -> tuple[tuple[Step, ...], int]:
    """All steps from a position on, and where they end."""
    steps = []
    while position < len(text) and text[position] in ".[":
        step, position = _step(text, position, depth)
        steps.append(step)
    return tuple(steps), position


def _step(text: str, position: int, depth: int) -> tuple[Step, int]:
    deep = text.startswith("..", position)
    if text[position] == "[" or (deep and text.startswith("[", position + 2)):
        return _bracket(text, position + (2 if deep else 0), deep, depth)
    position += 2 if deep else 1
    if text.startswith("*", position):
        return Step("all", deep=deep), position + 1
    found = _PLAIN.match(text, position)
    if not found:
        raise _unexpected(text, position, "a name or *")
    if text.startswith("(", found.end()):
        raise PathSyntax(
            f"{found.group()}() at character {position + 1}: functions of paths are not "
            "supported; an intrinsic such as States.ArrayLength does the same"
        )
    return Step("name", _ESCAPED.sub(r"\1", found.group()), deep), found.end()


def _bracket(text: str, position: int, deep: bool, depth: int) -> tuple[Step, int]:
    inside = _blank(text, position + 1)
    step, end = _inside(text, inside, depth)
    end = _blank(text, end)
    if step.kind == "name" and text.startswith(",", end):
        raise PathSyntax("several names in one bracket are not supported; use a field for each")
    if not text.startswith("]", end):
        raise _unexpected(text, end, "]")
    return Step(step.kind, step.value, deep), end + 1


def _inside(text: str, position: int, depth: int) -> tuple[Step, int]:
    """What stands between brackets."""
    if found := _QUOTED.match(text, position):
        return Step("name", _unquoted(found)), found.end()
    if text.startswith("*", position):
        return Step("all"), position + 1
    if found := _SLICE.match(text, position):
        bounds = tuple(int(bound) if bound else None for bound in found.groups())
        return Step("slice", bounds), found.end()
    if found := _INDICES.match(text, position):
        numbers = tuple(int(number) for number in found.group().split(","))
        if len(numbers) == 1:
            return Step("index", numbers[0]), found.end()
        return Step("indices", numbers), found.end()
    if text.startswith("?", position):
        opened = _blank(text, position + 1)
        if not text.startswith("(", opened):
            raise _unexpected(text, opened, "(")
        condition, end = _any(text, opened + 1, depth + 1)
        return Step("filter", condition), _closed(text, end)
    raise _unexpected(text, position, "an index, a slice, *, a quoted name or ?(")


def _unquoted(found: re.Match[str]) -> str:
    return _ESCAPED.sub(r"\1", found.group(1) if found.group(2) is None else found.group(2))


def _blank(text: str, position: int) -> int:
    while text.startswith(" ", position):
        position += 1
    return position


def _closed(text: str, position: int) -> int:
    position = _blank(text, position)
    if not text.startswith(")", position):
        raise _unexpected(text, position, ")")
    return position + 1


Reader = Callable[[str, int, int], tuple[Condition, int]]


def _joined(text: str, position: int, depth: int, op: str, mark: str, part: Reader) -> Any:
    condition, position = part(text, position, depth)
    parts = [condition]
    while text.startswith(mark, _blank(text, position)):
        condition, position = part(text, _blank(text, position) + len(mark), depth)
        parts.append(condition)
    return (parts[0] if len(parts) == 1 else Condition(op, tuple(parts))), position


def _any(text: str, position: int, depth: int) -> tuple[Condition, int]:
    if depth > DEEPEST:
        raise PathSyntax(f"a filter nests deeper than {DEEPEST} levels")
    found: tuple[Condition, int] = _joined(text, position, depth, "or", "||", _every)
    return found


def _every(text: str, position: int, depth: int) -> tuple[Condition, int]:
    found: tuple[Condition, int] = _joined(text, position, depth, "and", "&&", _one)
    return found


def _one(text: str, position: int, depth: int) -> tuple[Condition, int]:
    position = _blank(text, position)
    if text.startswith("!", position):
        condition, end = _one_inner(text, _blank(text, position + 1), depth)
        return Condition("not", (condition,)), end
    return _one_inner(text, position, depth)


def _one_inner(text: str, position: int, depth: int) -> tuple[Condition, int]:
    if text.startswith("(", position):
        condition, end = _any(text, position + 1, depth + 1)
        return condition, _closed(text, end)
    left, end = _operand(text, position, depth)
    operator = _OPERATOR.match(text, _blank(text, end))
    if operator:
        right, end = _operand(text, _blank(text, operator.end()), depth)
        return Condition(operator.group(), (left, right)), end
    if left.start == "literal":
        raise _unexpected(text, _blank(text, end), "a comparison")
    return Condition("exists", (left,)), end


def _operand(text: str, position: int, depth: int) -> tuple[Operand, int]:
    for start in ("@", "$"):
        if text.startswith(start, position):
            steps, end = _steps(text, position + 1, depth)
            return Operand("@" if start == "@" else "$", steps), end
    if found := _QUOTED.match(text, position):
        return Operand("literal", _unquoted(found)), found.end()
    if found := _WORD.match(text, position):
        return Operand("literal", _WORDS[found.group()]), found.end()
    if found := _NUMBER.match(text, position):
        number = found.group()
        return Operand("literal", float(number) if set(number) & set(".eE") else int(number)), (
            found.end()
        )
    raise _unexpected(text, position, "@, $, a number, a quoted text, true, false or null")
