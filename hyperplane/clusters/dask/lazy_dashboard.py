"""Dashboard of a scheduler that is loaded with the first request for one of its pages.

Dask loads Bokeh and some thirty pages when it starts a scheduler, which takes a quarter of a second
in the user's process before the first worker can start. Here the HTTP server starts with Dask's
health, metrics and JSON routes only; the pages are added at the first request for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.http.scheduler.info import IndividualPlots
from tornado import web

if TYPE_CHECKING:
    from distributed import Scheduler
    from tornado.httputil import HTTPServerRequest


class LazyDashboard(web.Application):
    """Application in a scheduler's HTTP server that replaces itself with Dask's pages.

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
        """Load the pages and let them answer; Tornado calls this for paths without a route."""
        self.load()
        return self.scheduler.http_application.find_handler(request, **kwargs)

    def load(self) -> None:
        """Replace this application with Dask's own pages."""
        from distributed.dashboard.scheduler import connect

        application = self.scheduler.http_application
        connect(application, self.scheduler.http_server, self.scheduler, prefix="")
        application.applications.remove(self)


class PlotList(IndividualPlots):
    """The list of single plots, which Dask derives from the loaded pages."""

    def get(self) -> None:
        """Load the pages first: JupyterLab's extension requests this list before any page."""
        for application in list(self.server.http_application.applications):
            if isinstance(application, LazyDashboard):
                application.load()
        super().get()


routes: list[tuple[str, type[web.RequestHandler], dict[str, Any]]] = [
    (r"individual-plots.json", PlotList, {})
]
