"""Helpers of the tests of jobs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil

from hyperplane.jobs import Pipeline, Step, submit, supervisor_client

#: Seconds within which a job of a test ends on a busy machine; a test itself may take 180.
LIMIT = 170


def bash(name, text, **options):
    """Return a step that runs a line of shell."""
    return Step(name=name, kind="command", argv=("bash", "-c", text), **options)


def submit_job(*steps, **options):
    """Submit a job of these steps."""
    return submit(Pipeline.from_steps("test", steps), **options)


def run_job(*steps, wait=LIMIT, **options):
    """Submit a job of these steps and wait until it has ended."""
    job = submit_job(*steps, **options)
    job.wait(wait)
    return job


def until_exists(file):
    """Return shell code that waits for a file, so that no test depends on a duration."""
    return f"until [ -e '{file}' ]; do sleep 0.05; done"


def wait_until(condition: Callable[[], object], seconds=LIMIT):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process runs; it ends some time after it was killed."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(pid):
    """Kill a process; return whether it existed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_supervisor():
    """Kill the supervisor of the tests' jobs and wait for its end; return whether there was one."""
    killed = False
    # A supervisor that has just started has no number in the file yet, or that of its predecessor.
    while (pid := supervisor_client.supervisor_pid()) is not None:
        killed |= bool(pid) and kill(pid)
        time.sleep(0.005)
    return killed
