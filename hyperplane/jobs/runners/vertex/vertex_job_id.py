"""Id of the custom job of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.service_job_id import ServiceJobId


@dataclass(frozen=True)
class VertexJobId(ServiceJobId):
    """Display name of a custom job, and its name in Vertex AI as the id.

    The display name is unique because it is that of the attempt. The id has the form
    ``projects/.../customJobs/...``.

    Parameters
    ----------
    prefix : str
        Beginning of the display names of all attempts of the job of hyperplane.
    """

    prefix: str

    suffix: ClassVar[str] = ".vertex"

    @property
    def number(self) -> str:
        """Number of the job, which its log has; empty until the answer."""
        return self.id.rpartition("/")[2]
