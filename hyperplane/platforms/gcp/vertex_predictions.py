"""Batch prediction jobs of Vertex AI: submit once, read, cancel."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.errors import GcpRequestError, is_retryable
from hyperplane.platforms.gcp.job_status import parse_job
from hyperplane.platforms.gcp.machine_types import VertexMachine
from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.gcp.vertex_requests import VertexRequests

#: Display name of a job; filters of lists have it.
JOB_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: Name of a job in Vertex AI, with its region.
RESOURCE = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/batchPredictionJobs/[^/]+")
#: Format of the input -> its name in Vertex AI. AI Platform calls lines of JSON text.
FORMATS = {
    "json": "jsonl",
    "text": "jsonl",
    "csv": "csv",
    "tf-record": "tf-record",
    "tf-record-gzip": "tf-record-gzip",
    "file-list": "file-list",
}
PREDICTION_SERVICE = CheckedService(
    "aiplatform",
    "Vertex AI",
    "projects.locations.batchPredictionJobs",
    (
        "aiplatform.batchPredictionJobs.cancel",
        "aiplatform.batchPredictionJobs.create",
        "aiplatform.batchPredictionJobs.get",
        "aiplatform.batchPredictionJobs.list",
        "aiplatform.models.get",
    ),
)
#: Label with the digest of the request, by which a job of the same name is recognized.
_DIGEST = "hyperplane-request"
#: Label with a random text, by which a command recognizes the job that it has created.
_TOKEN = "hyperplane-token"  # noqa: S105 - it is no secret

Object = dict[str, Any]


class NameTakenError(GcpRequestError):
    """There is a job of that name with another request.

    Attributes
    ----------
    job : str
        Its name in Vertex AI.
    """

    def __init__(self, job: str) -> None:
        super().__init__(f"the job {job} has this name and another request", 409)
        self.job = job


class BatchPrediction(NamedTuple):
    """A batch prediction.

    Parameters
    ----------
    resource : str
        Name of the model's version in Vertex AI.
    inputs : tuple of str
        URLs of the input files, which may have wildcards.
    output : str
        Folder in which Vertex AI creates a folder with the predictions.
    machine : VertexMachine
        Type of the machines.
    data_format : str
        Format of the inputs, a key of :data:`FORMATS`.
    batch_size : int
        Rows of one call of the model.
    max_workers : int
        Largest number of machines.
    service_account : str or None
        Service account of the containers.
    """

    resource: str
    inputs: tuple[str, ...]
    output: str
    machine: VertexMachine
    data_format: str = "json"
    batch_size: int = 64
    max_workers: int = 10
    service_account: str | None = None

    def build_request(self, name: str) -> Object:
        """Return the body of the request for a job with a display name."""
        request: Object = {
            "displayName": name,
            "model": self.resource,
            "inputConfig": {
                "instancesFormat": FORMATS[self.data_format],
                "gcsSource": {"uris": list(self.inputs)},
            },
            "outputConfig": {
                "predictionsFormat": "jsonl",
                "gcsDestination": {"outputUriPrefix": self.output},
            },
            "dedicatedResources": {
                "machineSpec": self.machine.spec(),
                "maxReplicaCount": self.max_workers,
            },
            "manualBatchTuningParameters": {"batchSize": self.batch_size},
        }
        if self.service_account:
            request["serviceAccount"] = self.service_account
        digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return {**request, "labels": {_DIGEST: digest[:32]}}


class PredictionJobsApi:
    """Requests for batch prediction jobs; raises GcpError."""

    def __init__(self, requests: VertexRequests) -> None:
        self._requests = requests

    def submit(self, body: Mapping[str, Any]) -> tuple[str, bool]:
        """Submit a job under its display name, once; return its name, and whether it is new.

        Vertex AI has neither tokens against a second creation nor unique names. If two requests at
        the same time have created jobs of the name, the later one is cancelled.

        Raises
        ------
        NameTakenError
            If a job of that name has another request.
        """
        found = self._find_first(body)
        if found is not None:
            return found, False
        token = uuid.uuid4().hex
        answer, own = self._requests.create(
            "batchPredictionJobs.create",
            lambda: self._find_own(body, token),
            parent=self._requests.session.location(),
            body={**body, "labels": {**body["labels"], _TOKEN: token}},
        )
        created = own or str(answer["name"])
        try:
            first = self._find_first(body) or created
        except NameTakenError:
            self.cancel(created)
            raise
        if first != created:
            self.cancel(created)
        return first, first == created

    def read(self, job: str) -> Object | None:
        """Return a job; None if Vertex AI does not have it."""
        return self._requests.read("batchPredictionJobs.get", name=job)

    def cancel(self, job: str) -> None:
        """Request the end of a job; one that has ended stays unchanged."""
        try:
            self._requests.repeat("batchPredictionJobs.cancel", name=job, body={})
        except GcpRequestError as error:
            found = self.read(job)
            if is_retryable(error) or (found is not None and not parse_job(found).has_ended):
                raise

    def _find_first(self, body: Mapping[str, Any]) -> str | None:
        """Return the first job of the display name; raise NameTakenError if it is another one."""
        jobs = self._list(body)
        if not jobs:
            return None
        # Commands that create jobs at the same moment must agree on the first one.
        first = min(jobs, key=lambda job: (str(job.get("createTime", "")), str(job["name"])))
        if first.get("labels", {}).get(_DIGEST) != body["labels"][_DIGEST]:
            raise NameTakenError(first["name"])
        return str(first["name"])

    def _find_own(self, body: Mapping[str, Any], token: str) -> str | None:
        """Return the job of the display name that has a token."""
        for job in self._list(body):
            if job.get("labels", {}).get(_TOKEN) == token:
                return str(job["name"])
        return None

    def _list(self, body: Mapping[str, Any]) -> list[Object]:
        """Return the jobs of the display name."""
        return self._requests.list_all(
            "batchPredictionJobs.list",
            "batchPredictionJobs",
            parent=self._requests.session.location(),
            filter=f'display_name="{body["displayName"]}"',
            fields="batchPredictionJobs(name,labels,createTime),nextPageToken",
        )
