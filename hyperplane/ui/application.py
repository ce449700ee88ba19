"""The ASGI application: paths and their views, files, and answers to errors."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hyperplane.core import html_output
from hyperplane.core.errors import HyperplaneError, JobError, RequestError
from hyperplane.reports import page
from hyperplane.ui import (
    artifact_view,
    cluster_views,
    job_list_view,
    job_view,
    overview,
    record_views,
    schedule_view,
    sizing_views,
)
from hyperplane.ui.elements import make_alert, make_note
from hyperplane.ui.view import PageNotFound, PageRequest, View

#: Header of requests of ``live.js``, whose value is the digest of the content that it shows.
CONTENT_HEADER = "x-hyperplane-content"
_READ_ONLY = "This page is read-only. Start it with hyperplane ui --allow-actions to change that."
#: Views by their paths.
_VIEWS: Mapping[str, Callable[[PageRequest], View]] = {
    "/": overview.show_overview,
    "/clusters": cluster_views.list_clusters,
    "/other-clusters": cluster_views.list_other_clusters,
    "/other-clusters/{engine}/{name}": cluster_views.show_other_cluster,
    "/clusters/{engine}/{name}": cluster_views.show_cluster,
    "/jobs": job_list_view.list_jobs,
    "/jobs/{id}": job_view.show_job,
    "/jobs/{id}/artifacts": artifact_view.list_artifacts,
    "/jobs/{id}/artifacts/{key}": artifact_view.show_artifact,
    "/records": record_views.list_records,
    "/records/{name}": record_views.show_record,
    "/schedules": schedule_view.list_schedules,
    "/pools": sizing_views.list_pools,
    "/size": sizing_views.size_cluster,
}
#: Reports as one file by their paths.
_REPORTS: Mapping[str, Callable[[PageRequest], str]] = {
    "/jobs/{id}/report": job_view.render_report,
    "/records/{name}/report": record_views.render_report,
}
#: Files of jobs by their paths.
_FILES: Mapping[str, Callable[[PageRequest], artifact_view.SentFile]] = {
    "/jobs/{id}/artifacts/{key}/picture": artifact_view.send_picture,
    "/jobs/{id}/artifacts/{key}/download": artifact_view.send_artifact,
}
#: A file is never a page: a browser that opens it runs nothing, and has no access to this server.
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
#: Actions by their paths; they return the path of the page that shows the result.
_ACTIONS: Mapping[str, Callable[[PageRequest], str]] = {
    "/clusters/{engine}/{name}/stop": cluster_views.stop_cluster,
    "/other-clusters/{engine}/{name}/stop": cluster_views.stop_other_cluster,
    "/jobs/{id}/cancel": job_view.cancel_job,
}
_log = logging.getLogger(__name__)


def create_application(allow_actions: bool, on_ready: Callable[[], None]) -> Starlette:
    """Return the application; ``on_ready`` is called when it starts."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        del app
        on_ready()
        yield

    read = partial(_read_request, allow_actions=allow_actions)
    routes = [
        *(Route(path, _make_page(view, read)) for path, view in _VIEWS.items()),
        *(Route(path, _make_report(render, read)) for path, render in _REPORTS.items()),
        *(Route(path, _make_file(find, read)) for path, find in _FILES.items()),
        *(Route(path, _make_action(act, read), methods=["POST"]) for path, act in _ACTIONS.items()),
        *(
            Route(path, partial(_send_text, text=text, kind=kind))
            for path, text, kind in _read_files()
        ),
    ]
    application = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: partial(_show_http_error, read=read),
            HyperplaneError: partial(_show_error, read=read),
            Exception: partial(_show_failure, read=read),
        },
    )
    application.router.redirect_slashes = False
    return application


def _read_request(request: Request, *, allow_actions: bool) -> PageRequest:
    names = {name: str(value) for name, value in request.path_params.items()}
    return PageRequest(request.url.path, request.query_params, names, allow_actions)


Read = Callable[[Request], PageRequest]
Endpoint = Callable[[Request], Response]


def _make_page(view: Callable[[PageRequest], View], read: Read) -> Endpoint:
    """Return a function that Starlette calls in a thread, as views read files and databases."""

    def show(request: Request) -> Response:
        asked = read(request)
        return _respond(view(asked), asked, request)

    return show


def _respond(view: View, asked: PageRequest, request: Request) -> Response:
    known = request.headers.get(CONTENT_HEADER)
    if known is None:
        return HTMLResponse(view.render_page(asked), view.code)
    content, digest = view.render_content()
    return Response(status_code=204) if known == digest else HTMLResponse(content, view.code)


def _make_report(render: Callable[[PageRequest], str], read: Read) -> Endpoint:
    def send(request: Request) -> Response:
        # The policy of the report itself forbids scripts.
        return HTMLResponse(render(read(request)))

    return send


def _make_file(find: Callable[[PageRequest], artifact_view.SentFile], read: Read) -> Endpoint:
    def send(request: Request) -> Response:
        content = find(read(request))
        headers = {
            "content-disposition": content.disposition,
            "content-length": str(content.size),
            "content-security-policy": _FILE_POLICY,
        }
        return StreamingResponse(content.blocks, 200, headers, content.media_type)

    return send


def _make_action(act: Callable[[PageRequest], str], read: Read) -> Endpoint:
    def change(request: Request) -> Response:
        asked = read(request)
        if not asked.allow_actions:
            view = View("Not permitted", (make_alert(_READ_ONLY),), code=403)
            return _respond(view, asked, request)
        return RedirectResponse(act(asked), 303)

    return change


def _read_files() -> list[tuple[str, str, str]]:
    """Return paths, texts and types of the style sheet and the script."""
    script = files("hyperplane.ui").joinpath("live.js").read_text(encoding="utf-8")
    return [
        ("/style.css", read_style(), "text/css"),
        ("/live.js", script, "text/javascript"),
    ]


def read_style() -> str:
    """Return the style sheet: that of reports and of notebooks, and rules for the page."""
    own = files("hyperplane.ui").joinpath("style.css").read_text(encoding="utf-8")
    return f"{page.STYLE}{html_output.STYLE}\n{own}"


def _send_text(request: Request, *, text: str, kind: str) -> Response:
    del request
    return Response(text, media_type=kind)


def _show_http_error(request: Request, error: Exception, *, read: Read) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    texts = {404: "There is no such page.", 405: "This page has another method."}
    text = texts.get(code, str(error))
    title = "Not found" if code == 404 else "Not possible"
    return _respond(View(title, (make_note(text),), code=code), read(request), request)


def _show_error(request: Request, error: Exception, *, read: Read) -> Response:
    """Show an error of the package, whose message is for the user."""
    codes = {PageNotFound: 404, JobError: 409, RequestError: 400}
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), 503)
    faults = list(getattr(error, "faults", ()))
    text = "The request has faults:" if isinstance(error, RequestError) and faults else str(error)
    title = "Not found" if code == 404 else "Not possible"
    view = View(title, (make_alert(text, faults),), code=code)
    return _respond(view, read(request), request)


def _show_failure(request: Request, error: Exception, *, read: Read) -> Response:
    """Show that an unexpected error has occurred; uvicorn writes its traceback to the log."""
    _log.warning("%s failed: %s", request.scope["path"][:200].encode(), type(error).__name__)
    text = "This page has failed; the terminal of hyperplane ui shows the error."
    return _respond(View("Internal error", (make_alert(text),), code=500), read(request), request)
