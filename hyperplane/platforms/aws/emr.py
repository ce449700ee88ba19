"""Requests to Amazon EMR: start, find and end clusters; add, find, read and cancel steps.

A run is named as the id of a cluster that has only its step, or as ``CLUSTER/STEP`` for a step
of a cluster of the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsRequestError
from hyperplane.platforms.aws.run_status import seconds_of

#: Maximum steps that one request reads by their ids.
_READ_LIMIT = 10
#: HTTP status of a request that can be repeated.
_REPEAT = 429
#: Parts of the messages of EMR, which has the same error code for all invalid requests: of a
#: cluster that it does not have, and of a cluster with the most steps that may wait.
_UNKNOWN_CLUSTER, _TOO_MANY_STEPS = "is not valid", "maximum number of active steps"

Object = dict[str, Any]


class EmrApi(AwsApi):
    """Requests to EMR; each is sent once, and raises AwsError if it fails."""

    service: ClassVar[str] = "emr"

    def start(self, request: Mapping[str, Any]) -> str:
        """Start a cluster, or add a step to one; return the name of the run.

        ``request`` is that of ``run_job_flow`` with one step, or of ``add_job_flow_steps``, which
        has the key ``JobFlowId``. EMR has no tokens against a second start.
        """
        if "JobFlowId" not in request:
            return str(self.read("JobFlowId", "run_job_flow", **request))
        try:
            steps = self.read("StepIds", "add_job_flow_steps", **request)
        except AwsRequestError as error:
            if _TOO_MANY_STEPS not in str(error).lower():
                raise
            raise AwsRequestError(str(error), error.code, _REPEAT) from error
        if not steps:
            raise AwsConnectionError("the answer of Amazon has no step (emr add_job_flow_steps)")
        return f"{request['JobFlowId']}/{steps[0]}"

    def find_clusters(self, name: str, since: float) -> list[str]:
        """Return the ids of the clusters with a name that were started since a time, oldest first.

        ``since`` is in seconds since 1970.
        """
        after = datetime.fromtimestamp(since, UTC)
        pages = self.pages("Clusters", "Marker", "list_clusters", CreatedAfter=after)
        found = [cluster for page in pages for cluster in page if cluster["Name"] == name]
        return [str(cluster["Id"]) for cluster in sorted(found, key=_created)]

    def find_steps(self, cluster: str, name: str, since: float) -> list[str]:
        """Return the runs of a cluster with a name that were added since a time, oldest first."""
        found = []
        for page in self.pages("Steps", "Marker", "list_steps", ClusterId=cluster):
            found += [step for step in page if step["Name"] == name]
            if page and _created(page[-1]) < since:  # EMR lists the newest first
                break
        return [f"{cluster}/{step['Id']}" for step in sorted(found, key=_created)]

    def read_runs(self, cluster: str, runs: Iterable[str]) -> dict[str, Object]:
        """Return runs of a cluster by name: ``Step``, ``Cluster``; ``Shared`` for one of a user.

        EMR has no error for single steps that it does not have.
        """
        wanted = list(runs)
        described = self.describe_cluster(cluster)
        if described is None:
            return {}
        if wanted == [cluster]:
            steps = self.read("Steps", "list_steps", ClusterId=cluster)
            return {cluster: {"Cluster": described, "Step": steps[-1]}} if steps else {}
        found = [
            step
            for start in range(0, len(wanted), _READ_LIMIT)
            for step in self._read_steps(cluster, wanted[start : start + _READ_LIMIT])
        ]
        shared = {"Cluster": described, "Shared": True}
        return {f"{cluster}/{step['Id']}": {**shared, "Step": step} for step in found}

    def describe_cluster(self, cluster: str) -> Object | None:
        """Return a cluster; None if EMR does not have it."""
        try:
            found: Object = self.read("Cluster", "describe_cluster", ClusterId=cluster)
        except AwsRequestError as error:
            if _UNKNOWN_CLUSTER not in str(error):
                raise
            return None
        return found

    def stop(self, run: str) -> None:
        """Request the end of a run: of its cluster, or of its step with all of its processes."""
        cluster, _, step = run.partition("/")
        if not step:
            self.send("terminate_job_flows", JobFlowIds=[cluster])
            return
        answer = self.send(
            "cancel_steps",
            ClusterId=cluster,
            StepIds=[step],
            StepCancellationOption="TERMINATE_PROCESS",
        )
        for each in answer.get("CancelStepsInfoList", []):  # the status of the answer is 200
            if each.get("Status") == "FAILED":
                text = f"Amazon did not cancel the step (emr cancel_steps): {each.get('Reason')}"
                raise AwsRequestError(text, "Failed", 400)

    def instance_types(self, release: str) -> list[str]:
        """Return the instance types that a release of EMR supports."""
        pages = self.pages(
            "SupportedInstanceTypes",
            "Marker",
            "list_supported_instance_types",
            ReleaseLabel=release,
        )
        return [str(each["Type"]) for page in pages for each in page]

    def check_access(self) -> None:
        """Send a request that changes nothing; raise AwsError if it is refused."""
        self.send("list_clusters", ClusterStates=["STARTING"])

    def _read_steps(self, cluster: str, runs: Sequence[str]) -> list[Object]:
        ids = [run.partition("/")[2] for run in runs]
        steps: list[Object] = self.read("Steps", "list_steps", ClusterId=cluster, StepIds=ids)
        return steps


def _created(entry: Mapping[str, Any]) -> float:
    """Return when a cluster or step was created."""
    return seconds_of(entry.get("Status", {}).get("Timeline", {}).get("CreationDateTime"))
