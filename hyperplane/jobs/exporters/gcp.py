"""Base of exporters to services of Google Cloud, whose attempts are one job each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.spec.settings import GcpJobSettings


@dataclass(frozen=True)
class GcpExporter(StagedExporter):
    """Shows the requests of jobs as JSON. Nothing is sent, and no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    project, region, image, staging, service_account, stage, root : str, optional
        Settings of the runner.
    """

    project: str | None = None
    region: str | None = None
    image: str | None = None
    staging: str | None = None
    service_account: str | None = None
    stage: str | None = None
    root: str | None = None

    #: Name of the requests that create jobs, in the document.
    requests: ClassVar[str]

    @abstractmethod
    def _plan_jobs(self, settings: Any, staged: StagedStep) -> list[PlannedBucketJob]:
        """Return the requests for the first attempts at a step."""

    @abstractmethod
    def _show(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of the request that creates a job, besides its parent."""

    def _plan(self, settings: GcpJobSettings, staged: StagedStep) -> dict[str, Any]:
        planned = self._plan_jobs(settings, staged)
        parent = f"projects/{settings.project or 'PROJECT'}/locations/{settings.region}"
        return {
            "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
            self.requests: [{"parent": parent, **self._show(each.job)} for each in planned],
        }
