"""Parser and evaluation of intrinsic functions such as ``States.Format('{}', $.x)``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hyperplane.asl import intrinsic_functions
from hyperplane.asl.errors import StateError
from hyperplane.asl.json_path import JsonPath, PathSyntax
from hyperplane.asl.path_lookup import PathNotFound, cached_path, find_value
from hyperplane.core.public_calls import nearest
from hyperplane.core.units import plural

#: Maximum number of function calls in one expression, as the language specifies.
MAX_CALLS = 10

_CALL = re.compile(r"States\.([A-Za-z0-9]+)\(")
_TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")
_WORD = re.compile(r"(true|false|null)(?=[\s,)])")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_BLANK = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class IntrinsicSyntax(ValueError):
    """An invalid expression; the message states the reason, with the position if known."""


@dataclass(frozen=True)
class TextLiteral:
    """A quoted text; ``raw`` keeps the backslashes, which States.Format needs."""

    raw: str


@dataclass(frozen=True)
class JsonLiteral:
    """A literal number, ``true``, ``false`` or ``null``."""

    value: Any


@dataclass(frozen=True)
class FunctionCall:
    """A call of an intrinsic function with its arguments."""

    name: str
    arguments: tuple[TextLiteral | JsonLiteral | JsonPath | FunctionCall, ...]


def parse_intrinsic(text: str) -> FunctionCall:
    """Parse an expression such as ``States.Array($.a, 'b', 3)``.

    Texts are in single quotes; a backslash escapes ``'``, ``{``, ``}`` and a backslash. Raises
    IntrinsicSyntax for invalid syntax, unknown functions and a wrong number of arguments.

    Examples
    --------
    >>> call = parse_intrinsic("States.Format('{} of {}', $.n, States.ArrayLength($.all))")
    >>> call.name, len(call.arguments)
    ('Format', 3)
    """
    reader = _IntrinsicParser(text)
    call = reader.call()
    if reader.position != len(text):
        raise reader.unexpected("the end")
    return call


class _IntrinsicParser:
    """Recursive-descent parser of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.calls = 0

    def unexpected(self, allowed: str) -> IntrinsicSyntax:
        at = self.position
        character = repr(self.text[at]) if at < len(self.text) else "the end"
        return IntrinsicSyntax(f"{character} at character {at + 1}, expected {allowed}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def call(self) -> FunctionCall:
        match = self.match(_CALL)
        if not match:
            raise self.unexpected("an intrinsic function such as States.Format(...)")
        name = match.group(1)
        if name not in intrinsic_functions.FUNCTIONS:
            near = nearest(name, intrinsic_functions.FUNCTIONS)
            names = near or sorted(intrinsic_functions.FUNCTIONS)
            known = (" or " if near else ", ").join(f"States.{each}" for each in names)
            advice = f"did you mean {known}?" if near else f"expected one of {known}"
            raise IntrinsicSyntax(f"unknown function States.{name}; {advice}")
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise IntrinsicSyntax(f"more than {MAX_CALLS} functions in one expression")
        arguments = self.arguments()
        fewest, most = intrinsic_functions.COUNTS[name]
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            allowed = f"at least {fewest}" if most is None else f"{fewest} to {most}"
            allowed = f"{fewest}" if fewest == most else allowed
            given = plural(len(arguments), "argument")
            raise IntrinsicSyntax(f"States.{name} has {given}, expected {allowed}")
        self.check_format(name, arguments)
        return FunctionCall(name, tuple(arguments))

    def check_format(self, name: str, arguments: list[Any]) -> None:
        if name != "Format":
            return
        template = arguments[0]
        if isinstance(template, JsonLiteral):
            raise IntrinsicSyntax("the first argument of States.Format must be a text")
        if isinstance(template, TextLiteral):
            try:
                intrinsic_functions.split_template(template.raw, len(arguments) - 1)
            except ValueError as error:
                raise IntrinsicSyntax(f"States.Format: {error}") from None

    def arguments(self) -> list[Any]:
        arguments: list[Any] = []
        self.match(_BLANK)
        while not self.text.startswith(")", self.position):
            if arguments:
                if not self.text.startswith(",", self.position):
                    raise self.unexpected("a comma or )")
                self.position += 1
                self.match(_BLANK)
            arguments.append(self.argument())
            self.match(_BLANK)
        self.position += 1
        return arguments

    def argument(self) -> TextLiteral | JsonLiteral | JsonPath | FunctionCall:
        if self.text.startswith("States.", self.position):
            return self.call()
        if self.text.startswith("$", self.position):
            return self.path()
        at = self.position
        if text := self.match(_TEXT):
            for escape in _ESCAPE.finditer(text.group(1)):
                if escape.group(1) not in "'{}\\":
                    raise IntrinsicSyntax(
                        f"{escape.group()!r} after character {at + 1}: "
                        "a backslash may only precede ', {, } or a backslash"
                    )
            return TextLiteral(text.group(1))
        if word := self.match(_WORD):
            return JsonLiteral(_WORDS[word.group(1)])
        if number := self.match(_NUMBER):
            whole = not number.group(1) and not number.group(2)
            value = int(number.group()) if whole else float(number.group())
            if value in (float("inf"), float("-inf")):
                raise IntrinsicSyntax(f"{number.group()} is too large a number")
            return JsonLiteral(value)
        raise self.unexpected("a path, a text between ' ', a number or a function")

    def path(self) -> JsonPath:
        """Parse a path, which ends at a comma, ``)`` or blank outside its own brackets."""
        start, depth, quote = self.position, 0, ""
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == "\\":
                self.position += 1
            elif quote:
                quote = "" if char == quote else quote
            elif depth and char in "'\"":
                quote = char
            elif char in "[(":
                depth += 1
            elif depth and char in "])":
                depth -= 1
            elif not depth and (char in ",)" or char.isspace()):
                break
            self.position += 1
        try:
            return cached_path(self.text[start : self.position])
        except PathSyntax as error:
            raise IntrinsicSyntax(f"{self.text[start : self.position]}: {error}") from None


#: Cached, because a Map evaluates the same expression for each item.
cached_intrinsic = lru_cache(maxsize=4096)(parse_intrinsic)


def evaluate(call: FunctionCall, data: Any, context: Any) -> Any:
    """Evaluate an expression; ``data`` and ``context`` are the values of ``$`` and ``$$``.

    Raises ``States.IntrinsicFailure`` for a path without a value or an invalid argument.

    Examples
    --------
    >>> evaluate(parse_intrinsic("States.MathAdd($.n, 1)"), {"n": 41}, {})
    42
    """
    try:
        return _argument_value(call, data, context)
    except (ValueError, PathNotFound) as error:
        raise StateError("States.IntrinsicFailure", f"States.{call.name}: {error}") from None


def _argument_value(
    argument: TextLiteral | JsonLiteral | JsonPath | FunctionCall, data: Any, context: Any
) -> Any:
    if isinstance(argument, JsonPath):
        return find_value(argument, context if argument.context else data)
    if isinstance(argument, JsonLiteral):
        return argument.value
    if isinstance(argument, TextLiteral):
        return _ESCAPE.sub(r"\1", argument.raw)
    values = [_argument_value(inner, data, context) for inner in argument.arguments]
    if argument.name == "Format" and isinstance(argument.arguments[0], TextLiteral):
        values[0] = argument.arguments[0].raw
    return intrinsic_functions.FUNCTIONS[argument.name](*values)
