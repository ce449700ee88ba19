"""The first page: running clusters, and the newest jobs."""

from __future__ import annotations

from hyperplane.core.errors import HyperplaneError
from hyperplane.jobs import job_list
from hyperplane.ui.cluster_views import make_cluster_table
from hyperplane.ui.elements import make_error, make_page_link, make_section
from hyperplane.ui.job_list_view import SECONDS, describe_counts, make_job_table
from hyperplane.ui.view import PageRequest, View

#: Jobs that are shown.
_JOBS = 10


def show_overview(request: PageRequest) -> View:
    """Return the running clusters of this machine, and the newest jobs."""
    del request
    try:
        clusters = make_cluster_table()
    except HyperplaneError as error:
        clusters = make_error("The clusters cannot be listed:", error)
    try:
        found = job_list.list_jobs(limit=_JOBS)
        jobs, state = make_job_table(found, f"The newest {_JOBS} jobs"), describe_counts(found)
    except HyperplaneError as error:
        # Such as a database of another machine that does not answer.
        jobs, state = make_error("The jobs cannot be listed:", error), ""
    return View(
        "Overview",
        (
            make_section("clusters", "Clusters", clusters),
            make_section("jobs", "Newest jobs", jobs, make_page_link("/jobs", "All jobs")),
        ),
        SECONDS,
        state,
    )
