"""Processes of a model server; ``python -m hyperplane.ml.serving.server_process`` runs one.

A process receives its settings as a line of JSON on standard input, sends one pickled message on
a pipe, and ends when standard input is closed: when its parent ends, or no longer needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO, Any, cast

from hyperplane.clusters.service_records import recording_service
from hyperplane.core.errors import Fault, HyperplaneError, StartFailed, check
from hyperplane.core.optional import need
from hyperplane.ml.serving.serve_metrics import FOLDER_VARIABLE, ServeMetrics
from hyperplane.ml.serving.serve_settings import TOKEN_VARIABLE, ServeSettings

#: Seconds that requests have to finish after the end was requested.
END_SECONDS = 30
#: Seconds until a worker that ended is started again, doubled up to the second number.
_RESTART_SECONDS, _MAX_RESTART_SECONDS = 1.0, 30.0
_BACKLOG = 2048
_MODULE = "hyperplane.ml.serving.server_process"
_POLL_SECONDS = 0.2

Ready = Callable[[str, str, str | None], None]


class ServeStop:
    """Records SIGTERM and Ctrl-C; uvicorn replaces the handlers while it runs."""

    def __init__(self) -> None:
        self.is_set = False

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._record)

    def _record(self, number: int, frame: Any) -> None:
        del number, frame
        self.is_set = True


def bind(settings: ServeSettings) -> socket.socket:
    """Return a listening socket.

    Raises
    ------
    RequestError
        If the address is in use or does not exist.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        asked = f"{settings.host}:{settings.port}"
        advice = "choose another port, or 0 for a free one"
        check([Fault("host and port", asked, f"a free address ({error.strerror})", advice)])
        raise
    return listener


def url_of(settings: ServeSettings, listener: socket.socket) -> str:
    """Return the URL of a server, with the name of this machine if it listens everywhere."""
    port = listener.getsockname()[1]
    host = socket.gethostname() if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    scheme = "http" if settings.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def run_server(settings: ServeSettings, ready: Ready, stop: ServeStop) -> None:
    """Serve until SIGTERM or Ctrl-C, in this process or in several worker processes."""
    with contextlib.closing(bind(settings)) as listener, contextlib.ExitStack() as stack:

        def record(url: str, title: str, name: str | None) -> None:
            stack.enter_context(recording_service(settings.name or name, url))
            ready(url, title, name)

        if settings.workers == 1:
            serve_socket(settings, listener, record, stop)
        else:
            Workers(settings, listener).run(record, stop)


def serve_socket(
    settings: ServeSettings, listener: socket.socket, ready: Ready, stop: ServeStop
) -> None:
    """Load the models and answer requests in this process."""
    from hyperplane.ml.serving.application import create_application
    from hyperplane.ml.serving.http_protocol import make_protocol_class
    from hyperplane.ml.serving.served_models import ServedModels

    uvicorn = need("uvicorn", "serve")
    metrics = ServeMetrics()
    models = ServedModels(settings, metrics.observe_batches)
    models.open()
    if stop.is_set:
        return
    url = url_of(settings, listener)
    tls = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key}

    def on_ready() -> None:
        if stop.is_set:  # before uvicorn handled the signal; it must end its start first
            loop = asyncio.get_running_loop()
            loop.call_later(_POLL_SECONDS, setattr, server, "should_exit", True)
        ready(url, models.title, models.name)

    config = uvicorn.Config(
        create_application(settings, models, metrics, on_ready),
        http=make_protocol_class(),
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=END_SECONDS,
        **tls,
    )
    # Warnings of uvicorn are about faults of clients, which the responses report.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    server = uvicorn.Server(config)
    server.run(sockets=[listener])


