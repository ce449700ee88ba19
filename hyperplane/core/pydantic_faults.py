"""Conversion of pydantic's validation errors into faults."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, StringConstraints, ValidationError

from hyperplane.core.errors import Fault, UnknownKey
from hyperplane.core.errors.base import request_error
from hyperplane.core.public_calls import has_similar_words, unknown_name
from hyperplane.core.units import plural

_LIMITS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_TYPE_WORDS = {
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "True or False",
    "string_": "text",
    "dict_": "a mapping",
    "list_": "a list",
    "tuple_": "a list",
    "finite_": "a finite number",
}
#: Patterns of texts -> what they allow, in words.
_PATTERN_WORDS: dict[str, str] = {}
_NO_KEY = "no such key"
_LIST = 'a list, such as ["a", "b"] ([a,b] in YAML and on the command line)'


def text_like(pattern: str, words: str) -> StringConstraints:
    """Return the constraint of a text; faults describe it by ``words``, which have an example."""
    _PATTERN_WORDS[pattern] = words
    return StringConstraints(pattern=pattern)


class NestedFaults(ValueError):
    """Raised by a validator for faults inside a value; they replace the fault of the value."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


def faults_from_validation(error: ValidationError, prefix: str = "") -> list[Fault]:
    """Convert a pydantic validation error into faults, in the order of the model's fields.

    ``prefix`` is prepended to each key, with a dot. The branches of a union become one fault;
    faults inside a value replace the fault of the value.
    """
    faults: dict[str, Fault] = {}
    for entry in error.errors(include_url=False):
        inside = entry.get("ctx", {}).get("error")
        if isinstance(inside, NestedFaults):
            faults.update({fault.where: fault for fault in inside.faults})
            continue
        names = [str(part) for part in entry["loc"] if not _is_union_branch(part)]
        path = ".".join(part for part in (prefix, *names) if part)
        allowed = _describe_allowed(entry)
        value = "nothing" if entry["type"] == "missing" else _shorten(entry["input"])
        if path in faults:
            allowed = f"{faults[path].allowed}, or {allowed}"
        faults[path] = Fault(path, value, allowed)
    return [
        fault
        for path, fault in faults.items()
        if not any(other.startswith(f"{path}.") for other in faults)
    ]


class CheckedModel(BaseModel):
    """Base of models that users create: invalid values raise :class:`RequestError`."""

    if not TYPE_CHECKING:

        def __init__(self, /, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise request_error(
                    [
                        self._name_known_fields(fault, values)
                        for fault in faults_from_validation(error)
                    ]
                ) from None  # the faults have all that pydantic says

    @classmethod
    def _name_known_fields(cls, fault: Fault, values: Mapping[str, Any]) -> Fault:
        """Replace the fault of an unknown field by one that names the known fields."""
        if fault.allowed != _NO_KEY or fault.where not in values:
            return fault
        return unknown_name(fault.where, values[fault.where], cls.model_fields, cls.__name__)


def with_known_names(fault: Fault, known: Iterable[str], prefix: str = "") -> Fault:
    """Replace the fault of an unknown key by one that names the known keys.

    Other faults are returned unchanged. ``prefix`` is that of :func:`faults_from_validation`.

    Examples
    --------
    >>> print(with_known_names(Fault("site.prot", "22", "no such key"), ["host", "port"], "site"))
    site.prot = 22: no such key; expected one of host, port; did you mean port?
    """
    names = list(known)
    name = fault.where.removeprefix(f"{prefix}.") if prefix else fault.where
    return fault if name.partition(".")[0] in names else _unknown_key(fault, name, names)


def with_model_keys(fault: Fault, model: type[BaseModel], prefix: str = "") -> Fault:
    """Replace the fault of an unknown key by one that names the keys of its model.

    The model may be nested in the given one. Other faults are returned unchanged.
    """
    if fault.allowed != _NO_KEY:
        return fault
    name = fault.where.removeprefix(f"{prefix}.") if prefix else fault.where
    names, name = _find_keys(model, name)
    return _unknown_key(fault, name, names) if names else fault


def _find_keys(kind: Any, name: str) -> tuple[list[str], str]:
    """Return the keys of the model that lacks a dotted name, and the name in it; empty if none."""
    first, _, rest = name.partition(".")
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(first)
        if field is not None and rest:
            return _find_keys(field.annotation, rest)
        return list(kind.model_fields), name
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _find_keys(arguments[0], name)
    if origin in (Union, UnionType):
        found = (_find_keys(argument, name) for argument in arguments)
        return next((each for each in found if each[0]), ([], ""))
    if origin in (dict, list, tuple):
        return _find_keys(arguments[-1 if origin is dict else 0], rest)
    return [], ""


def _unknown_key(fault: Fault, name: str, names: list[str]) -> UnknownKey:
    similar = [other for other in names if has_similar_words(name, other)]
    near = difflib.get_close_matches(name, similar, n=1)
    advice = f"did you mean {near[0]}?" if near else ""
    allowed = "one of " + ", ".join(names)
    return UnknownKey(fault.where, fault.asked, allowed, advice, fault.source)


def _is_union_branch(part: int | str) -> bool:
    """Return whether a part of pydantic's location is a branch of a union, not a key."""
    return isinstance(part, str) and ("[" in part or part in {"str", "int", "float", "none"})


def _describe_allowed(entry: Any) -> str:
    kind, context = entry["type"], entry.get("ctx", {})
    if kind in _LIMITS:
        return _LIMITS[kind].format(**context)
    if kind == "literal_error":
        return f"one of {context['expected']}"
    if kind == "missing":
        return "a value; this key is required"
    if kind == "extra_forbidden":
        return _NO_KEY
    if kind == "value_error":
        return str(context["error"])
    if kind in {"model_type", "dataclass_type", "is_instance_of"}:
        return f"an object of type {context.get('class_name') or context['class']}"
    if kind in {"string_too_short", "too_short"}:
        noun = "character" if kind == "string_too_short" else "item"
        return f"at least {plural(context['min_length'], noun)}"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return _PATTERN_WORDS.get(pattern, f"text that matches {pattern}")
    for start, words in _TYPE_WORDS.items():
        if kind.startswith(start):
            # Text instead of a list is common: show how a list is written.
            if words == "a list" and isinstance(entry["input"], str):
                return _LIST
            return words
    return str(entry["msg"])


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
