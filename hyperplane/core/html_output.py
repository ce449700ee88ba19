"""Pieces of HTML for notebooks: escaped text, tables, bars and links, for light and dark themes.

An output loads nothing and has no script. It is well-formed XML, and all facts are in the text of
its elements: viewers that remove styles and pictures, such as an untrusted notebook, show them.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

#: What a page must not contain: characters that XML forbids, and those that reverse the direction
#: of the text after them, so that a name could look like another one.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
#: An element's begin or end: text in HTML has no such characters, as they are escaped.
_TAG = re.compile("<[^>]*>")
#: Elements around an output whose page has its own choice of theme: JupyterLab, VS Code, Sphinx.
_DARK = ':is([data-jp-theme-light="false"],[data-theme="dark"],.vscode-dark)'
_LIGHT = ':is([data-jp-theme-light="true"],[data-theme="light"],.vscode-light)'


class Markup(str):
    """HTML that is inserted as it is; any other text is escaped."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Return text as HTML; a :class:`Markup` is returned as it is.

    Examples
    --------
    >>> escape("a < b")
    'a &lt; b'
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(_FORBIDDEN.sub("\ufffd", str(text).replace("\r\n", "\n"))))


def to_text(part: str) -> str:
    """Return the text of a piece of HTML; any other text as it is.

    Examples
    --------
    >>> to_text(Markup('<i class="a">1 &lt; 2</i>')), to_text("<b>")
    ('1 < 2', '<b>')
    """
    return html.unescape(_TAG.sub("", part)) if isinstance(part, Markup) else part


def make_theme_style(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Return style rules for both themes: the choice of the page, else that of the browser.

    ``light`` and ``dark`` map selectors to declarations.
    """
    rules = [f"{selector}{{{text}}}" for selector, text in light.items()]
    rules.append("@media(prefers-color-scheme:dark){")
    rules += [f"{selector}{{{text}}}" for selector, text in dark.items()]
    rules.append("}")
    for place, chosen in ((_LIGHT, light), (_DARK, dark)):
        rules += [f"{place} {selector}{{{text}}}" for selector, text in chosen.items()]
    return "".join(rules)


#: Style of an output, in an element of the class ``hp-out``.
STYLE = make_theme_style(
    {
        ".hp-out": "--hp-good:#1a7f37;--hp-run:#2a6f97;--hp-bad:#c1121f;--hp-warn:#8a5100;"
        "--hp-idle:#5f6b76"
    },
    {
        ".hp-out": "--hp-good:#5ac46e;--hp-run:#6bb5e0;--hp-bad:#ff7b7b;--hp-warn:#f0b354;"
        "--hp-idle:#a3adb6"
    },
) + (
    ".hp-out{color:var(--jp-ui-font-color1,inherit);max-width:80em;overflow-x:auto}"
    ".hp-good{--hp-c:var(--hp-good)}.hp-run{--hp-c:var(--hp-run)}.hp-bad{--hp-c:var(--hp-bad)}"
    ".hp-warn{--hp-c:var(--hp-warn)}.hp-idle{--hp-c:var(--hp-idle)}"
    # Twice the class: more specific than the tables of notebooks, which are aligned to the right.
    ".hp-out.hp-out table{border-collapse:collapse;margin:4px 0}"
    ".hp-out.hp-out :is(th,td){text-align:left;vertical-align:top;padding:2px 10px 2px 0;"
    "white-space:pre-wrap;overflow-wrap:anywhere;max-width:52em;background:none}"
    ".hp-out.hp-out th{white-space:nowrap}"
    ".hp-out.hp-out thead~tbody td{white-space:pre}"
    ".hp-out.hp-out thead~tbody td.hp-long{white-space:pre-wrap;overflow-wrap:break-word}"
    ".hp-out a{color:var(--jp-content-link-color,var(--hp-run))}"
    ".hp-chip{color:var(--hp-c);font-weight:600;white-space:nowrap}"
    ".hp-bar{display:inline-block;position:relative;width:14em;height:.75em;margin-right:.6em;"
    "background:rgba(128,128,128,.25);border-radius:2px;vertical-align:middle}"
    ".hp-bar span{position:absolute;top:0;height:100%;background:var(--hp-c);border-radius:2px}"
    ".hp-out .hp-bar b{position:absolute;top:-3px;bottom:-3px;border-left:2px solid var(--hp-bad)}"
    ".hp-out.hp-out pre{font-family:var(--jp-code-font-family,monospace),monospace;line-height:1.3;"
    "max-height:16em;overflow:auto;margin:2px 0 8px;padding:6px 8px;"
    "white-space:pre-wrap;overflow-wrap:anywhere;background:rgba(128,128,128,.12);color:inherit}"
    ".hp-scroll{overflow:auto;max-height:30em}"
    ".hp-picture{max-width:100%;max-height:24em;background:#fff}"
)
#: Most characters of a cell that is not wrapped.
_SHORT = 32
#: Label of a row -> class of its color.
_LABEL_STYLES = {
    "warning": "hp-warn", "refused": "hp-bad", "fault": "hp-bad", "missing": "hp-warn",
    "reason": "hp-bad", "unchecked": "hp-idle",
}  # fmt: skip


def make_output(*parts: str) -> str:
    """Return the HTML of an output: its style and its parts."""
    return f'<div class="hp-out"><style>{STYLE}</style>{"".join(map(escape, parts))}</div>'


def make_rows(rows: Iterable[tuple[str, str]]) -> Markup:
    """Return rows of a label and a text as a table; the label says whether it is a warning."""
    cells = []
    for label, text in rows:
        style = _LABEL_STYLES.get(label)
        shown = make_chip(label, style) if style else escape(label)
        cells.append(f"<tr><th>{shown}</th><td>{escape(text)}</td></tr>")
    return Markup(f"<table>{''.join(cells)}</table>")


def make_table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> Markup:
    """Return a table with titles of its columns; only long texts are wrapped."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_make_cell, cells))}</tr>" for cells in rows)
    return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _make_cell(cell: str) -> str:
    is_long = "<div" in cell if isinstance(cell, Markup) else len(cell) > _SHORT
    style = ' class="hp-long"' if is_long else ""
    return f"<td{style}>{escape(cell)}</td>"


