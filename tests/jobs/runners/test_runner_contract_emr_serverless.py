"""The contract of runners on moto's EMR Serverless whose drivers are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emr_serverless_service
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline

PROCESS = "hyperplane.jobs.runners.emr_serverless.serverless_process.ServerlessProcess"


@pytest.mark.service
@pytest.mark.slow
class TestEmrServerless(RunnerContract):
    name = "emr-serverless"

    @pytest.fixture
    def options(
        self, moto: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        monkeypatch.setattr(f"{PROCESS}.poll_seconds", 0.1)
        monkeypatch.setattr("hyperplane.jobs.runners.stored_output.LOG_SECONDS", 0.3)
        monkeypatch.setattr("hyperplane.jobs.runners.stored_output.LOG_PAUSE", 0.1)
        emr_serverless_service.create_roles(moto)
        folder = tmp_path_factory.mktemp("drivers")
        service = emr_serverless_service.EmrServerlessService(moto, folder)
        for name, text in emr_serverless_service.variables(moto, service.url).items():
            monkeypatch.setenv(name, text)
        yield emr_serverless_service.options(service.create_application())
        service.close()

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["role"]
        return "hyperplane.runners.emr_serverless.role is not set"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on emr-serverless"

    async def finish(self, runner: Any) -> None:
        await runner.close()
