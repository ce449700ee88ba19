"""Checks of filters: a null, or a variable without a value, never means all jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphql.language import VariableNode, Visitor, visit
from strawberry import UNSET
from strawberry.types import Info, get_object_definition

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault

_LEAVE_OUT = "leave it out for no condition"
#: Faults of one filter that are reported.
_MOST_FAULTS = 10


def given_fields(filter_input: Any) -> dict[str, Any]:
    """Return the fields of an input that the query has set, also to null, by their Python names."""
    return {
        field.python_name: value
        for field in get_object_definition(filter_input, strict=True).fields
        if (value := getattr(filter_input, field.python_name)) is not UNSET
    }


def filter_faults(where: Any, path: str, *, strict: bool = False) -> list[Fault]:
    """Return the faults of a filter of jobs.

    Parameters
    ----------
    where : PipelineJobWhereInput
        The filter.
    path : str
        Name of its argument.
    strict : bool
        Whether conditions and lists that are empty are faults, too. A filter that selects jobs to
        change must not select all of them because a value of the program was empty.
    """
    found = []
    for fault in _filter_faults(where, path, strict):
        found.append(fault)
        if len(found) == _MOST_FAULTS:
            break
    return found


def unset_variable_faults(info: Info[Any, Any], argument: str) -> list[Fault]:
    """Return a fault for each variable in a filter that the request has no value for.

    GraphQL leaves the field of such a variable out, so that it would have no effect. Clients that
    write JSON from JavaScript do not send variables that are undefined.
    """
    arguments = [each for field in info._raw_info.field_nodes for each in field.arguments or ()]
    nodes = [each.value for each in arguments if each.name.value == argument]
    names: dict[str, None] = {}

    class VariableVisitor(Visitor):
        """Collects the names of variables."""

        def enter_variable(self, node: VariableNode, *_: Any) -> None:
            names.setdefault(node.name.value)

    for node in nodes:
        if not isinstance(node, VariableNode):  # one for the whole filter may be left out
            visit(node, VariableVisitor())
    return [
        Fault(f"${name}", "no value", f"a value, because {argument} has the variable", _LEAVE_OUT)
        for name in names
        if name not in info.variable_values
    ]


def text_faults(text: str, path: str) -> list[Fault]:
    """Return a fault if a database cannot have a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return [Fault(path, describe_value(text), "text that UTF-8 can encode")]
    return []


def _filter_faults(where: Any, path: str, strict: bool) -> Iterator[Fault]:
    fields = {name: value for name, value in given_fields(where).items()
              if name not in where.WITHOUT_EFFECT}  # fmt: skip
    if strict and not fields:
        yield Fault(path, "no condition", "at least one, such as jobName or status")
    for name, value in fields.items():
        inner = f"{path}.{_graphql_name(where, name)}"
        if value is None:
            yield Fault(inner, "null", "a condition", _LEAVE_OUT)
        elif isinstance(value, list):
            if strict and not value:
                yield Fault(inner, "an empty list", "at least one filter", _LEAVE_OUT)
            for number, each in enumerate(value):
                yield from _filter_faults(each, f"{inner}[{number}]", strict)
        else:
            yield from _condition_faults(value, inner, strict)


def _condition_faults(condition: Any, path: str, strict: bool) -> Iterator[Fault]:
    fields = given_fields(condition)
    if not fields.keys() - {"mode"}:
        yield Fault(path, "no condition", "at least one, such as equals", _LEAVE_OUT)
    for name, value in fields.items():
        inner = f"{path}.{_graphql_name(condition, name)}"
        if value is None:
            yield Fault(inner, "null", "a value", _LEAVE_OUT)
        elif strict and (value in ("", []) or (isinstance(value, list) and "" in value)):
            allowed = "a list of texts that are not empty" if isinstance(value, list) else "a text"
            yield Fault(inner, describe_value(value), allowed, _LEAVE_OUT)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield from text_faults(text, inner)


def _graphql_name(filter_input: Any, name: str) -> str:
    """Return the name that a field has in queries."""
    for field in get_object_definition(filter_input, strict=True).fields:
        if field.python_name == name:
            return field.graphql_name or _to_camel_case(name)
    raise LookupError(name)


def _to_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
