"""The contract of runners on moto's AWS Glue whose scripts are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import glue_service
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline

RUNNERS = "hyperplane.jobs.runners"


@pytest.mark.service
@pytest.mark.slow
class TestGlue(RunnerContract):
    name = "glue"

    @pytest.fixture
    def options(
        self, moto: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        monkeypatch.setattr(f"{RUNNERS}.glue.glue_process.GlueProcess.poll_seconds", 0.1)
        monkeypatch.setattr(f"{RUNNERS}.cloudwatch_log.SETTLE_SECONDS", 0.3)
        glue_service.create_role(moto)
        service = glue_service.GlueService(moto, tmp_path_factory.mktemp("scripts"))
        for name, text in glue_service.variables(moto, service.url).items():
            monkeypatch.setenv(name, text)
        yield glue_service.options()
        service.close()

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["role"]
        return "hyperplane.runners.glue.role is not set"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on glue"

    async def finish(self, runner: Any) -> None:
        await runner.close()
