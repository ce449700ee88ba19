"""The contract of runners on moto's AWS Batch whose containers are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batch_service
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline

MODULE = "hyperplane.jobs.runners.aws_batch"


@pytest.mark.service
@pytest.mark.slow
class TestAwsBatch(RunnerContract):
    name = "aws-batch"

    @pytest.fixture
    def options(
        self, moto: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        monkeypatch.setattr(f"{MODULE}.batch_process.BatchProcess.poll_seconds", 0.1)
        monkeypatch.setattr("hyperplane.jobs.runners.cloudwatch_log.SETTLE_SECONDS", 0.3)
        service = batch_service.BatchService(moto, tmp_path_factory.mktemp("containers"))
        for name, text in batch_service.variables(moto, service.url).items():
            monkeypatch.setenv(name, text)
        yield batch_service.options()
        service.close()

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["image"]
        return "hyperplane.runners.aws_batch.image is not set"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on aws-batch"

    async def finish(self, runner: Any) -> None:
        await runner.close()
