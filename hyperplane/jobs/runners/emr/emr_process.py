"""One attempt on Amazon EMR."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.emr.emr_client import EmrClient
from hyperplane.jobs.runners.emr.emr_job_id import EmrJobId
from hyperplane.jobs.runners.stored_output import StoredOutputProcess
from hyperplane.platforms.aws.emr_status import CLUSTER_ENDED, EmrStepStatus, parse_step


class EmrProcess(StoredOutputProcess[EmrJobId, EmrStepStatus]):
    """One attempt as a step of EMR; a cluster that was started for it ends with it."""

    poll_seconds: ClassVar[float] = 15.0
    confirm_seconds: ClassVar[float] = 300.0
    platform: ClassVar[str] = "Amazon EMR"

    def __init__(self, command: AttemptCommand, client: EmrClient) -> None:
        super().__init__(command, client, EmrJobId, parse_step)

    async def _copy_results(self, job_id: EmrJobId, status: EmrStepStatus) -> None:
        await super()._copy_results(job_id, status)
        if "/" not in job_id.id and status.cluster_state not in CLUSTER_ENDED:
            # It ends without this, too; only a request says that it does.
            error = await self._client.end(job_id)
            if error is not None:
                self._files.append_line(f"cluster {job_id.id} may not have ended: {error}")
