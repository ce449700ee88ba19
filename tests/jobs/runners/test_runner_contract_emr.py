"""The contract of runners on moto's EMR whose steps are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emr_service
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline

RUNNERS = "hyperplane.jobs.runners"


@pytest.mark.service
@pytest.mark.slow
class TestEmr(RunnerContract):
    name = "emr"

    @pytest.fixture
    def options(
        self, moto: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        monkeypatch.setattr(f"{RUNNERS}.emr.emr_process.EmrProcess.poll_seconds", 0.1)
        monkeypatch.setattr(f"{RUNNERS}.stored_output.LOG_SECONDS", 0.3)
        monkeypatch.setattr(f"{RUNNERS}.stored_output.LOG_PAUSE", 0.1)
        emr_service.create_roles(moto)
        service = emr_service.EmrService(moto, tmp_path_factory.mktemp("steps"))
        for name, text in emr_service.variables(moto, service.url).items():
            monkeypatch.setenv(name, text)
        yield emr_service.options()
        service.close()

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["staging"]
        return "hyperplane.runners.emr.staging is not set"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on emr"

    async def finish(self, runner: Any) -> None:
        await runner.close()
