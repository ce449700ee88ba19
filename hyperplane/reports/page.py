"""Parts of an HTML page: escaped text, tables and sections, without scripts or other files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hyperplane.core import html_output

#: Control sequences of terminals, such as those of colors.
_SEQUENCE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
#: Longest text of a name; names of tasks are chosen by programs.
_LONGEST = 300
#: The page loads nothing, whatever it contains; its pictures are part of it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
#: Style sheet of all pages.
STYLE = """
:root{color-scheme:light dark;--text:#1b1f24;--muted:#5b6470;--page:#fff;--line:#d5dae0;
--data:#2a6f97;--limit:#c1121f;--spill:#9a5b00;--pause:#d1495b;--disk:#8a6d1d;
--good:#1a7f37;--idle:#5f6b76}
@media(prefers-color-scheme:dark){:root{--text:#e6e9ed;--muted:#9aa4b0;--page:#15181c;
--line:#3a414a;--data:#6bb5e0;--limit:#ff6b6b;--spill:#f0b354;--pause:#ff8fa3;--disk:#d9bb5c;
--good:#5ac46e;--idle:#a3adb6}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--text);background:var(--page);max-width:60rem;
margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}img.hp-picture{max-width:100%;background:#fff}
p.note{color:var(--muted);margin:.3rem 0}
div.wide,pre{overflow-x:auto}
pre{font-size:.85rem;border-left:3px solid var(--line);padding-left:.7rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}
td.number,th.number{text-align:right;white-space:nowrap}
svg:not(.hp-steps){display:block;width:100%;height:auto;font:11px system-ui,sans-serif}
.hp-scroll{overflow:auto;max-height:40rem}.hp-good{--hp-c:var(--good)}.hp-run{--hp-c:var(--data)}
.hp-bad{--hp-c:var(--limit)}.hp-warn{--hp-c:var(--spill)}.hp-idle{--hp-c:var(--idle)}
svg text{fill:var(--text)}
.data{fill:var(--data);fill-opacity:.35;stroke:var(--data)}
.bar{fill:var(--data)}.failed{fill:var(--limit)}
.limit{stroke:var(--limit);stroke-width:1.5;fill:none}
.spill{stroke:var(--spill);stroke-width:1.5;stroke-dasharray:5 3;fill:none}
.pause{stroke:var(--pause);stroke-width:1.5;stroke-dasharray:2 3;fill:none}
.paused{fill:var(--pause);fill-opacity:.35}.disk{fill:var(--disk)}
.killed{stroke:var(--limit);stroke-width:2.5;fill:none}
.restart{stroke:var(--text);stroke-width:1.5;fill:none}
.axis{stroke:var(--line);fill:none}
@media print{body{max-width:none}h2{break-after:avoid}}
"""


def escape(text: str) -> str:
    """Return a text for any place of the page, also for the value of an attribute.

    Examples
    --------
    >>> escape("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return html_output.escape(text)


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return labels and texts as a table of two columns."""
    cells = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{escape(text)}</td></tr>'
        for label, text in rows
    )
    return f'<div class="wide"><table>{cells}</table></div>' if cells else ""


def grid(titles: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a table with titles; the first ``texts`` columns are texts, the others numbers."""

    def cell(kind: str, place: int, text: str) -> str:
        style = "" if place < texts else ' class="number"'
        return f"<{kind}{style}>{escape(text)}</{kind}>"

    head = "".join(cell("th", place, title) for place, title in enumerate(titles))
    body = "".join(
        f"<tr>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>"
        for row in rows
    )
    if not body:
        return ""
    content = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table>{content}</table></div>'


def preformatted(text: str) -> str:
    """Return lines of output as they are, without control sequences of terminals."""
    return f"<pre>{html_output.escape(_SEQUENCE.sub('', text))}</pre>"


def note(text: str) -> str:
    """Return a paragraph that explains what is shown."""
    return f'<p class="note">{escape(text)}</p>'


def section(title: str, *parts: str) -> str:
    """Return a part of the page with a heading; empty if it has no content."""
    content = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def page(title: str, language: str, *parts: str) -> str:
    """Return a whole page, which is well-formed XML, too."""
    return (
        f'<!DOCTYPE html>\n<html lang="{escape(language)}"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )
