"""Records of clusters and steps that have ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from hyperplane.core.errors import RequestError
from hyperplane.core.html_output import Markup
from hyperplane.core.units import format_duration, plural
from hyperplane.history import RunRecord, read_run
from hyperplane.history.selection import RunSelection
from hyperplane.history.store import iterate_runs
from hyperplane.reports import render_report as render_run_report
from hyperplane.reports.run_report import show_record as show_parts
from hyperplane.ui.elements import (
    make_alert,
    make_field,
    make_form,
    make_page_link,
    make_path,
    make_table,
    make_time,
)
from hyperplane.ui.paging import Paging
from hyperplane.ui.view import PageNotFound, PageRequest, View

PAGE_SIZE = 50
#: Most damaged files that are named.
_ALERTS = 5
_FILTERS = ("text", "since")
_TITLES = ("record", "run", "engine", "started", "job", "ended", "peak", "took")


def list_records(request: PageRequest) -> View:
    """Return the records of a page that match the filters of its query."""
    filters = {name: request.query.get(name, "").strip() for name in _FILTERS}
    paging = Paging.read(request.query.get("page", ""), PAGE_SIZE)
    form = make_form(
        "/records",
        "Show",
        make_field("text", "Text", filters["text"], "in names, the pool or the reason"),
        make_field("since", "Started since", filters["since"], "2026-11-27 or 7 days"),
    )
    given = {name: value for name, value in filters.items() if value}
    try:
        selection = RunSelection.parse(
            None, given.get("text"), given.get("since"), None, paging.limit
        )
    except RequestError as error:
        alert = make_alert("The filters have faults:", error.faults)
        return View("Records", (form, alert), code=400)
    damaged: list[Path] = []
    chosen = filter(selection.contains, iterate_runs(damaged.append))
    found = list(itertools.islice(chosen, paging.limit))
    records = paging.select(found)
    links = paging.make_links(len(found), lambda page: make_path("records", page=page, **given))
    caption = paging.describe("records", len(records))
    table = make_table(caption, _TITLES, ([*_describe(each)] for each in records), numbers=2)
    return View("Records of clusters", (form, *_name_damaged(damaged), table, links))


def _name_damaged(files: Sequence[Path]) -> Iterator[Markup]:
    for file in files[:_ALERTS]:
        yield make_alert(f"{file} is no record of a run; delete the file")
    if len(files) > _ALERTS:
        more = plural(len(files) - _ALERTS, "more file")
        yield make_alert(f"and {more} of this folder that are no records")


def _describe(record: RunRecord) -> Iterator[str]:
    yield make_page_link(make_path("records", record.name), record.name)
    yield record.label
    yield record.plan.engine
    yield make_time(record.started)
    yield make_page_link(make_path("jobs", record.job), record.job[:8]) if record.job else ""
    yield record.exit_reason
    share = record.peak_share
    yield "" if share is None else f"{share:.0%}"
    yield format_duration(record.seconds)


def show_record(request: PageRequest) -> View:
    """Return a record with its report."""
    record = _find(request)
    path = make_path("records", record.name, "report")
    link = make_page_link(path, "The same as one page to save")
    parts = tuple(map(Markup, show_parts(record)))
    return View(f"Run of {record.label or record.name}", (link, *parts))


def _find(request: PageRequest) -> RunRecord:
    try:
        return read_run(request.names["name"])
    except RequestError as error:
        raise PageNotFound("; ".join(map(str, error.faults))) from error


def render_report(request: PageRequest) -> str:
    """Return the report of a record as one page."""
    return render_run_report(_find(request))
