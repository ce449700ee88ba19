"""Parser of JSONPath in the dialect of the States Language.

The language uses the dialect of the Java library json-path. It differs from RFC 9535 in two points:
a definite path has one value, any other path a list of values; and a filter after an object is
applied to the object, not to its members. Functions in paths, and several names in one bracket, are
refused: they are rare and have other results in RFC 9535.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

#: Maximum nesting of filters and parentheses.
MAX_DEPTH = 16

StepKind = Literal["name", "index", "indices", "slice", "all", "filter"]

_PLAIN = re.compile(r"(?:[^\s.\[\]()'\",:*?@$\\]|\\.)+")
#: In a filter a name ends at an operator, with or without a blank before it.
_PLAIN_IN_FILTER = re.compile(r"(?:[^\s.\[\]()'\",:*?@$\\<>=!~&|]|\\.)+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INDICES = re.compile(r"-?[0-9]{1,9}(?:\s*,\s*-?[0-9]{1,9})*")
_SLICE = re.compile(r"(-?[0-9]{1,9})?\s*:\s*(-?[0-9]{1,9})?")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?")
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_WORD = re.compile(r"true|false|null")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


class PathSyntax(ValueError):
    """An invalid path; the message states the reason, with the position if that is known."""


@dataclass(frozen=True)
class PathStep:
    """One step of a path; ``deep`` is set after two dots, which search all levels below."""

    kind: StepKind
    value: Any = None
    deep: bool = False


@dataclass(frozen=True)
class Operand:
    """An operand of a comparison in a filter: a literal, or steps from ``@`` or ``$``."""

    start: Literal["literal", "@", "$"]
    value: Any


@dataclass(frozen=True)
class Condition:
    """A filter: ``op`` is a comparison, ``exists``, ``not``, ``and`` or ``or``."""

    op: str
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class JsonPath:
    """A parsed path; ``context`` is set for paths in the context object, from ``$$``."""

    text: str
    context: bool
    steps: tuple[PathStep, ...]

    @property
    def definite(self) -> bool:
        """Whether the path has one value instead of a list of matches."""
        return all(step.kind in ("name", "index") and not step.deep for step in self.steps)

    @property
    def reference(self) -> bool:
        """Whether the path is a reference path: only names and non-negative indexes."""
        return self.definite and all(step.kind == "name" or step.value >= 0 for step in self.steps)


def parse_path(text: str) -> JsonPath:
    """Parse a path.

    A path is ``$``, or ``$$`` for the context object, and steps: ``.name``, ``['name']``, ``[0]``,
    ``[-1]``, ``[0,2]``, ``[1:3]``, ``[*]``, ``..name`` and ``[?(@.price < 10)]``. In ``.name``, a
    backslash escapes any character; in a filter, operators in a name must be escaped. Raises
    PathSyntax for an invalid path.

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
    steps, end = _parse_steps(text, 2 if context else 1, 0)
    if end != len(text):
        raise _unexpected_text(text, end, ". or [")
    return JsonPath(text, context, steps)


def _unexpected_text(text: str, position: int, allowed: str) -> PathSyntax:
    character = repr(text[position]) if position < len(text) else "the end"
    return PathSyntax(f"{character} at character {position + 1}, expected {allowed}")


def _parse_steps(text: str, position: int, depth: int) -> tuple[tuple[PathStep, ...], int]:
    """Parse all steps from a position; return them and their end."""
    steps = []
    while position < len(text) and text[position] in ".[":
        step, position = _parse_step(text, position, depth)
        steps.append(step)
    return tuple(steps), position


def _parse_step(text: str, position: int, depth: int) -> tuple[PathStep, int]:
    deep = text.startswith("..", position)
    if text[position] == ".":
        position += 2 if deep else 1
    if text.startswith("[", position):  # Amazon's documentation has $.a.['b'], with a dot
        return _parse_bracket(text, position, deep, depth)
    if text.startswith("*", position):
        return PathStep("all", deep=deep), position + 1
    match = (_PLAIN_IN_FILTER if depth else _PLAIN).match(text, position)
    if not match:
        raise _unexpected_text(text, position, "a name or *")
    if text.startswith("(", match.end()):
        raise PathSyntax(
            f"{match.group()}() at character {position + 1}: functions in paths are not "
            "supported; use an intrinsic function such as States.ArrayLength"
        )
    return PathStep("name", _ESCAPED.sub(r"\1", match.group()), deep), match.end()


