"""Elements of the page: links, tables, forms and messages that screen readers can announce."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, urlencode

from hyperplane.core.errors import Fault, HyperplaneError
from hyperplane.core.html_output import Markup, escape
from hyperplane.jobs.job_progress import to_plain_line

#: Characters of a cell; the names of jobs and parameters are chosen by programs.
_CELL_LENGTH = 300


def make_path(*names: str, **query: str | Sequence[str]) -> str:
    """Return the path of a page, with quoted names, and the non-empty arguments of its query.

    Examples
    --------
    >>> make_path("clusters", "ray:local", "a b"), make_path("jobs", pipeline="", status=["done"])
    ('/clusters/ray%3Alocal/a%20b', '/jobs?status=done')
    """
    path = "/" + "/".join(quote(name, safe="") for name in names)
    chosen = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(chosen, doseq=True)}" if chosen else path


def make_page_link(path: str, text: str) -> Markup:
    """Return a link to a path of :func:`make_path`."""
    return Markup(f'<a href="{escape(path)}">{escape(shorten(text) or "(no name)")}</a>')


def shorten(text: str) -> str:
    """Return a text as one line of limited length, without control characters."""
    line = to_plain_line(text)
    return line if len(line) <= _CELL_LENGTH else f"{line[:_CELL_LENGTH]}…"


def make_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, in the time zone of this machine; empty for 0."""
    try:
        at = dt.datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):  # a time of no year that has a name
        return f"{seconds:g}"
    if not seconds:
        return ""
    return Markup(f'<time datetime="{at.isoformat()}">{at:%Y-%m-%d %H:%M:%S}</time>')


def make_section(name: str, title: str, *parts: str) -> Markup:
    """Return a part of the page with a heading; its name is unique on the page."""
    content = "".join(map(escape, parts))
    heading = f'<h2 id="{escape(name)}-title">{escape(title)}</h2>'
    return Markup(
        f'<section id="{escape(name)}" aria-labelledby="{escape(name)}-title">'
        f"{heading}{content}</section>"
    )


def make_facts(rows: Iterable[tuple[str, str]]) -> Markup:
    """Return labels and texts as a table of two columns; rows without a text are left out."""
    cells = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{_show(text)}</td></tr>'
        for label, text in rows
        if text
    )
    return Markup(f'<div class="wide"><table class="facts">{cells}</table></div>')


def make_table(
    caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0
) -> Markup:
    """Return a table whose first column names the rows; the last ``numbers`` columns are numbers.

    Without rows it is a sentence that there are none.
    """
    first_number = len(titles) - numbers

    def style(place: int) -> str:
        return ' class="number"' if place >= first_number else ""

    head = "".join(
        f'<th scope="col"{style(place)}>{escape(title)}</th>' for place, title in enumerate(titles)
    )
    body = []
    for name, *cells in rows:
        others = "".join(
            f"<td{style(place)}>{_show(cell)}</td>" for place, cell in enumerate(cells, start=1)
        )
        body.append(f'<tr><th scope="row">{_show(name)}</th>{others}</tr>')
    if not body:
        return Markup(f'<p class="note">{escape(caption)}: none</p>')
    return Markup(
        f'<div class="wide"><table class="list"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _show(cell: str) -> Markup:
    return escape(cell if isinstance(cell, Markup) else shorten(cell))


def make_note(text: str) -> Markup:
    """Return a paragraph that explains what is shown."""
    return Markup(f'<p class="note">{escape(text)}</p>')


def make_alert(text: str, faults: Sequence[Fault] = ()) -> Markup:
    """Return a message about an error, with all faults of a request."""
    items = "".join(f"<li>{escape(str(fault))}</li>" for fault in faults)
    return Markup(
        f'<div class="alert" role="alert"><p>{escape(text)}</p>'
        f"{f'<ul>{items}</ul>' if items else ''}</div>"
    )


def make_error(text: str, error: HyperplaneError) -> Markup:
    """Return a message about an error of the package, with all its faults."""
    faults = list(getattr(error, "faults", ()))
    return make_alert(text if faults else f"{text} {error}", faults)


def make_status(text: str) -> Markup:
    """Return a message about what was done."""
    return Markup(f'<p class="done" role="status">{escape(text)}</p>')


def make_action(path: str, title: str, explanation: str) -> Markup:
    """Return a button that changes something, behind one that shows what it does."""
    return Markup(
        f'<details class="action" id="action"><summary>{escape(title)} …</summary>'
        f'<form method="post" action="{escape(path)}"><p>{escape(explanation)}</p>'
        f'<button type="submit">{escape(title)}</button></form></details>'
    )


def make_field(name: str, label: str, value: str, hint: str = "", wide: bool = False) -> Markup:
    """Return a field of a form for text, with its label and a hint."""
    described = f' aria-describedby="{escape(name)}-hint"' if hint else ""
    shown = f'<span class="note" id="{escape(name)}-hint">{escape(hint)}</span>' if hint else ""
    size = 40 if wide else 14
    return Markup(
        f'<div class="field"><label for="{escape(name)}">{escape(label)}</label>'
        f'<input id="{escape(name)}" name="{escape(name)}" value="{escape(value)}" size="{size}" '
        f'autocomplete="off"{described}/>{shown}</div>'
    )


def make_choice(name: str, label: str, value: str, choices: Mapping[str, str]) -> Markup:
    """Return a field of a form with a choice of values, by their texts."""
    options = "".join(
        f'<option value="{escape(each)}"{" selected=" + chr(34) * 2 if each == value else ""}>'
        f"{escape(text)}</option>"
        for each, text in choices.items()
    )
    return Markup(
        f'<div class="field"><label for="{escape(name)}">{escape(label)}</label>'
        f'<select id="{escape(name)}" name="{escape(name)}">{options}</select></div>'
    )


def make_checks(name: str, legend: str, chosen: Sequence[str], values: Sequence[str]) -> Markup:
    """Return boxes of a form, of which several can be checked."""
    boxes = "".join(
        f'<label class="box"><input type="checkbox" name="{escape(name)}" value="{escape(value)}"'
        f"{' checked=' + chr(34) * 2 if value in chosen else ''}/> {escape(value)}</label>"
        for value in values
    )
    return Markup(f"<fieldset><legend>{escape(legend)}</legend>{boxes}</fieldset>")


def make_form(path: str, button: str, *fields: str) -> Markup:
    """Return a form that opens a page with the values of its fields."""
    content = "".join(map(escape, fields))
    return Markup(
        f'<form method="get" action="{escape(path)}" class="fields">{content}'
        f'<button type="submit">{escape(button)}</button></form>'
    )


def make_log(title: str, text: str, name: str, is_open: bool) -> Markup:
    """Return lines of output that can be scrolled with the keyboard and folded."""
    return Markup(
        f'<details id="{escape(name)}"{" open=" + chr(34) * 2 if is_open else ""}>'
        f"<summary>{escape(title)}</summary>"
        f'<pre id="{escape(name)}-text" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"{escape(text)}</pre></details>"
    )
