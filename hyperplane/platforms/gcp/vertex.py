"""Requests to Vertex AI: create, find, read and cancel custom jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hyperplane.platforms.gcp.errors import NOT_FOUND, GcpConnectionError, GcpRequestError
from hyperplane.platforms.gcp.job_status import ENDED
from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.gcp.session import GcpSession

#: Maximum jobs of one page.
_PAGE = 100
_JOBS = "projects.locations.customJobs"
#: Collection of tuning jobs, whose trials are custom jobs.
_TUNING_JOBS = "projects.locations.hyperparameterTuningJobs"
_TUNING_PART = "/hyperparameterTuningJobs/"
#: Field of a tuning job with the spec of its trials.
_TRIAL_SPEC = "trialJobSpec"
#: The service with the permissions that the requests below need.
SERVICE = CheckedService(
    "aiplatform",
    "Vertex AI",
    _JOBS,
    (
        "aiplatform.customJobs.cancel",
        "aiplatform.customJobs.create",
        "aiplatform.customJobs.get",
        "aiplatform.customJobs.list",
        "logging.logEntries.list",
    ),
)
#: Fields of a job that are read.
_FIELDS = "name,state,error,startTime,endTime,createTime"
_TRIAL_FIELDS = "trials(id,state,customJob,parameters,finalMeasurement)"
_TUNING_FIELDS = f"{_FIELDS},studySpec(metrics),{_TRIAL_FIELDS}"

Object = dict[str, Any]


class VertexApi:
    """Requests to Vertex AI; each is sent once, and raises GcpError if it fails."""

    def __init__(self, session: GcpSession) -> None:
        self._session = session

    def create(self, job: Mapping[str, Any]) -> str:
        """Create a job and return its name. Vertex AI has no tokens against a second creation.

        A job with ``trialJobSpec`` is a tuning job.
        """
        jobs = _TUNING_JOBS if _TRIAL_SPEC in job else _JOBS
        answer = self._session.call(
            "aiplatform", f"{jobs}.create", parent=self._session.location(), body=job
        )
        if not answer.get("name"):
            raise GcpConnectionError("the answer of Google has no name (aiplatform create)")
        return str(answer["name"])

    def find_jobs(self, display_name: str, *, is_tuning: bool = False) -> list[str]:
        """Return the names of the jobs with a display name, in all states, oldest first."""
        collection = _TUNING_JOBS if is_tuning else _JOBS
        jobs = self._list(f'display_name="{display_name}"', collection)
        return [job["name"] for job in sorted(jobs, key=lambda job: job.get("createTime", ""))]

    def list_active(self, prefix: str) -> dict[str, Object]:
        """Return the jobs whose display name has a prefix and that have not ended, by name."""
        # Only forms of filters that the discovery document shows.
        ended = " AND ".join(f'state!="{state}"' for state in ENDED)
        jobs = self._list(f'display_name:"{prefix}*" AND {ended}')
        return {job["name"]: job for job in jobs}

    def read_jobs(self, names: Iterable[str]) -> dict[str, Object]:
        """Return jobs by name, without those that Vertex AI does not have."""
        jobs: dict[str, Object] = {}
        for name in names:
            try:
                fields = _TUNING_FIELDS if _TUNING_PART in name else _FIELDS
                jobs[name] = self._session.call(
                    "aiplatform", f"{_collection(name)}.get", name=name, fields=fields
                )
            except GcpRequestError as error:
                if error.status != NOT_FOUND:
                    raise
        return jobs

    def cancel(self, name: str) -> None:
        """Request the end of a job; one that has ended stays unchanged."""
        self._session.call("aiplatform", f"{_collection(name)}.cancel", name=name, body={})

    def _list(self, filter_text: str, collection: str = _JOBS) -> list[Object]:
        key = collection.rpartition(".")[2]
        jobs: list[Object] = []
        token: dict[str, str] = {}
        while True:
            answer = self._session.call(
                "aiplatform",
                f"{collection}.list",
                parent=self._session.location(),
                filter=filter_text,
                pageSize=_PAGE,
                fields=f"{key}({_FIELDS}),nextPageToken",
                **token,
            )
            jobs += answer.get(key, [])
            if not answer.get("nextPageToken"):
                return jobs
            token = {"pageToken": answer["nextPageToken"]}


def _collection(name: str) -> str:
    """Return the collection of a job by its name."""
    return _TUNING_JOBS if _TUNING_PART in name else _JOBS
