"""The contract of runners on a Vertex AI whose containers are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_service
import pytest
import vertex_service
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline
from hyperplane.jobs.runners.vertex.vertex_process import VertexProcess


@pytest.mark.service
@pytest.mark.slow
class TestVertex(RunnerContract):
    name = "vertex"

    @pytest.fixture
    def options(
        self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        google_service.speed_up(monkeypatch, VertexProcess)
        with vertex_service.running(tmp_path_factory.mktemp("vertex")) as service:
            for name, text in vertex_service.variables(service).items():
                monkeypatch.setenv(name, text)
            yield vertex_service.options()

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["image"]
        return "hyperplane.runners.vertex.image is not set"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on vertex"

    async def finish(self, runner: Any) -> None:
        await runner.close()
