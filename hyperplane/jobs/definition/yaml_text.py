"""YAML as a tree with line numbers, within limits.

The tree is built from the parser's events: nothing is constructed, so that no tag can name code,
and text stays text: ``no`` is no truth value and ``1:30`` no number of seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hyperplane.errors import Fault
from hyperplane.jobs.definition.wording import format_value

MAX_FILE_BYTES = 2**20
MAX_DEPTH = 32

# The parser in C is about ten times as fast; not every installation has it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
#: A whole number of more digits is not read as one: Python would refuse thousands of them.
_MAX_DIGITS = 30


@dataclass(frozen=True)
class YamlScalar:
    """A value that is text or a number.

    Parameters
    ----------
    line : int
        Line of the file, from 1.
    text : str
        The text, without quotes.
    plain : bool
        Whether it stands without quotes.
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
    """The text is no YAML that is read here; the fault's ``where`` is its line or empty."""

    def __init__(self, line: int, asked: str, allowed: str, advice: str = "") -> None:
        super().__init__(asked)
        self.fault = Fault(str(line), asked, allowed, advice)


def read_tree(text: str) -> tuple[YamlNode, list[Fault]]:
    """The tree of a YAML text.

    Parameters
    ----------
    text : str
        One document.

    Returns
    -------
    tree : Scalar, Items or Pairs
    faults : list of Fault
        Keys given twice; the first is in the tree. ``where`` is the line.

    Raises
    ------
    BadYaml
        When it is no YAML, holds more than one document, or something not read here: anchors,
        aliases, tags, keys that are no text, and lists or mappings nested too deep.

    Examples
    --------
    >>> read_tree("port: 8787")[0].values["port"]
    Scalar(line=1, text='8787', plain=True)
    """
    try:
        return _TreeBuilder().build(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 0 if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", "") or "unreadable"
        allowed = "YAML: spaces to indent, a space after each colon, quotes that are closed"
        raise YamlError(line, str(problem), allowed) from None


class _TreeBuilder:
    """Puts events together; lists and mappings that are still open stand in a stack."""

    def __init__(self) -> None:
        self.open: list[YamlList | YamlMapping] = []
        self.keys: list[str | None] = []
        self.faults: list[Fault] = []
        self.root: YamlNode | None = None

    def build(self, events: Iterator[Any]) -> tuple[YamlNode, list[Fault]]:
        for event in events:
            self._take(event)
        return self.root or YamlScalar(1, "", True), self.faults

    def _take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent):
            self._refuse(event, line)
        if isinstance(event, yaml.ScalarEvent):
            self._place(YamlScalar(line, event.value, not event.style))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._enter(YamlList(line))
        elif isinstance(event, yaml.MappingStartEvent):
            self._enter(YamlMapping(line))
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
            self.keys.pop()
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise YamlError(line, "a second document", "one document in a file")

    def _refuse(self, event: Any, line: int) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            asked = f"the anchor or alias {format_value(event.anchor)}"
            raise YamlError(
                line, asked, "no anchors and aliases", "write the value out; quote * and &"
            )
        if getattr(event, "tag", None) is not None:
            asked, advice = f"the tag {format_value(event.tag)}", "quote a value that begins with !"
            raise YamlError(line, asked, "no tags", advice)

    def _enter(self, node: YamlList | YamlMapping) -> None:
        if len(self.open) == MAX_DEPTH:
            asked = f"more than {MAX_DEPTH} lists and mappings inside each other"
            raise YamlError(node.line, asked, f"at most {MAX_DEPTH}")
        self._place(node)
        self.open.append(node)
        self.keys.append(None)

    def _place(self, node: YamlNode) -> None:
        if not self.open:
            self.root = node
            return
        holder, key = self.open[-1], self.keys[-1]
        if isinstance(holder, YamlList):
            holder.items.append(node)
        elif key is None:
            if not isinstance(node, YamlScalar):
                raise YamlError(node.line, "a list or mapping as a key", "text as keys")
            self.keys[-1] = node.text
            # A key given twice: the later value is read, to no effect.
            if node.text in holder.key_lines:
                asked = (
                    f"{format_value(node.text)} again, first in line {holder.key_lines[node.text]}"
                )
                self.faults.append(Fault(str(node.line), asked, "each key once"))
            else:
                holder.key_lines[node.text] = node.line
        else:
            holder.values.setdefault(key, node)
            self.keys[-1] = None


def to_python(node: YamlNode, *, text: bool) -> Any:
    """The value of a node as Python has it.

    Parameters
    ----------
    node : Scalar, Items or Pairs
        The node.
    text : bool
        Whether scalars are text, whatever they look like; if not, those without quotes that look
        like numbers, ``true`` or ``false`` are that.

    Returns
    -------
    object
        Text, a number, a truth value, None for nothing and for ``null``, or a list or dict.

    Examples
    --------
    >>> tree, _ = read_tree("[no, 1:30, 010, 8, 2.5, true, null]")
    >>> content(tree, text=True)
    ['no', '1:30', '010', '8', '2.5', 'true', None]
    >>> content(tree, text=False)
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