class Workers:
    """Worker processes that accept connections of one socket.

    A worker that ends is started again.
    """

    def __init__(self, settings: ServeSettings, listener: socket.socket) -> None:
        self._settings, self._listener = settings, listener
        self._processes: list[ServerProcess] = []
        self._folder = tempfile.TemporaryDirectory(prefix="hyperplane-metrics-")

    def run(self, ready: Ready, stop: ServeStop) -> None:
        """Run until the end is requested; raise the error of a worker that does not start."""
        try:
            for _ in range(self._settings.workers):
                self._processes.append(self._start())
            for process in self._processes:
                _, title, name = process.wait_until_ready()
            ready(url_of(self._settings, self._listener), title, name)
            self._supervise(stop)
        finally:
            self._listener.close()  # requests that no process would answer are refused
            for process in self._processes:
                process.request_end()
            for process in self._processes:
                process.wait(END_SECONDS + 5)
            self._folder.cleanup()

    def _start(self) -> ServerProcess:
        return ServerProcess(
            self._settings, self._listener.fileno(), {FOLDER_VARIABLE: self._folder.name}
        )

    def _supervise(self, stop: ServeStop) -> None:
        delay, last = _RESTART_SECONDS, time.monotonic()
        while not stop.is_set:
            time.sleep(_POLL_SECONDS)
            for index, process in enumerate(self._processes):
                if process.poll() is None or stop.is_set:
                    continue
                ended = f"a worker ended with exit code {process.poll()}{process.read_reason()}"
                print(f"{ended}; it is started again", file=sys.stderr)  # noqa: T201
                delay = (
                    _RESTART_SECONDS
                    if time.monotonic() - last > 60
                    else min(2 * delay, _MAX_RESTART_SECONDS)
                )
                last = time.monotonic()
                process.wait(0)
                multiprocess = need("prometheus_client.multiprocess", "serve")
                multiprocess.mark_process_dead(process.pid, self._folder.name)
                end = time.monotonic() + delay
                while time.monotonic() < end and not stop.is_set:
                    time.sleep(_POLL_SECONDS)
                if not stop.is_set:
                    self._processes[index] = self._start()


class ServerProcess:
    """A child process that serves.

    Parameters
    ----------
    settings : ServeSettings
        Its settings, which are passed on its standard input.
    listener : int, optional
        Descriptor of a listening socket; it binds one if omitted.
    variables : dict, optional
        Additional environment variables.
    """

    def __init__(
        self,
        settings: ServeSettings,
        listener: int | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        reader, writer = os.pipe()
        environment = {**os.environ, **(variables or {})}
        environment.pop(TOKEN_VARIABLE, None)  # it is in the settings
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this module
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                pass_fds=[writer, *([] if listener is None else [listener])],
                env=environment,
            )
        finally:
            os.close(writer)
        self._messages = os.fdopen(reader, "rb")
        message = {"settings": settings.to_dict(), "listener": listener, "ready": writer}
        self._input = cast(IO[bytes], self._process.stdin)
        with contextlib.suppress(BrokenPipeError):  # wait_until_ready reports its end
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def wait_until_ready(self) -> tuple[str, str, str | None]:
        """Return URL, title and name; raise the error of a process that cannot serve."""
        with self._messages as messages:
            data = messages.read()  # until it closes the pipe
        if not data:
            code = self._process.wait()
            raise StartFailed("", f"the server ended with exit code {code} before it was ready")
        answer = pickle.loads(data)  # noqa: S301 - from our own process
        if isinstance(answer, BaseException):
            self.wait(END_SECONDS)
            raise answer
        url, title, name = answer
        return url, title, name

    def read_reason(self) -> str:
        """Return ``: error`` of an ended process that did not become ready; otherwise ""."""
        data = b"" if self._messages.closed else self._messages.read()
        answer = pickle.loads(data) if data else None  # noqa: S301 - from our own process
        return f": {answer}" if isinstance(answer, BaseException) else ""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def request_end(self) -> None:
        """Let it finish the requests that it has."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def wait(self, timeout: float) -> None:
        """Wait for its end, and kill it after the time-out."""
        self.request_end()
        self._messages.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _end_with_parent(parent: int, stop: ServeStop) -> None:
    """Request the end of this process when standard input is closed, or the parent has ended."""
    import select

    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            break
    stop.is_set = True
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve with the settings on standard input."""
    parent = os.getppid()
    stop = ServeStop()
    stop.install()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    message = json.loads(_read_line())
    settings = ServeSettings(**message["settings"])
    pipe = message["ready"]
    if FOLDER_VARIABLE in os.environ and message["listener"] is None:
        del os.environ[FOLDER_VARIABLE]  # of another program
    threading.Thread(target=_end_with_parent, args=(parent, stop), daemon=True).start()

    def send(answer: Any) -> None:
        with os.fdopen(pipe, "wb") as messages, contextlib.suppress(BrokenPipeError):
            messages.write(pickle.dumps(answer))

    def ready(url: str, title: str, name: str | None) -> None:
        send((url, title, name))

    try:
        if message["listener"] is None:
            run_server(settings, ready, stop)
        else:
            with socket.socket(fileno=message["listener"]) as listener:
                serve_socket(settings, listener, ready, stop)
    except HyperplaneError as error:
        with contextlib.suppress(OSError):
            send(error)
        sys.exit(1)


def _read_line() -> bytes:
    """Return a line of standard input, without reading more than it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            sys.exit(1)
        line += byte
    return line


if __name__ == "__main__":
    main()
