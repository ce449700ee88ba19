"""Route for ``/<cluster name>/status``, the documented path of a scheduler's dashboard.

Dask's setting ``distributed.scheduler.http.routes`` names this module.
"""

from __future__ import annotations

from tornado import web


class ClusterPathHandler(web.RequestHandler):
    """Redirect from the documented path, which has the cluster's name in it, to Dask's path."""

    def get(self, cluster: str, page: str) -> None:
        """Redirect to the page without the cluster's name."""
        del cluster
        self.redirect(f"/{page}", permanent=False)


routes: list[tuple[str, type[web.RequestHandler], dict[str, str]]] = [
    (
        r"/([a-z0-9-]+)/(status|tasks|workers|system|profile|graph|groups|info)",
        ClusterPathHandler,
        {},
    )
]
