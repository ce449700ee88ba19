"""The first page: running clusters, and the newest jobs."""

from __future__ import annotations

from hyperplane.jobs import job_list
from hyperplane.ui.cluster_views import make_cluster_table
from hyperplane.ui.elements import make_page_link, make_section
from hyperplane.ui.job_list_view import SECONDS, describe_counts, make_job_table
from hyperplane.ui.view import PageRequest, View

#: Jobs that are shown.
_JOBS = 10


def show_overview(request: PageRequest) -> View:
    """Return the running clusters of this machine, and the newest jobs."""
    del request
    jobs = job_list.list_jobs(limit=_JOBS)
    return View(
        "Overview",
        (
            make_section("clusters", "Clusters", make_cluster_table()),
            make_section(
                "jobs",
                "Newest jobs",
                make_job_table(jobs, f"The newest {_JOBS} jobs"),
                make_page_link("/jobs", "All jobs"),
            ),
        ),
        SECONDS,
        describe_counts(jobs),
    )
