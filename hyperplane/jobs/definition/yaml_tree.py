"""Parse YAML to a tree with line numbers, within limits.

The tree is built from the parser's events. No objects are constructed, so tags cannot name code,
and text remains text: ``no`` is not a boolean and ``1:30`` not a number of seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value

MAX_FILE_BYTES = 2**20
MAX_DEPTH = 32

# The C parser is about ten times as fast; not every installation has it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
#: Longer integers remain text: Python refuses to convert thousands of digits.
_MAX_DIGITS = 30


@dataclass(frozen=True)
class YamlScalar:
    """A scalar value.

    Parameters
    ----------
    line : int
        Line of the file, from 1.
    text : str
        The text, without quotes.
    plain : bool
        Whether it is unquoted.
    """

    line: int
    text: str
    plain: bool


@dataclass(frozen=True)
class YamlList:
    """A list."""

    line: int
    items: list[YamlNode] = field(default_factory=list)


@dataclass(frozen=True)
class YamlMapping:
    """A mapping; ``key_lines`` has the line of each key."""

    line: int
    values: dict[str, YamlNode] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)


YamlNode = YamlScalar | YamlList | YamlMapping


class YamlError(Exception):
    """The text is not accepted YAML; the fault's ``where`` is its line, 0 for the whole file."""

    def __init__(self, line: int, asked: str, allowed: str, advice: str = "") -> None:
        super().__init__(asked)
        self.fault = Fault(str(line), asked, allowed, advice)


def read_tree(text: str) -> tuple[YamlNode, list[Fault]]:
    """Parse a YAML document to a tree, and return it with faults for duplicate keys.

    The first of duplicate keys is in the tree; ``where`` of a fault is the line. Raises YamlError
    for invalid YAML, several documents, and unsupported features: anchors, aliases, tags, keys that
    are not text, and deep nesting.

    Examples
    --------
    >>> read_tree("port: 8787")[0].values["port"]
    YamlScalar(line=1, text='8787', plain=True)
    """
    try:
        return _TreeBuilder().build(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 0 if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", "") or "unreadable"
        if "nesting depth" in str(problem):  # the C scanner reads ahead of the tree
            raise _too_deep(line) from None
        allowed = "YAML: indentation with spaces, a space after each colon, closed quotes"
        raise YamlError(line, str(problem), allowed) from None


def _too_deep(line: int) -> YamlError:
    asked = f"more than {MAX_DEPTH} nested lists and mappings"
    return YamlError(line, asked, f"at most {MAX_DEPTH}")


class _TreeBuilder:
    """Build a tree from parser events; open lists and mappings are on a stack."""

    def __init__(self) -> None:
        self.open: list[YamlList | YamlMapping] = []
        self.keys: list[str | None] = []
        self.faults: list[Fault] = []
        self.root: YamlNode | None = None

    def build(self, events: Iterator[Any]) -> tuple[YamlNode, list[Fault]]:
        for event in events:
            self._add_event(event)
        return self.root or YamlScalar(1, "", True), self.faults

    def _add_event(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent):
            self._refuse(event, line)
        if isinstance(event, yaml.ScalarEvent):
            self._add_node(YamlScalar(line, event.value, not event.style))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open_node(YamlList(line))
        elif isinstance(event, yaml.MappingStartEvent):
            self._open_node(YamlMapping(line))
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
            self.keys.pop()
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise YamlError(line, "a second document", "one document in a file")

    def _refuse(self, event: Any, line: int) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            asked = f"the anchor or alias {format_value(event.anchor)}"
            raise YamlError(
                line, asked, "no anchors or aliases", "write the value out; quote * and &"
            )
        if getattr(event, "tag", None) is not None:
            asked, advice = f"the tag {format_value(event.tag)}", "quote a value that begins with !"
            raise YamlError(line, asked, "no tags", advice)

    def _open_node(self, node: YamlList | YamlMapping) -> None:
        if len(self.open) == MAX_DEPTH:
            raise _too_deep(node.line)
        self._add_node(node)
        self.open.append(node)
        self.keys.append(None)

    def _add_node(self, node: YamlNode) -> None:
        if not self.open:
            self.root = node
            return
        parent, key = self.open[-1], self.keys[-1]
        if isinstance(parent, YamlList):
            parent.items.append(node)
        elif key is None:
            if not isinstance(node, YamlScalar):
                raise YamlError(node.line, "a list or mapping as a key", "text as keys")
            self.keys[-1] = node.text
            # The value of a duplicate key is parsed and dropped.
            if node.text in parent.key_lines:
                line = parent.key_lines[node.text]
                asked = f"{format_value(node.text)} repeated, first in line {line}"
                self.faults.append(Fault(str(node.line), asked, "each key once"))
            else:
                parent.key_lines[node.text] = node.line
        else:
            parent.values.setdefault(key, node)
            self.keys[-1] = None


def to_python(node: YamlNode, *, text: bool) -> Any:
    """Convert a node to a Python value.

    If ``text``, all scalars are text; else unquoted numbers, ``true`` and ``false`` are converted.
    ``null`` and empty values are None.

    Examples
    --------
    >>> tree, _ = read_tree("[no, 1:30, 010, 8, 2.5, true, null]")
    >>> to_python(tree, text=True)
    ['no', '1:30', '010', '8', '2.5', 'true', None]
    >>> to_python(tree, text=False)
    ['no', '1:30', '010', 8, 2.5, True, None]
    """
    if isinstance(node, YamlList):
        return [to_python(item, text=text) for item in node.items]
    if isinstance(node, YamlMapping):
        return {key: to_python(value, text=text) for key, value in node.values.items()}
    return _scalar_to_python(node, text)


def _scalar_to_python(node: YamlScalar, text: bool) -> object:
    lowered = node.text.lower()
    if not node.plain:
        return node.text
    if lowered in _CONSTANTS and (not text or _CONSTANTS[lowered] is None):
        return _CONSTANTS[lowered]
    if text:
        return node.text
    if _WHOLE.fullmatch(node.text) and len(node.text) <= _MAX_DIGITS:
        return int(node.text)
    return float(node.text) if _DECIMAL.fullmatch(node.text) else node.text
