"""Environment of a submission, sent to the supervisor; the snapshot stores a part of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from hyperplane import config
from hyperplane.jobs.graphql_server import without_server
from hyperplane.jobs.store.jobs_home import jobs_folder


@dataclass(frozen=True)
class SubmissionEnvironment:
    """Environment that a job was submitted with, which is sent to the supervisor."""

    environment: Mapping[str, str] = field(repr=False)


def capture_environment() -> SubmissionEnvironment:
    """Return the environment for steps of a job submitted from this process."""
    environment = {
        name: value
        for name, value in without_server(os.environ).items()
        # Nor the memory of the step that submits it.
        if not name.startswith(("HYPERPLANE_JOB_", "HYPERPLANE_STEP_"))
    }
    environment["DASK_HYPERPLANE__JOBS__HOME"] = str(jobs_folder())
    if config.jobs().store:
        environment["DASK_HYPERPLANE__JOBS__STORE"] = str(config.jobs().store)
    return SubmissionEnvironment(environment)