def _parse_bracket(text: str, position: int, deep: bool, depth: int) -> tuple[PathStep, int]:
    inside = _skip_blanks(text, position + 1)
    step, end = _parse_bracket_content(text, inside, depth)
    end = _skip_blanks(text, end)
    if step.kind == "name" and text.startswith(",", end):
        raise PathSyntax("several names in one bracket are not supported; use one path for each")
    if not text.startswith("]", end):
        raise _unexpected_text(text, end, "]")
    return PathStep(step.kind, step.value, deep), end + 1


def _parse_bracket_content(text: str, position: int, depth: int) -> tuple[PathStep, int]:
    """Parse the content of brackets."""
    if match := _QUOTED.match(text, position):
        return PathStep("name", _unescape(match)), match.end()
    if text.startswith("*", position):
        return PathStep("all"), position + 1
    if match := _SLICE.match(text, position):
        bounds = tuple(int(bound) if bound else None for bound in match.groups())
        return PathStep("slice", bounds), match.end()
    if match := _INDICES.match(text, position):
        numbers = tuple(int(number) for number in match.group().split(","))
        if len(numbers) == 1:
            return PathStep("index", numbers[0]), match.end()
        return PathStep("indices", numbers), match.end()
    if text.startswith("?", position):
        opened = _skip_blanks(text, position + 1)
        if not text.startswith("(", opened):
            raise _unexpected_text(text, opened, "(")
        condition, end = _parse_or(text, opened + 1, depth + 1)
        return PathStep("filter", condition), _expect_parenthesis(text, end)
    raise _unexpected_text(text, position, "an index, a slice, *, a quoted name or ?(")


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.sub(r"\1", match.group(1) if match.group(2) is None else match.group(2))


def _skip_blanks(text: str, position: int) -> int:
    while text.startswith(" ", position):
        position += 1
    return position


def _expect_parenthesis(text: str, position: int) -> int:
    position = _skip_blanks(text, position)
    if not text.startswith(")", position):
        raise _unexpected_text(text, position, ")")
    return position + 1


ConditionParser = Callable[[str, int, int], tuple[Condition, int]]


def _parse_operands(
    text: str, position: int, depth: int, op: str, mark: str, part: ConditionParser
) -> Any:
    condition, position = part(text, position, depth)
    parts = [condition]
    while text.startswith(mark, _skip_blanks(text, position)):
        condition, position = part(text, _skip_blanks(text, position) + len(mark), depth)
        parts.append(condition)
    return (parts[0] if len(parts) == 1 else Condition(op, tuple(parts))), position


def _parse_or(text: str, position: int, depth: int) -> tuple[Condition, int]:
    if depth > MAX_DEPTH:
        raise PathSyntax(f"a filter nests deeper than {MAX_DEPTH} levels")
    condition: tuple[Condition, int] = _parse_operands(
        text, position, depth, "or", "||", _parse_and
    )
    return condition


def _parse_and(text: str, position: int, depth: int) -> tuple[Condition, int]:
    condition: tuple[Condition, int] = _parse_operands(
        text, position, depth, "and", "&&", _parse_not
    )
    return condition


def _parse_not(text: str, position: int, depth: int) -> tuple[Condition, int]:
    position = _skip_blanks(text, position)
    if text.startswith("!", position):
        condition, end = _parse_comparison(text, _skip_blanks(text, position + 1), depth)
        return Condition("not", (condition,)), end
    return _parse_comparison(text, position, depth)


def _parse_comparison(text: str, position: int, depth: int) -> tuple[Condition, int]:
    if text.startswith("(", position):
        condition, end = _parse_or(text, position + 1, depth + 1)
        return condition, _expect_parenthesis(text, end)
    left, end = _parse_operand(text, position, depth)
    operator = _OPERATOR.match(text, _skip_blanks(text, end))
    if operator:
        right, end = _parse_operand(text, _skip_blanks(text, operator.end()), depth)
        return Condition(operator.group(), (left, right)), end
    if left.start == "literal":
        raise _unexpected_text(text, _skip_blanks(text, end), "a comparison")
    return Condition("exists", (left,)), end


def _parse_operand(text: str, position: int, depth: int) -> tuple[Operand, int]:
    for start in ("@", "$"):
        if text.startswith(start, position):
            steps, end = _parse_steps(text, position + 1, depth)
            return Operand("@" if start == "@" else "$", steps), end
    if match := _QUOTED.match(text, position):
        return Operand("literal", _unescape(match)), match.end()
    if match := _WORD.match(text, position):
        return Operand("literal", _WORDS[match.group()]), match.end()
    if match := _NUMBER.match(text, position):
        number = match.group()
        return Operand("literal", float(number) if set(number) & set(".eE") else int(number)), (
            match.end()
        )
    raise _unexpected_text(text, position, "@, $, a number, a quoted text, true, false or null")
