"""Read a notebook's cell tagged ``parameters``: its variables and their default types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
#: IPython lines that are not Python: magics, shell commands and help queries.
_MAGIC = re.compile(r"^([ \t]*)[%!?].*$", re.MULTILINE)
#: Functions that convert a value to another type or check its type.
_CONVERTERS = {
    "bool", "date", "datetime", "datetime64", "Decimal", "eval", "float", "float32", "float64",
    "fromisoformat", "Fraction", "int", "int32", "int64", "isinstance", "literal_eval", "loads",
    "parse", "safe_load", "str", "strptime", "strtobool", "Timedelta", "Timestamp", "to_datetime",
    "to_numeric", "to_timedelta", "type", "validate_python",
}  # fmt: skip
_DISPLAYS: dict[type[ast.AST], str] = {
    ast.List: "list", ast.Dict: "dict", ast.Tuple: "tuple", ast.Set: "set",
}  # fmt: skip
_SCALARS = {"bool", "float", "int"}
#: Errors of invalid source text, null bytes, and nesting too deep for the parser.
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class ParameterCell:
    """Assignments of the first cell tagged ``parameters``.

    Parameters
    ----------
    names : frozenset of str
        The assigned variables.
    types : mapping of str to str
        Default type by variable, for defaults that are neither text nor None and that no other cell
        converts.
    """

    names: frozenset[str]
    types: Mapping[str, str]


def read_parameter_cell(cells: Iterable[Any]) -> ParameterCell | None:
    """Return the tagged cell of a Python notebook; None if there is none."""
    tagged, others = None, []
    for cell in cells:
        source = cell["source"]
        text = source if isinstance(source, str) else "".join(source)
        tags = (cell.get("metadata") or {}).get("tags") or ()
        if tagged is None and "parameters" in tags:
            tagged = text
        elif cell.get("cell_type", "code") == "code":
            others.append(text)
    if tagged is None:
        return None
    tree = _parse(tagged)
    if tree is None:
        return ParameterCell(frozenset(_ASSIGNED.findall(tagged)), {})
    variables = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    names = frozenset(node.id for node in variables if isinstance(node.ctx, ast.Store))
    types = {name: kind for name, kind in dict(_find_defaults(tree)).items() if kind}
    for text in others if types else ():
        for name in _find_converted(text):
            types.pop(name, None)
    return ParameterCell(names, types)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except _PARSE_ERRORS:
        pass
    try:
        return ast.parse(_MAGIC.sub(r"\1pass", text))
    except _PARSE_ERRORS:
        return None


def _find_defaults(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield assigned variables with the type of their value (:func:`_literal_type`)."""
    for node in tree.body:
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for variable, default in pairs:
                if isinstance(variable, ast.Name):
                    yield variable.id, _literal_type(default)


def _literal_type(value: Any) -> str:
    """Return the type of a number, boolean or collection literal; else an empty string."""
    if isinstance(value, ast.UnaryOp):  # -1
        value = value.operand
    if isinstance(value, ast.Constant):
        kind = type(value.value).__name__
        return kind if kind in _SCALARS else ""
    return _DISPLAYS.get(type(value), "")


def _find_converted(text: str) -> Iterator[str]:
    """Yield variables that a cell passes to a converter, compares with text, or uses as text."""
    tree = _parse(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            named = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if named in _CONVERTERS:
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                inner = [part for value in values for part in ast.walk(value)]
                yield from (part.id for part in inner if isinstance(part, ast.Name))
            # A variable with a method of str, such as n.lower(), is used as text.
            owner = getattr(node.func, "value", None)
            if isinstance(owner, ast.Name) and hasattr(str, str(getattr(node.func, "attr", ""))):
                yield owner.id
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(
                isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides
            ):
                yield from (side.id for side in sides if isinstance(side, ast.Name))
