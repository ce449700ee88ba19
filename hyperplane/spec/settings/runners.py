"""Settings of the runners that have no engine of clusters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from hyperplane.spec.settings.aws import (
    AwsBatchSettings,
    EmrServerlessSettings,
    EmrSettings,
    GlueSettings,
)
from hyperplane.spec.settings.gcp import CloudRunSettings, VertexSettings


class RunnersSection(BaseModel):
    """Settings of the runners that have no engine of clusters, by their names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    aws_batch: AwsBatchSettings = AwsBatchSettings()
    vertex: VertexSettings = VertexSettings()
    cloud_run: CloudRunSettings = CloudRunSettings()
    glue: GlueSettings = GlueSettings()
    emr: EmrSettings = EmrSettings()
    emr_serverless: EmrServerlessSettings = EmrServerlessSettings()
