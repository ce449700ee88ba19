"""Id of the Cloud Run job of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.gcp.gcp_job_id import GcpJobId


@dataclass(frozen=True)
class CloudRunJobId(GcpJobId):
    """Name of a job, and the name of its execution in Cloud Run as the id.

    The id has the form ``projects/.../jobs/.../executions/...``.

    Parameters
    ----------
    owner : str
        Id of the job of hyperplane, which the job has as a label.
    """

    owner: str

    suffix: ClassVar[str] = ".cloud-run"
