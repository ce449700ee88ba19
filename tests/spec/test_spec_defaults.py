"""Defaults that the code and the files of ``config/`` both have are equal."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from hyperplane import utils
from hyperplane.clusters.registry import ENGINES
from hyperplane.config import engine_section
from hyperplane.core import config_defaults
from hyperplane.sizing.fit import SINGLE_PROCESS_CORES
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.settings import (
    AwsBatchSettings,
    CloudRunSettings,
    CudaSettings,
    EmailSettings,
    EmrServerlessSettings,
    EmrSettings,
    GatewaySettings,
    GlueSettings,
    HistorySettings,
    JobSettings,
    KubernetesSettings,
    LocalSettings,
    ProgressSettings,
    RayKubernetesSettings,
    RayLocalSettings,
    RaySlurmSettings,
    RaySshSettings,
    RunnersSection,
    SlurmSettings,
    SparkKubernetesSettings,
    SparkLocalSettings,
    SparkSlurmSettings,
    SparkSshSettings,
    SshSettings,
    VertexSettings,
)

#: Section below ``hyperplane.engines`` -> model.
MODELS: dict[str, type[BaseModel]] = {
    "local": LocalSettings,
    "ssh": SshSettings,
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
    "gateway": GatewaySettings,
    "cuda": CudaSettings,
    "ray_local": RayLocalSettings,
    "ray_ssh": RaySshSettings,
    "ray_slurm": RaySlurmSettings,
    "ray_kubernetes": RayKubernetesSettings,
    "spark_local": SparkLocalSettings,
    "spark_ssh": SparkSshSettings,
    "spark_slurm": SparkSlurmSettings,
    "spark_kubernetes": SparkKubernetesSettings,
}
#: Settings whose defaults differ: without the configuration, a model preloads nothing.
DIFFERENT = {("local", "preload")}


def section(file: str, *keys: str) -> dict[str, Any]:
    """Return a section of a shipped file."""
    found: dict[str, Any] = config_defaults.load_file(file)["hyperplane"]
    for key in keys:
        found = found[key]
    return found


def test_every_built_in_engine_has_a_settings_model_and_a_section() -> None:
    sections = set(section("engines.yaml", "engines")) - {"auto"}
    assert set(MODELS) == set(map(engine_section, ENGINES.built_in)) == sections


@pytest.mark.parametrize("engine", MODELS)
def test_defaults_of_an_engine(engine: str) -> None:
    model, shipped = MODELS[engine], section("engines.yaml", "engines", engine)
    skipped = {name for section_name, name in DIFFERENT if section_name == engine}
    in_code, in_file = model().model_dump(), model(**shipped).model_dump()
    assert {**in_code, **{name: in_file[name] for name in skipped}} == in_file
    # A setting that the file does not show would be unknown to its readers.
    assert set(model.model_fields) - getattr(model, "inherited", frozenset()) == set(shipped)


def test_defaults_of_jobs() -> None:
    shipped = section("jobs.yaml", "jobs")
    assert JobSettings() == JobSettings(**shipped)
    assert set(JobSettings.model_fields) == set(shipped)


def test_defaults_of_the_email() -> None:
    shipped = section("email.yaml", "email")
    assert EmailSettings() == EmailSettings(**shipped)
    assert set(EmailSettings.model_fields) == set(shipped)


def test_defaults_of_the_history() -> None:
    shipped = section("history.yaml", "history")
    assert HistorySettings() == HistorySettings(**shipped)
    assert set(HistorySettings.model_fields) == set(shipped)


def test_defaults_of_the_progress() -> None:
    shipped = section("progress.yaml", "progress")
    assert ProgressSettings() == ProgressSettings(**shipped)
    assert set(ProgressSettings.model_fields) == set(shipped)


def test_defaults_of_runners() -> None:
    shipped = section("runners.yaml", "runners")
    assert RunnersSection() == RunnersSection(**shipped)
    assert set(RunnersSection.model_fields) == set(shipped)
    assert set(AwsBatchSettings.model_fields) == set(shipped["aws_batch"])
    assert set(VertexSettings.model_fields) == set(shipped["vertex"])
    assert set(GlueSettings.model_fields) == set(shipped["glue"])
    assert set(EmrSettings.model_fields) == set(shipped["emr"])
    assert set(EmrServerlessSettings.model_fields) == set(shipped["emr_serverless"])
    assert set(CloudRunSettings.model_fields) == set(shipped["cloud_run"])


def test_defaults_of_the_memory_policy() -> None:
    shipped = section("memory.yaml", "memory")
    assert MemoryPolicy() == MemoryPolicy(**shipped)
    assert {field.name for field in fields(MemoryPolicy)} == set(shipped)


def test_defaults_of_sizing_and_services() -> None:
    local = section("engines.yaml", "engines", "local")
    assert local["single_process_cores"] == SINGLE_PROCESS_CORES
    assert section("services.yaml", "services")["url"] == utils._TEMPLATE
