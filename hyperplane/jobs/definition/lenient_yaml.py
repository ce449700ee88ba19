"""Slips of published files: each is read, with a warning that says how to write it."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

from hyperplane.errors import Fault
from hyperplane.jobs.definition.yaml_text import YamlError, YamlNode, read_tree, to_python

# A quote of either side, one of them curly, from where a key or value begins to where it ends.
_BEGIN, _END = r"(?P<before>^[ \t]*|[:\-,\[{][ \t]*)", r"(?=[ \t\r]*(?:$|[,\]}:]|[ \t]#))"
_CURLY = "“”„‟‘’‚‛"
_QUOTED = [
    re.compile(f"{_BEGIN}(?P<open>[{quotes}])(?P<text>[^{quotes}]*)(?P<close>[{quotes}]){_END}")
    for quotes in ('“”„‟"', "‘’‚‛'")
]
#: The indentation of a line of content, marks of lists with it, that holds a tab.
_TABBED = re.compile(r"^(?=[ \-]*\t)(?:[ \t]|-(?=[ \t]))+(?=[^ \t#\r\n])", re.MULTILINE)
#: Spaces that a tab may stand for.
_TAB_WIDTHS = (2, 4, 8)


def read_lenient(text: str) -> tuple[YamlNode, list[Fault], list[tuple[int, str]]]:
    """The tree of a YAML text that may have slips of the text.

    Parameters
    ----------
    text : str
        The text of the file.

    Returns
    -------
    tree : Scalar, Items or Pairs
    faults : list of Fault
        As of :func:`~hyperplane.jobs.definition.yaml_text.read_tree`.
    warnings : list of (int, str)
        The line of each slip, and how to write it.

    Raises
    ------
    BadYaml
        When it cannot be read at all.
    """
    text, warnings = _strip_byte_order_mark(text)
    text, found = _straighten_quotes(text)
    warnings += found
    tab = _TABBED.search(text)
    if tab is None:
        return *read_tree(text), warnings
    line = text.count("\n", 0, tab.start()) + 1
    warnings.append((line, "a tab; indent with spaces, two for each step inwards"))
    return *_read_with_tabs(text, line), warnings


def _strip_byte_order_mark(text: str) -> tuple[str, list[tuple[int, str]]]:
    if not text.startswith("\ufeff"):
        return text, []
    return text[1:], [(1, "a byte order mark; save the file as UTF-8 without it")]


def _straighten_quotes(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Quotes that a word processor bent, straight again; curly ones inside a value stay."""
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
    # Single quotes: a backslash is a backslash there.
    return f"{match['before']}'" + match["text"].replace("'", "''") + "'"


def _read_with_tabs(text: str, line: int) -> tuple[YamlNode, list[Fault]]:
    """The tree of a text indented with tabs, if there is but one way to read it."""
    readings: dict[str, tuple[YamlNode, list[Fault]]] = {}
    for width in _TAB_WIDTHS:
        spaced = _TABBED.sub(partial(_expand_tabs, width), text)
        with suppress(YamlError):
            tree, faults = read_tree(spaced)
            readings.setdefault(repr(to_python(tree, text=True)), (tree, faults))
    if len(readings) != 1:
        why = "it can be read in two ways" if readings else "it cannot be read"
        raise YamlError(line, f"a tab in the indentation, and {why}", "spaces to indent")
    return next(iter(readings.values()))


def _expand_tabs(width: int, match: re.Match[str]) -> str:
    return match[0].expandtabs(width)


def normalize_key(key: str) -> str:
    """A key as it should be written: small letters, underscores.

    Examples
    --------
    >>> normal_key("Notebook output-path")
    'notebook_output_path'
    """
    return re.sub(r"[\s_\-]+", "_", key.strip().lower())
