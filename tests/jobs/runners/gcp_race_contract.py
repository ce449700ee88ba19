"""Races that the runners for services of Google share: jobs of another project."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from service_race_contract import FIRST, STEP, Runner, ServiceRaceContract, wait_for_line

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.gcp_job_id import GcpJobId

PROJECT = "flights-test"


class GcpRaceContract(ServiceRaceContract):
    """The session of a double is of the project ``PROJECT``."""

    def test_the_project_of_a_submission_is_stored(self, command: AttemptCommand) -> None:
        self.work(self.fake(), lambda runner: runner.start(command, STEP, 1.0))
        stored = self.job_id_type.read(command)
        assert isinstance(stored, GcpJobId)
        assert (stored.id, stored.project) == (FIRST, PROJECT)

    @pytest.mark.parametrize("job_id", [FIRST, ""])
    def test_a_job_of_another_project_is_not_lost(
        self, command: AttemptCommand, job_id: str
    ) -> None:
        fake, unsent = self.fake(), self.unsent
        assert isinstance(unsent, GcpJobId)
        replace(unsent, project="other-project", id=job_id, written=1000.0).write(command)

        text = (
            "project other-project of Google Cloud, but the settings and credentials are of "
            f"project {PROJECT}"
        )

        async def run(runner: Runner) -> None:
            waiting = asyncio.ensure_future(runner.reattach(command).wait())
            await wait_for_line(command, text)
            await asyncio.sleep(0.2)
            assert not waiting.done()
            waiting.cancel()

        self.work(fake, run)
        assert fake.ended == []
