"""Functions for Python programs on hosts that :class:`HostProcess` starts with a configuration.

Such a program reads its configuration, secrets included, as one line from standard input, so that
none of it is in a process list or on a disk. It replies with one line when it is ready, and ends
with the ssh connection, so that it does not outlive the program that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

#: Line with which the starting program announces that it closes the connection.
END_LINE = "end\n"
#: Stream of the reply, which the starting program reads.
_replies: TextIO = sys.stdout


def read_configuration() -> dict[str, Any]:
    """Read the configuration, and set the environment variables in its item ``variables``.

    After this call, all output of the process goes to standard error, because one line of standard
    output is read as the reply.
    """
    global _replies
    configuration: dict[str, Any] = json.loads(sys.stdin.readline())
    _replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.update(configuration["variables"])
    return configuration


def send_reply(**fields: Any) -> None:
    """Reply to the starting program."""
    _replies.write(json.dumps(fields) + "\n")
    _replies.flush()


class OwnerPipe:
    """Standard input as the connection to the owner, watched by a thread from now on.

    The owner announces an orderly end by a line. Without it the owner was killed, or the connection
    is lost. Until :meth:`call_at_end` is called, the process ends at once with the connection.
    """

    def __init__(self) -> None:
        self._end: Callable[[bool], None] = lambda announced: None
        threading.Thread(target=self._watch, name="hyperplane-connection", daemon=True).start()

    def _watch(self) -> None:
        announced = bool(sys.stdin.read())  # returns when the connection is closed
        self._end(announced)
        os._exit(1)

    def call_at_end(self, stop: Callable[[], object], grace: float, lost_grace: float) -> None:
        """Call ``stop`` in a thread at the end; kill all processes after some seconds.

        They are ``grace`` if the owner has announced the end, otherwise ``lost_grace``.
        """

        def end(announced: bool) -> None:
            stop()
            threading.Event().wait(grace if announced else lost_grace)
            _kill_children()

        self._end = end


def _kill_children() -> None:
    import psutil  # slow to import, and not needed before

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def end_with_connection(stop: Callable[[], object], grace: float) -> None:
    """Call ``stop`` in a thread when the connection is closed; kill the process after ``grace``.

    ``grace`` is in seconds.
    """

    def wait() -> None:
        sys.stdin.read()  # returns when the connection is closed
        stop()
        threading.Event().wait(grace)
        os._exit(1)

    threading.Thread(target=wait, name="hyperplane-connection", daemon=True).start()
