"""Id of the job of an attempt in a service of Google Cloud."""

from __future__ import annotations

from dataclasses import dataclass, field

from hyperplane.jobs.runners.service_job_id import ServiceJobId


@dataclass(frozen=True)
class GcpJobId(ServiceJobId):
    """Name of an attempt, and the name of its job in the service as the id.

    Parameters
    ----------
    project : str
        Project of the submission; empty if it is unknown.
    """

    project: str = field(default="", kw_only=True)

    @property
    def log_key(self) -> str:
        """Last part of the id, which the entries of the log have; empty until the answer."""
        return self.id.rpartition("/")[2]
