"""The cell of a notebook tagged ``parameters``: its variables, and the types of their defaults."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
#: Lines of IPython that are no Python: magics, commands of a shell and questions.
_MAGIC = re.compile(r"^([ \t]*)[%!?].*$", re.MULTILINE)
#: Functions that make of a text what a notebook wants.
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
#: Of a text that is no Python, has a null byte, or is nested too deep for the parser.
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class ParameterCell:
    """What the first cell tagged ``parameters`` assigns.

    Parameters
    ----------
    names : frozenset of str
        The variables.
    types : mapping of str to str
        Variable to the type of its default, where that is neither text nor None and no other cell
        converts the variable.
    """

    names: frozenset[str]
    types: Mapping[str, str]


def read_parameter_cell(cells: Iterable[Any]) -> ParameterCell | None:
    """The cell of a notebook in Python; None where no cell has the tag."""
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
    stored = (one for one in ast.walk(tree) if isinstance(one, ast.Name))
    names = frozenset(one.id for one in stored if isinstance(one.ctx, ast.Store))
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
    """Variables that are assigned a value, with its type as :func:`_type_of` gives it."""
    for node in tree.body:
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for one, default in pairs:
                if isinstance(one, ast.Name):
                    yield one.id, _literal_type(default)


def _literal_type(value: Any) -> str:
    """The type of a number, a truth value, a list or the like; empty for all else."""
    if isinstance(value, ast.UnaryOp):  # -1
        value = value.operand
    if isinstance(value, ast.Constant):
        kind = type(value.value).__name__
        return kind if kind in _SCALARS else ""
    return _DISPLAYS.get(type(value), "")


def _find_converted(text: str) -> Iterator[str]:
    """Variables that a cell gives to a function that converts text, or compares with a text."""
    tree = _parse(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            named = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if named in _CONVERTERS:
                values = [*node.args, *(each.value for each in node.keywords)]
                inner = [one for each in values for one in ast.walk(each)]
                yield from (one.id for one in inner if isinstance(one, ast.Name))
            # n.lower(), n.split(",") and the like are made for texts.
            owner = getattr(node.func, "value", None)
            if isinstance(owner, ast.Name) and hasattr(str, str(getattr(node.func, "attr", ""))):
                yield owner.id
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in sides):
                yield from (one.id for one in sides if isinstance(one, ast.Name))
