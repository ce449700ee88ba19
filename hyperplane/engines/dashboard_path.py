"""``/<cluster name>/status`` on a scheduler's dashboard, the documented path of it.

A module of routes, as Dask's setting ``distributed.scheduler.http.routes`` names them.
"""

from __future__ import annotations

from tornado import web


class ClusterPathHandler(web.RequestHandler):
    """Send the documented path, which has the cluster's name in it, to Dask's own."""

    def get(self, cluster: str, page: str) -> None:
        """Answer with a redirect to the page without the name."""
        del cluster
        self.redirect(f"/{page}", permanent=False)


routes: list[tuple[str, type[web.RequestHandler], dict[str, str]]] = [
    (
        r"/([a-z0-9-]+)/(status|tasks|workers|system|profile|graph|groups|info)",
        ClusterPathHandler,
        {},
    )
]
