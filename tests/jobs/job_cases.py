"""What tests of jobs share."""

from __future__ import annotations

from hyperplane.jobs import Pipeline, Step, submit


def bash(name, text, **options):
    """A step that runs a line of shell."""
    return Step(name=name, kind="command", argv=("bash", "-c", text), **options)


def submitted(*steps, **options):
    """A job of these steps."""
    return submit(Pipeline.from_steps("test", steps), **options)


def ran(*steps, wait=170, **options):
    """A job of these steps, once it has ended."""
    job = submitted(*steps, **options)
    job.wait(wait)
    return job
