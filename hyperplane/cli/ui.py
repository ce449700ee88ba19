"""``hyperplane ui``: a page in the browser of this user's clusters and jobs."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from hyperplane.cli.stop_signals import StopSignals
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import stating_outcome


@contextlib.contextmanager
def _ending_with_terminal() -> Iterator[None]:
    """Treat the end of the terminal as SIGTERM, unless ``nohup`` ignores it."""
    number = getattr(signal, "SIGHUP", None)
    if number is None or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


def _print_address(url: str, note: str) -> None:
    """Print the address of the page, and a note for programs.

    Raises
    ------
    OSError
        If standard output is closed or cannot be written.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    typer.echo(f"hyperplane ui is at {url}")
    typer.echo(note)
    typer.echo("It runs until you press Ctrl-C.")
    sys.stdout.flush()


def ui(
    port: Annotated[
        int, typer.Option(help="Port of the loopback address; 0 chooses a free one.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address only; open no browser.")
    ] = False,
    allow_actions: Annotated[
        bool,
        typer.Option("--allow-actions", help="Let the page stop clusters and cancel jobs."),
    ] = False,
) -> None:
    """Show clusters, jobs, records, schedules, pools and sizes in the browser, until Ctrl-C.

    The page is for this user of this machine only: it needs the token in the address that is
    printed, and is read-only without --allow-actions. It also answers the GraphQL queries of
    programs that have another token, with which they can submit and cancel jobs.
    """
    from hyperplane.ui.server import opening_browser, run_server

    with stating_outcome("nothing is served"), contextlib.ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        stack.enter_context(_ending_with_terminal())
        browser = None if no_browser else stack.enter_context(opening_browser())

        unprinted: list[str] = []

        def announce(url: str, note: str) -> None:
            try:
                _print_address(url, note)
            except OSError as error:
                if browser is None:
                    unprinted.append(error.strerror or str(error))
                    signals.stop_requested.set()
            if browser is not None:
                browser(url)

        has_finished = run_server(
            port=port,
            allow_actions=allow_actions,
            announce=announce,
            is_stopping=signals.stop_requested.is_set,
        )
        if unprinted:
            problem = f"the address of the page cannot be written to it ({unprinted[0]})"
            advice = "redirect it to a file, or leave out --no-browser"
            raise RequestError([Fault("standard output", "", problem, advice)])
    if not has_finished:
        text = "a request was not finished: a cluster that it was stopping may still run"
        with contextlib.suppress(OSError):  # the terminal is closed
            typer.echo(f"hyperplane ui has ended; {text}", err=True)
        os._exit(0)  # the interpreter would wait for the thread of the request
