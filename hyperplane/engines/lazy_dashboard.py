"""The scheduler's dashboard, loaded with the first page that somebody opens.

Dask loads Bokeh and some thirty pages as it starts a scheduler: a quarter of a second in
the user's own process before the first worker can start, whether or not anybody looks. Here the
HTTP server is there from the start, with Dask's health, metrics and JSON routes, and the pages
join it when the first of them is asked for. The address is the same and answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.http.scheduler.info import IndividualPlots
from tornado import web

if TYPE_CHECKING:
    from distributed import Scheduler
    from tornado.httputil import HTTPServerRequest


class LazyDashboard(web.Application):
    """Stands among the applications of a scheduler's HTTP server until its pages are needed.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Started without a dashboard, but with a dashboard address.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.scheduler = scheduler
        scheduler.http_application.add_application(self)

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Load the pages, leave, and let them answer. Tornado asks this for unknown paths."""
        self.load()
        return self.scheduler.http_application.find_handler(request, **kwargs)

    def load(self) -> None:
        """Replace this application with Dask's own pages."""
        from distributed.dashboard.scheduler import connect

        application = self.scheduler.http_application
        connect(application, self.scheduler.http_server, self.scheduler, prefix="")
        application.applications.remove(self)


class PlotList(IndividualPlots):
    """The list of single plots, which Dask makes of the pages that are loaded."""

    def get(self) -> None:
        """Load the pages first; the dashboard of JupyterLab asks for this list before any page."""
        for application in list(self.server.http_application.applications):
            if isinstance(application, LazyDashboard):
                application.load()
        super().get()


routes: list[tuple[str, type[web.RequestHandler], dict[str, Any]]] = [
    (r"individual-plots.json", PlotList, {})
]
