"""Endpoints of Vertex AI: deploy a version of a model, predict, and remove what was deployed.

An endpoint has one version of a model. Machines are paid for from the deployment until they are
removed, whether there are predictions or not.
"""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.errors import GcpError, GcpRequestError, is_retryable
from hyperplane.platforms.gcp.machine_types import VertexMachine
from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.gcp.vertex_requests import DELAYS, StopRequestedError, VertexRequests

ENDPOINT_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
#: Maximum bytes of the request for a prediction.
MAX_BYTES = 1_500_000
#: The service with the permissions for a deployment and its end.
ENDPOINT_SERVICE = CheckedService(
    "aiplatform",
    "Vertex AI",
    "projects.locations.endpoints",
    (
        "aiplatform.endpoints.create",
        "aiplatform.endpoints.delete",
        "aiplatform.endpoints.deploy",
        "aiplatform.endpoints.get",
        "aiplatform.endpoints.list",
        "aiplatform.endpoints.undeploy",
        "aiplatform.models.get",
    ),
)
#: Id of the deployment that a request creates, in its division of the requests for predictions.
_NEW = "0"

Object = dict[str, Any]


class Deployment(NamedTuple):
    """A version of a model on machines.

    Parameters
    ----------
    resource : str
        Name of the version in Vertex AI, with its number.
    machine : VertexMachine
        Type of its machines.
    min_replicas, max_replicas : int
        Least and largest number of machines.
    service_account : str or None
        Service account of the containers.
    """

    resource: str
    machine: VertexMachine
    min_replicas: int = 1
    max_replicas: int = 1
    service_account: str | None = None

    def build_request(self) -> Object:
        """Return the body of the request; all requests for predictions are for this deployment.

        Its id is computed from the rest, so that the same deployment is recognized.
        """
        resources = {
            "machineSpec": self.machine.spec(),
            "minReplicaCount": self.min_replicas,
            "maxReplicaCount": self.max_replicas,
        }
        deployed: Object = {"model": self.resource, "dedicatedResources": resources}
        if self.service_account:
            deployed["serviceAccount"] = self.service_account
        number = zlib.crc32(json.dumps(deployed, sort_keys=True).encode())
        return {"deployedModel": {"id": str(number), **deployed}, "trafficSplit": {_NEW: 100}}


@dataclass
class _DeploymentRequest:
    """The request for a deployment of this command.

    Attributes
    ----------
    operation : dict or None
        Its operation, once Vertex AI has answered.
    is_lost : bool
        Whether there was no answer, so that its operation is not known: operations do not name
        their deployments.
    """

    operation: Object | None = None
    is_lost: bool = False


