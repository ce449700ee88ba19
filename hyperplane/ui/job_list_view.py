"""Jobs: a list with the filters of ``hyperplane job list``, in pages, and durations of runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from hyperplane.core.errors import RequestError
from hyperplane.core.html_output import Markup, make_chip
from hyperplane.jobs import job_list
from hyperplane.jobs.job_list import STATUSES
from hyperplane.jobs.job_names import find_given_name
from hyperplane.jobs.job_progress import describe_duration
from hyperplane.jobs.step_graph import find_state_style
from hyperplane.jobs.store.job_records import IN_PROGRESS, OPEN, Job
from hyperplane.ui.duration_chart import draw_durations
from hyperplane.ui.elements import (
    make_alert,
    make_checks,
    make_field,
    make_form,
    make_page_link,
    make_path,
    make_section,
    make_table,
    make_time,
)
from hyperplane.ui.job_store import StoreNotOpened, open_job_store
from hyperplane.ui.paging import Paging
from hyperplane.ui.view import PageRequest, View

#: Seconds between updates of a list.
SECONDS = 5.0
#: Jobs of a page.
PAGE_SIZE = 100
_FILTERS = ("pipeline", "schedule", "since", "text")
_TITLES = ("run", "id", "name", "pipeline", "status", "submitted", "runner", "reason", "took")


def list_jobs(request: PageRequest) -> View:
    """Return the jobs of a page that match the filters of its query."""
    query = request.query
    statuses = query.getlist("status")
    filters = {name: query.get(name, "").strip() for name in _FILTERS}
    paging = Paging.read(query.get("page", ""), PAGE_SIZE)
    form = make_form(
        "/jobs",
        "Show",
        make_checks("status", "Status", statuses, STATUSES),
        make_field("pipeline", "Pipeline", filters["pipeline"]),
        make_field("schedule", "Schedule", filters["schedule"]),
        make_field("since", "Submitted since", filters["since"], "2026-11-27 or 7 days"),
        make_field("text", "Text", filters["text"], "in names, the reason or parameters"),
    )
    given = {name: value for name, value in filters.items() if value}
    try:
        open_job_store()
    except StoreNotOpened as error:
        return View("Jobs", (form, make_alert(str(error), error.faults)), code=503)
    try:
        found = job_list.list_jobs(statuses or None, limit=paging.limit, **given)
    except RequestError as error:
        alert = make_alert("The filters have faults:", error.faults)
        return View("Jobs", (form, alert), code=400)
    jobs = paging.select(found)
    links = paging.make_links(
        len(found), lambda page: make_path("jobs", status=statuses, page=page, **given)
    )
    chart = Markup("")
    if filters["pipeline"] or filters["schedule"]:
        chart = draw_durations(jobs)
    durations = make_section("durations", "Durations", chart) if chart else ""
    table = make_job_table(jobs, paging.describe("jobs", len(jobs)))
    parts = (form, durations, make_section("jobs", "Runs", table, links))
    # Long searches, and lists of jobs that have ended long ago, are not repeated.
    is_cheap = paging.number == 1 and not filters["text"]
    return View("Jobs", parts, SECONDS if is_cheap else 0.0, describe_counts(jobs))


def make_job_table(jobs: Sequence[Job], caption: str) -> Markup:
    """Return jobs as a table."""
    now = time.time()
    return make_table(caption, _TITLES, ([*_describe(job, now)] for job in jobs), numbers=1)


def _describe(job: Job, now: float) -> Iterator[str]:
    pipeline = job.pipeline_name
    yield make_page_link(make_path("jobs", job.id), job.run_name)
    yield job.id[:8]
    yield find_given_name(job)
    yield make_page_link(make_path("jobs", pipeline=pipeline), pipeline) if pipeline else ""
    yield make_chip(job.status, find_state_style(job.status))
    yield make_time(job.submitted)
    yield job.runner
    yield job.reason
    yield describe_duration(job, now)


def describe_counts(jobs: Sequence[Job]) -> str:
    """Return how many jobs of a list run or wait, and how many have failed."""
    counts = Counter(job.status for job in jobs)
    waiting = sum(counts[status] for status in OPEN) - counts[IN_PROGRESS]
    ended = len(jobs) - counts[IN_PROGRESS] - waiting
    return f"{counts[IN_PROGRESS]} in progress, {waiting} pending, {ended} ended"
