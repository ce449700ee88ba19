"""Base of the runners for services of Amazon whose attempts are the programs of drivers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.aws_client import find_region, open_aws_session, open_s3_staging
from hyperplane.jobs.runners.container_budget import ContainerCosts
from hyperplane.jobs.runners.driver_files import step_variables
from hyperplane.jobs.runners.service_runner import ClientT, ServiceRunner
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.aws.environment_session import EXTRA
from hyperplane.platforms.aws.session import AwsSession

SettingsT = TypeVar("SettingsT", bound=Any)


class DriverRunner(ServiceRunner[SettingsT, ClientT], Generic[SettingsT, ClientT]):
    """Runs steps as the programs of drivers.

    Subclasses name the class of their client, and check and price what they start.
    """

    #: Class of the client, a DriverClient.
    client_type: ClassVar[type[Any]]

    @abstractmethod
    def _check_service(self, session: AwsSession) -> list[Fault]:
        """Ask the service, and return all faults at once."""

    @abstractmethod
    def _estimate_cost(self, step: Step, region: str | None) -> str:
        """Return what a step costs for an hour, as a line of text."""

    @abstractmethod
    def _find_costs(self, region: str | None) -> ContainerCosts:
        """Return the budget of the settings, with sizes and prices in a region."""

    def unavailable_reason(self) -> str:
        """Return what prevents jobs: options, credentials, bucket, roles and so on; all at once."""
        if not is_installed("boto3"):
            return f"install boto3 with: pip install 'hyperplane[{EXTRA}]'"
        faults = self.find_option_faults()
        if not faults:
            faults = self._check_service(open_aws_session(self.settings, self._environment))
        return "\n".join(map(str, faults))

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        region = find_region(self.settings, self._environment)
        return [self._estimate_cost(step, region) for step in job.pipeline.steps]

    def task_variables(self, step: Step, index: int, count: int) -> dict[str, str]:
        """Return the variables that a run sets for the program of a step."""
        del step, index, count
        return step_variables(self.settings)

    def _costs(self) -> ContainerCosts:
        return self._find_costs(find_region(self.settings, self._environment))

    def _create_client(self) -> ClientT:
        session = open_aws_session(self.settings, self._environment)
        staging = open_s3_staging(session, self.settings)
        client: ClientT = self.client_type(session, staging)
        return client
