"""What tests of jobs share."""

from __future__ import annotations

import os
import signal
import time

from hyperplane.jobs import Pipeline, Step, submit, wake

#: Seconds within which a job of a test ends on a busy machine; a test itself may take 180.
LIMIT = 170


def bash(name, text, **options):
    """A step that runs a line of shell."""
    return Step(name=name, kind="command", argv=("bash", "-c", text), **options)


def submitted(*steps, **options):
    """A job of these steps."""
    return submit(Pipeline.from_steps("test", steps), **options)


def ran(*steps, wait=LIMIT, **options):
    """A job of these steps, once it has ended."""
    job = submitted(*steps, **options)
    job.wait(wait)
    return job


def kill(pid):
    """Kill a process; whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_supervisor():
    """Kill the supervisor of the tests' jobs, and wait for its end; whether there was one."""
    pid = wake.running()
    if pid:
        kill(pid)
        while wake.running() is not None:
            time.sleep(0.005)
    return bool(pid)
