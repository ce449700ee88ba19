"""The contract of runners on a Cloud Run whose containers are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloud_run_service
import google_service
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline
from hyperplane.jobs.runners.cloud_run.cloud_run_process import CloudRunProcess


@pytest.mark.service
@pytest.mark.slow
class TestCloudRun(RunnerContract):
    name = "cloud-run"

    @pytest.fixture
    def options(
        self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        google_service.speed_up(monkeypatch, CloudRunProcess)
        with cloud_run_service.running(tmp_path_factory.mktemp("cloud-run")) as service:
            for name, text in google_service.variables(service).items():
                monkeypatch.setenv(name, text)
            yield google_service.options()
            assert service.jobs == {}

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["image"]
        return "hyperplane.runners.cloud_run.image is not set"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on cloud-run"

    async def finish(self, runner: Any) -> None:
        await runner.close()
