"""The server of the page: a socket on the loopback address, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, JobStoreError, RequestError
from hyperplane.core.html_output import escape
from hyperplane.core.optional import need
from hyperplane.guard.same_user import find_reason_unchecked
from hyperplane.jobs.graphql_server import PATH, GraphqlServer, publish_server
from hyperplane.ui.access import TOKEN, AccessCheck
from hyperplane.ui.connections import make_protocol_class

_LOOPBACK = "127.0.0.1"
#: Seconds that requests have to finish after the end was requested, and that threads have then.
_END_SECONDS, _THREAD_SECONDS = 4, 0.5
#: Most connections at the same time, of which 100 queries of programs are answered: the others are
#: refused at once, so that the page can be opened. Processes often have at most 1024 open files.
_MOST_CONNECTIONS = 500
_LAST_PORT = 65535


def run_server(
    *,
    port: int,
    allow_actions: bool,
    announce: Callable[[str, str], None],
    is_stopping: Callable[[], bool],
) -> bool:
    """Serve the page until SIGTERM or Ctrl-C; return whether all requests have finished.

    A thread of one that has not, such as one that stops a cluster which does not answer, would keep
    the process from ending.

    Parameters
    ----------
    port : int
        Port of the loopback address; 0 for a free one.
    allow_actions : bool
        Whether the page can stop clusters and cancel jobs.
    announce : callable
        Receives, when requests are answered, the first address, which has the token, and a sentence
        about the file with the GraphQL address.
    is_stopping : callable
        Whether a signal came before uvicorn handles them, or the address was not announced.

    Raises
    ------
    MissingPackage
        If the packages of the extra ``ui`` are missing.
    RequestError
        If the port is not free.
    """
    uvicorn = need("uvicorn", "ui")
    need("starlette", "ui")
    need("sqlalchemy", "ui")
    need("strawberry", "ui")
    from hyperplane.ui.application import create_application
    from hyperplane.ui.graphql_api.access import GraphqlAccessCheck
    from hyperplane.ui.graphql_api.endpoint import GraphqlEndpoint

    token, graphql_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    graphql = GraphqlAccessCheck(GraphqlEndpoint(Path.cwd()), graphql_token)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(_bind(port)))
        used_port = listener.getsockname()[1]
        url = f"http://{_LOOPBACK}:{used_port}/?{TOKEN}={token}"
        try:
            file = stack.enter_context(publish_server(GraphqlServer(used_port, graphql_token)))
            note = f"Programs find its GraphQL address in {file}."
        except JobStoreError as error:  # the page shows it, too
            note = f"Programs cannot find its GraphQL address: {error}"

        def on_ready() -> None:
            if not is_stopping():
                announce(url, note)
            if is_stopping():  # uvicorn must end its start first
                loop = asyncio.get_running_loop()
                loop.call_later(0.1, setattr, server, "should_exit", True)

        config = uvicorn.Config(
            _route_requests(
                AccessCheck(create_application(allow_actions, on_ready), token), graphql
            ),
            http=make_protocol_class(),
            loop="asyncio",
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,  # the first address has the token
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_END_SECONDS,
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        server = _make_server_class()(config)
        # uvicorn repeats the signals at its end: a second Ctrl-C is no error, either.
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    return _wait_for_threads(time.monotonic() + _THREAD_SECONDS)


def _route_requests(page: Any, graphql: Any) -> Any:
    """Return an ASGI application with the page, and GraphQL under its path."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        is_graphql = scope["type"] == "http" and scope["path"] == PATH
        await (graphql if is_graphql else page)(scope, receive, send)

    return application


def _make_server_class() -> type[Any]:
    base: Any = need("uvicorn", "ui").Server

    class QuietServer(base):  # type: ignore[misc]
        """Server that writes no traceback of a request that has to be canceled at its end."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Give requests some seconds to finish, and cancel the others."""
            logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
            await super().shutdown(sockets)

    return QuietServer


def _wait_for_threads(deadline: float) -> bool:
    """Return whether all threads have ended for which the interpreter would wait."""
    threads = {each for each in threading.enumerate() if not each.daemon}
    threads -= {threading.main_thread(), threading.current_thread()}
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _bind(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if not 0 <= port <= _LAST_PORT:
            allowed = f"a number from 1 to {_LAST_PORT}, or 0 for a free port"
            raise RequestError([Fault("--port", str(port), allowed)])
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        allowed = f"a free port of this machine ({error.strerror})"
        advice = "an earlier hyperplane ui may still run: end it, or choose another --port"
        raise RequestError([Fault("--port", str(port), allowed, advice)]) from error
    except RequestError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def opening_browser() -> Iterator[Callable[[str], None]]:
    """Yield a function that opens an address in the browser of this user, if there is a screen."""
    folder = Path(tempfile.mkdtemp(prefix="hyperplane-ui-"))
    try:
        yield lambda url: _open_browser(url, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _open_browser(url: str, folder: Path) -> None:
    if sys.platform.startswith("linux") and not (
        {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & set(os.environ)
    ):
        return  # the browser would be one of the terminal
    address = url
    if find_reason_unchecked() is not None:
        # All users of the machine see the arguments of programs, and could use the token. Elsewhere
        # the address itself: browsers in a container, or on another machine, cannot read the file.
        address = _write_redirection(url, folder / "open.html")

    def show() -> None:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(address)

    threading.Thread(target=show, name="hyperplane-ui-browser", daemon=True).start()


def _write_redirection(url: str, page: Path) -> str:
    """Write a page that opens an address, and that only this user can read; return its address."""
    page.touch(mode=0o600)
    refresh = f'<meta http-equiv="refresh" content="0; url={escape(url)}">'
    page.write_text(f"<!DOCTYPE html>{refresh}<title>hyperplane</title>", encoding="utf-8")
    return page.as_uri()
