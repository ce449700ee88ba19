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
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.html_output import escape
from hyperplane.core.optional import need
from hyperplane.ui.access import TOKEN, AccessCheck
from hyperplane.ui.connections import make_protocol_class

_LOOPBACK = "127.0.0.1"
#: Seconds that requests have to finish after the end was requested.
_END_SECONDS = 5
#: Most connections at the same time; a browser opens up to six.
_MOST_CONNECTIONS = 100
_LAST_PORT = 65535


def run_server(
    *,
    port: int,
    allow_actions: bool,
    announce: Callable[[str], None],
    is_stopping: Callable[[], bool],
) -> None:
    """Serve the page until SIGTERM or Ctrl-C.

    Parameters
    ----------
    port : int
        Port of the loopback address; 0 for a free one.
    allow_actions : bool
        Whether the page can stop clusters and cancel jobs.
    announce : callable
        Receives the first address, which has the token, when requests are answered.
    is_stopping : callable
        Whether a signal came before uvicorn handles them.

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
    from hyperplane.ui.application import create_application

    token = secrets.token_urlsafe(32)
    with contextlib.closing(_bind(port)) as listener:
        url = f"http://{_LOOPBACK}:{listener.getsockname()[1]}/?{TOKEN}={token}"

        def on_ready() -> None:
            if is_stopping():  # uvicorn must end its start first
                loop = asyncio.get_running_loop()
                loop.call_later(0.1, setattr, server, "should_exit", True)
                return
            announce(url)

        config = uvicorn.Config(
            AccessCheck(create_application(allow_actions, on_ready), token),
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
        server = uvicorn.Server(config)
        server.run(sockets=[listener])


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
        advice = "choose another port, or 0 for a free one"
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
    # A file that only this user can read: all users of the machine see the arguments of programs.
    page = folder / "open.html"
    page.touch(mode=0o600)
    refresh = f'<meta http-equiv="refresh" content="0; url={escape(url)}">'
    page.write_text(f"<!DOCTYPE html>{refresh}<title>hyperplane</title>", encoding="utf-8")

    def show() -> None:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(page.as_uri())

    threading.Thread(target=show, name="hyperplane-ui-browser", daemon=True).start()
