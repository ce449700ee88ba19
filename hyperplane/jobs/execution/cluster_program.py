"""``python cluster_program.py PROGRAM ARGUMENT...``: run the program of a step with a cluster.

The arguments of the cluster are in ``HYPERPLANE_CLUSTER``. It starts first; the program finds it by
the variables that a start sets, such as ``RAY_ADDRESS``. The cluster ends with the program, and the
program with the cluster. The exit code, or the signal, is that of the program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":  # an environment of requirements does not have editable packages
    sys.path.append(str(Path(__file__).parents[3]))

from hyperplane.clusters import interrupts, registry, start_lines
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.framework import CLOSED, Framework
from hyperplane.clusters.planning import create_planner
from hyperplane.core.errors import EngineUnavailable, HyperplaneError, RequestError
from hyperplane.jobs.execution.cluster_arguments import CLUSTER
from hyperplane.spec.request import ClusterArguments

#: Seconds between two looks at the program, and between SIGTERM and SIGKILL.
_INTERVAL, _GRACE = 0.1, 5.0
#: Exit code of an invalid configuration (sysexits.h), after which a step is not retried.
_CONFIGURATION = 78


class StepCluster:
    """The cluster of a step, and the program that runs with it."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._framework: Framework
        self._started: StartedCluster[Any, Any] | None = None
        self._program: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._handle_signal)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """End a start that is in progress; later, the program gets the same signal."""
        del number, frame
        self._stop.set()
        if self._started is None:
            signal.raise_signal(signal.SIGINT)  # a start closes what it has begun
        elif self._program is not None and os.getpid() == 1:
            self._program.terminate()  # a container's first process is the only one to get it

    def start(self, arguments: dict[str, Any]) -> None:
        """Start the cluster, and print the documented lines."""
        planner = create_planner("initialize_cluster", ClusterArguments.from_mapping(arguments))
        plan = planner.plan()
        engine = registry.load(plan.engine)
        self._framework = registry.load_framework(plan.engine)
        usable, reason = engine.available()
        if not usable:
            raise EngineUnavailable(plan.engine, reason)
        began = time.monotonic()
        start_lines.print_start_lines(plan, [])
        started = interrupts.complete_start(
            partial(engine.start, plan), lambda started: self._framework.prepare(started, False)
        )
        self._started = started
        dashboard = self._framework.addresses(started).dashboard
        start_lines.print_ready_lines(plan, dashboard, time.monotonic() - began)

    def run(self, words: list[str]) -> int:
        """Run the program to its end; return its exit code, negative for a signal."""
        assert self._started is not None  # noqa: S101 - for mypy
        cluster = self._started.cluster
        try:
            self._program = program = subprocess.Popen(words, stdin=subprocess.DEVNULL)  # noqa: S603 - a list, of the user's own program
        except OSError as error:
            _print_error(f"{error.filename}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        if self._stop.is_set() and os.getpid() == 1:  # the signal came before the program
            program.terminate()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return program.wait(_INTERVAL)
            if self._framework.status(cluster) == CLOSED and not self._stop.is_set():
                reason = getattr(cluster, "end_reason", "") or "it was closed"
                _end(program)
                _print_error(f"EngineError: the cluster of the step has ended: {reason}")
                return 1

    def close(self) -> None:
        """End the cluster."""
        if self._started is not None:
            self._started.client.close()
            self._started.cluster.close()


def main(words: list[str]) -> int:
    """Start the cluster, run the program, and return its exit code, negative for a signal."""
    arguments = json.loads(os.environ.pop(CLUSTER))
    cluster = StepCluster()
    try:
        cluster.start(arguments)
        return cluster.run(words)
    except KeyboardInterrupt:
        return -signal.SIGTERM
    except HyperplaneError as error:
        _print_error(f"{type(error).__name__}: {error}")
        return _CONFIGURATION if isinstance(error, RequestError | EngineUnavailable) else 1
    finally:
        cluster.close()


def _end(program: subprocess.Popen[bytes]) -> None:
    """End the program: SIGTERM, and SIGKILL after some seconds."""
    program.terminate()
    try:
        program.wait(_GRACE)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _print_error(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    sys.stdout.flush()
    if _code < 0:  # end in the same way
        with suppress(OSError, ValueError):
            signal.signal(-_code, signal.SIG_DFL)
        os.kill(os.getpid(), -_code)
    os._exit(_code if _code >= 0 else 128 - _code)