def make_chip(text: str, style: str) -> Markup:
    """Return a text in the color of a style, such as ``hp-bad``."""
    return Markup(f'<span class="hp-chip {style}">{escape(text)}</span>')


def make_bar(
    share: float, text: str, style: str = "hp-run", *, start: float = 0.0, mark: float | None = None
) -> Markup:
    """Return a bar from ``start`` to ``share`` of its width with a text that has the figures.

    ``mark`` is the position of a line across the bar, such as a limit.
    """
    first, last = (min(1.0, max(0.0, each)) for each in (start, share))
    line = "" if mark is None else f'<b style="left:{100 * min(1.0, max(0.0, mark)):.1f}%"></b>'
    width = max(0.0, last - first)
    return Markup(
        f'<span class="hp-bar {style}"><span style="left:{100 * first:.1f}%;'
        f'width:{100 * width:.1f}%"></span>{line}</span>{escape(text)}'
    )


def make_link(url: str, text: str = "") -> Markup:
    """Return a link to an address of the web; any other address is text only.

    Examples
    --------
    >>> make_link("javascript:alert(1)")
    'javascript:alert(1)'
    """
    try:
        is_web = urlsplit(url).scheme in ("http", "https")
    except ValueError:
        is_web = False
    if not is_web or _FORBIDDEN.search(url):
        return escape(text or url)
    target = 'target="_blank" rel="noopener noreferrer"'
    return Markup(f'<a href="{escape(url)}" {target}>{escape(text or url)}</a>')


def make_file_link(path: str | os.PathLike[str], text: str = "") -> Markup:
    """Return a link to a file: relative to this process's folder if it is there, else ``file:``.

    Jupyter opens relative links of the notebook's folder; browsers open ``file:`` links only from a
    saved page, so the text should have the path.

    Examples
    --------
    >>> make_file_link("/srv/a b.log")
    '<a href="file:///srv/a%20b.log" target="_blank">/srv/a b.log</a>'
    """
    name = os.fspath(path)
    try:
        folder = f"{Path.cwd()}/"
    except OSError:  # it was removed
        folder = ""
    # Quoted, so that no name is taken for a scheme: "javascript:" becomes "javascript%3A".
    if folder and name.startswith(folder):
        address = quote(os.fsencode(name.removeprefix(folder).lstrip("/")))
    elif name.startswith("/"):
        address = f"file://{quote(os.fsencode(name))}"
    else:
        return escape(text or name)
    return Markup(f'<a href="{address}" target="_blank">{escape(text or name)}</a>')
