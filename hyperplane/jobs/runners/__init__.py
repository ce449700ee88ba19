"""Runners, which run the steps of a job: here, in Slurm, Kubernetes or a cloud service."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "render":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported late: pods of steps with ``foreach`` import this package in order to run ``item``.
    from hyperplane.core.public_calls import warn_caller
    from hyperplane.jobs.exporters.registry import render

    warn_caller(
        "hyperplane.jobs.runners.render is now hyperplane.jobs.exporters.registry.render",
        FutureWarning,
    )
    return render
