"""Schedules in the crontab of this user, with the last run of each."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.errors import RequestError
from hyperplane.core.html_output import make_chip
from hyperplane.jobs import schedules
from hyperplane.jobs.step_graph import find_state_style
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.ui.elements import (
    make_alert,
    make_note,
    make_page_link,
    make_path,
    make_table,
    make_time,
)
from hyperplane.ui.job_store import open_job_store
from hyperplane.ui.view import PageRequest, View

_TITLES = ("schedule", "minute hour day month weekday", "last run", "submitted", "status")
#: Fields of a line of crontab before the command.
_FIELDS = 5


def list_schedules(request: PageRequest) -> View:
    """Return the installed schedules."""
    del request
    try:
        lines = schedules.read_installed()
    except RequestError as error:
        return View("Schedules", (make_alert("They cannot be read:", error.faults),))
    store = open_job_store()
    rows = ([*_describe(name, line, store)] for name, line in lines.items())
    table = make_table("Schedules in the crontab of this user", _TITLES, rows)
    advice = make_note("hyperplane job schedule FILE --cron '0 6 * * *' --install adds one.")
    return View("Schedules", (table, advice))


def _describe(name: str, line: str, store: JobStore) -> Iterator[str]:
    yield make_page_link(make_path("jobs", schedule=name), name)
    yield " ".join(line.split()[:_FIELDS])
    last = next(iter(store.find(schedule=name, limit=1)), None)
    if last is None:
        yield from ("none", "", "")
        return
    yield make_page_link(make_path("jobs", last.id), last.run_name)
    yield make_time(last.submitted)
    yield make_chip(last.status, find_state_style(last.status))
