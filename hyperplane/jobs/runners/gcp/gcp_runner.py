"""Base class of runners whose attempts are jobs of a service of Google Cloud."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.gcp.gcp_client import GcpClient
from hyperplane.jobs.runners.service_runner import ServiceRunner
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.service_check import CheckedService, check_service
from hyperplane.platforms.gcp.session import EXTRA, GcpSession
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.spec.settings import GcpJobSettings

_CLIENT = "googleapiclient"


GcpSettingsT = TypeVar("GcpSettingsT", bound=GcpJobSettings)
GcpClientT = TypeVar("GcpClientT", bound=GcpClient[Any])


class GcpRunner(ServiceRunner[GcpSettingsT, GcpClientT]):
    """Base of runners; each attempt is one job, also of a chunk."""

    vendor: ClassVar[str] = "Google"
    max_array: ClassVar[int] = 1
    at_once: ClassVar[int] = 100
    #: The service, for the check before a submission.
    service: ClassVar[CheckedService]

    def unavailable_reason(self) -> str:
        """Return what prevents jobs: options, credentials, permissions, image, bucket; at once."""
        if not is_installed(_CLIENT):
            return f"install google-api-python-client with: pip install 'hyperplane[{EXTRA}]'"
        faults = self.find_option_faults()
        if not faults:
            faults = self._check_service()
        return "\n".join(map(str, faults))

    @abstractmethod
    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that the service cannot run."""

    def describe_rehearsal(self) -> list[str]:
        """Return in what containers of the service differ from a rehearsal, as lines of text."""
        return ["there is no folder /gcs with the buckets of the project"]

    def _check_service(self) -> list[Fault]:
        return check_service(self._session(), self.settings, self.service)

    def _session(self) -> GcpSession:
        return GcpSession(self.settings.project, self.settings.region, self._environment)

    def _staging(self, session: GcpSession) -> GcsStaging:
        return GcsStaging(
            session,
            parse_staging(str(self.settings.staging)),
            create_bucket=self.settings.create_bucket,
        )
