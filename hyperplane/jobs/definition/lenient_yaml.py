"""Accept common mistakes in YAML files, with a warning that says how to correct each."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.yaml_tree import YamlError, YamlNode, read_tree, to_python

# What precedes and follows a quoted key or value; quotes within a value do not match.
_BEGIN, _END = r"(?P<before>^[ \t]*|[:\-,\[{][ \t]*)", r"(?=[ \t\r]*(?:$|[,\]}:]|[ \t]#))"
_CURLY = "“”„‟‘’‚‛"
_QUOTED = [
    re.compile(f"{_BEGIN}(?P<open>[{quotes}])(?P<text>[^{quotes}]*)(?P<close>[{quotes}]){_END}")
    for quotes in ('“”„‟"', "‘’‚‛'")
]
#: Indentation with a tab, including list marks, of a line with content.
_TABBED = re.compile(r"^(?=[ \-]*\t)(?:[ \t]|-(?=[ \t]))+(?=[^ \t#\r\n])", re.MULTILINE)
#: Numbers of spaces that a tab may represent.
_TAB_WIDTHS = (2, 4, 8)


def read_lenient(text: str) -> tuple[YamlNode, list[Fault], list[tuple[int, str]]]:
    """Parse YAML text that may contain common mistakes.

    Returns the tree, the faults of :func:`~hyperplane.jobs.definition.yaml_tree.read_tree`, and
    warnings as ``(line, text)``. Raises YamlError if the text cannot be parsed.
    """
    text, warnings = _strip_byte_order_mark(text)
    text, quote_warnings = _straighten_quotes(text)
    warnings += quote_warnings
    tab = _TABBED.search(text)
    if tab is None:
        return *read_tree(text), warnings
    line = text.count("\n", 0, tab.start()) + 1
    warnings.append((line, "a tab; indent with spaces, two for each level"))
    return *_read_with_tabs(text, line), warnings


def _strip_byte_order_mark(text: str) -> tuple[str, list[tuple[int, str]]]:
    if not text.startswith("\ufeff"):
        return text, []
    return text[1:], [(1, "a byte order mark; save the file as UTF-8 without it")]


def _straighten_quotes(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Replace curly quotes around values by straight ones; those inside values are kept."""
    warnings = []
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if not any(quote in line for quote in _CURLY):
            continue
        for form in _QUOTED:
            line = form.sub(_straighten_match, line)
        if line != lines[index]:
            lines[index] = line
            warnings.append((index + 1, "curly quotes; write straight ones, \" or '"))
    return "\n".join(lines), warnings


def _straighten_match(match: re.Match[str]) -> str:
    if match["open"] not in _CURLY and match["close"] not in _CURLY:
        return match[0]
    # In single quotes a backslash is literal.
    return f"{match['before']}'" + match["text"].replace("'", "''") + "'"


def _read_with_tabs(text: str, line: int) -> tuple[YamlNode, list[Fault]]:
    """Parse text indented with tabs if all tab widths give the same result."""
    readings: dict[str, tuple[YamlNode, list[Fault]]] = {}
    for width in _TAB_WIDTHS:
        spaced = _TABBED.sub(partial(_expand_tabs, width), text)
        with suppress(YamlError):
            tree, faults = read_tree(spaced)
            readings.setdefault(repr(to_python(tree, text=True)), (tree, faults))
    if len(readings) != 1:
        why = "it is ambiguous" if readings else "it cannot be parsed"
        raise YamlError(line, f"a tab in the indentation, and {why}", "indentation with spaces")
    return next(iter(readings.values()))


def _expand_tabs(width: int, match: re.Match[str]) -> str:
    return match[0].expandtabs(width)


def normalize_key(key: str) -> str:
    """Return a key in lower case with underscores.

    Examples
    --------
    >>> normalize_key("Notebook output-path")
    'notebook_output_path'
    """
    return re.sub(r"[\s_\-]+", "_", key.strip().lower())
