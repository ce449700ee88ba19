"""Id of the custom job of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.gcp.gcp_job_id import GcpJobId


@dataclass(frozen=True)
class VertexJobId(GcpJobId):
    """Display name of a job, and its name in Vertex AI as the id.

    The display name is unique because it is that of the attempt. The id has the form
    ``projects/.../customJobs/...``, or ``projects/.../hyperparameterTuningJobs/...``.

    Parameters
    ----------
    prefix : str
        Beginning of the display names of all attempts of the job of hyperplane.
    is_tuning : bool
        Whether it is a tuning job, and not a custom job.
    """

    prefix: str
    is_tuning: bool = False

    suffix: ClassVar[str] = ".vertex"
