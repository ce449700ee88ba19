"""Races that the runners for services of Amazon share: jobs of another account."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from service_race_contract import FIRST, Runner, ServiceRaceContract, wait_for_line

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_process import AwsJobId


class AwsRaceContract(ServiceRaceContract):
    """A double of the service is in account 111111111111."""

    @pytest.mark.parametrize("job_id", [FIRST, ""])
    def test_a_job_of_another_account_is_not_lost(
        self, command: AttemptCommand, job_id: str
    ) -> None:
        fake, unsent = self.fake(), self.unsent
        assert isinstance(unsent, AwsJobId)
        replace(unsent, account="222222222222", id=job_id, written=1000.0).write(command)

        text = "account 222222222222 of Amazon, but the credentials are of account 111111111111"

        async def run(runner: Runner) -> None:
            waiting = asyncio.ensure_future(runner.reattach(command).wait())
            await wait_for_line(command, text)
            await asyncio.sleep(0.2)
            assert not waiting.done()
            waiting.cancel()

        self.work(fake, run)
        assert fake.ended == []
