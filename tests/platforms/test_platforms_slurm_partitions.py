"""Slurm's messages on a batch script: which refusals are certain."""

from __future__ import annotations

import asyncio

import pytest

from hyperplane.platforms.slurm import partitions
from hyperplane.platforms.slurm.commands import CommandResult


@pytest.mark.parametrize(
    ("message", "certain"),
    [
        ("sbatch: error: invalid partition specified: lnog", True),
        ("allocation failure: Invalid partition name specified", True),
        ("allocation failure: Invalid account or account/partition combination specified", True),
        ("allocation failure: Invalid qos specification", True),
        ("sbatch: error: Invalid directive found in batch script: #SBATCH nodes=1", True),
        ("sbatch: unrecognized option '--node'", True),
        ("allocation failure: Requested node configuration is not available", True),
        (
            "allocation failure: Job violates accounting/QOS policy (job submit limit, user's "
            "size and/or time limits)",
            False,
        ),
        ("allocation failure: Requested partition configuration not available now", False),
        ("Required node not available (down, drained or reserved)", False),
        ("Requested time limit is invalid (missing or exceeds some limit)", False),
    ],
)
def test_refusals_after_which_jobs_may_wait_are_not_certain(
    message: str, certain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*arguments: object, **options: object) -> CommandResult:
        return CommandResult(1, "", message + "\n")

    monkeypatch.setattr(partitions, "run_command_async", refuse)
    refusal = asyncio.run(partitions.check_script("#!/bin/sh\n", 1.0))
    assert refusal is not None
    assert refusal.certain is certain