class EndpointsApi:
    """Requests for endpoints; raises GcpError."""

    def __init__(self, requests: VertexRequests) -> None:
        self._requests = requests

    def read(self, endpoint: str) -> Object | None:
        """Return an endpoint with its deployments; None if there is none."""
        return self._requests.read("endpoints.get", name=self._name(endpoint))

    def list_endpoints(self) -> list[Object]:
        """Return all endpoints of the region."""
        parent = self._requests.session.location()
        return self._requests.list_all("endpoints.list", "endpoints", parent=parent)

    def deploy(self, endpoint: str, deployment: Deployment, stop: threading.Event) -> bool:
        """Deploy a version to an endpoint, which is created if it is missing.

        Other versions are removed afterwards. Returns False if it was deployed before. If the
        deployment fails, or ``stop`` is set, it is removed, and so is the endpoint if it is new and
        no other command uses it.
        """
        body = deployment.build_request()
        own = body["deployedModel"]["id"]
        found = self.read(endpoint)
        is_deployed = found is not None and own in _list_ids(found)
        if not is_deployed:
            request = _DeploymentRequest()
            try:
                if found is None:
                    self._create(endpoint)
                self._deploy(endpoint, body, request, stop)
            except GcpError as error:
                self._withdraw(endpoint, own, request, found, error)
                raise
        for other in _list_ids(found or {}):
            if other != own:
                self._undeploy(endpoint, other, {own: 100})
        return not is_deployed

    def remove(self, endpoint: str) -> None:
        """Remove all deployments of an endpoint, also unfinished ones, and the endpoint."""
        for operation in self._list_operations(endpoint):
            self._requests.cancel(operation)
        ids = _list_ids(self.read(endpoint) or {})
        for number in ids:
            # The last one keeps all requests for predictions until it is removed.
            split = {ids[-1]: 100} if number != ids[-1] else {}
            self._undeploy(endpoint, number, split)
        self._requests.delete("endpoints.delete", name=self._name(endpoint))

    def predict(self, endpoint: str, instances: Sequence[Any]) -> list[Any]:
        """Return the predictions for some instances."""
        answer = self._requests.repeat(
            "endpoints.predict", endpoint=self._name(endpoint), body={"instances": list(instances)}
        )
        predictions: list[Any] = answer.get("predictions", [])
        return predictions

    def _create(self, endpoint: str) -> None:
        operation, _ = self._requests.create(
            "endpoints.create",
            lambda: self.read(endpoint),
            parent=self._requests.session.location(),
            endpointId=endpoint,
            body={"displayName": endpoint},
        )
        if operation is not None:
            self._requests.wait(operation)

    def _deploy(
        self, endpoint: str, body: Object, request: _DeploymentRequest, stop: threading.Event
    ) -> None:
        own = body["deployedModel"]["id"]

        def find() -> bool | None:
            request.is_lost = True
            return self._await_deployment(endpoint, own, stop)

        if stop.is_set():
            raise StopRequestedError("the deployment was interrupted")
        request.operation, _ = self._requests.create(
            "endpoints.deployModel", find, endpoint=self._name(endpoint), body=body
        )
        if request.operation is not None:
            self._requests.wait(request.operation, stop)
        if own not in _list_ids(self.read(endpoint) or {}):
            raise GcpRequestError(f"the endpoint {endpoint} does not have the deployment {own}")

    def _await_deployment(self, endpoint: str, own: str, stop: threading.Event) -> bool | None:
        """Return True if a deployment is there after the operations that run; None otherwise.

        They may be those of other commands.
        """
        if stop.is_set():
            raise StopRequestedError("the deployment was interrupted")
        for operation in self._list_operations(endpoint):
            self._requests.wait_until_ended(operation, stop)
        return True if own in _list_ids(self.read(endpoint) or {}) else None

    def _withdraw(
        self,
        endpoint: str,
        own: str,
        request: _DeploymentRequest,
        before: Object | None,
        reason: GcpError,
    ) -> None:
        """Restore an endpoint after a deployment that failed; raise GcpError if that fails.

        What other commands do with the endpoint at the same time continues.
        """
        try:
            if request.operation is not None:
                self._requests.cancel(request.operation)
            is_sent = request.operation is not None or request.is_lost
            if is_sent and own in _list_ids(self.read(endpoint) or {}):
                self._undeploy(endpoint, own, (before or {}).get("trafficSplit", {}))
            pending = self._list_operations(endpoint)
            if pending and request.is_lost:
                raise GcpRequestError("one of the operations that run may be its own")
            if before is None and not pending and not _list_ids(self.read(endpoint) or {}):
                self._requests.delete("endpoints.delete", name=self._name(endpoint))
        except GcpError as error:
            text = (
                f"{reason}; its deployment may still exist, because it could not be removed "
                f"({error}): see hyperplane vertex endpoints, and remove everything of the "
                f"endpoint with hyperplane vertex undeploy {endpoint}"
            )
            raise GcpRequestError(text) from error

    def _undeploy(self, endpoint: str, number: str, split: Mapping[str, int]) -> None:
        body: Object = {"deployedModelId": number}
        if split:
            body["trafficSplit"] = dict(split)
        for delay in (*DELAYS, None):
            try:
                operation = self._requests.call(
                    "endpoints.undeployModel", endpoint=self._name(endpoint), body=body
                )
                self._requests.wait(operation)
                return
            except GcpError as error:
                for pending in self._list_operations(endpoint):  # its answer may be lost
                    self._requests.wait_until_ended(pending)
                if number not in _list_ids(self.read(endpoint) or {}):
                    return
                if not is_retryable(error) or delay is None:
                    raise
                time.sleep(delay)

    def _list_operations(self, endpoint: str) -> list[Object]:
        """Return the operations of an endpoint that have not ended; none without an endpoint."""
        if self.read(endpoint) is None:
            return []
        name = self._name(endpoint)
        found = self._requests.list_all("endpoints.operations.list", "operations", name=name)
        return [operation for operation in found if not operation.get("done")]

    def _name(self, endpoint: str) -> str:
        return f"{self._requests.session.location()}/endpoints/{endpoint}"


def _list_ids(endpoint: Mapping[str, Any]) -> list[str]:
    """Return the ids of the deployments of an endpoint."""
    return [str(each["id"]) for each in endpoint.get("deployedModels", ())]
