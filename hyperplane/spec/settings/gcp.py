"""Settings of steps that run as custom jobs of Vertex AI, or as jobs of Cloud Run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hyperplane.core.pydantic_faults import text_like
from hyperplane.spec.settings.aws import BudgetText
from hyperplane.spec.settings.kubernetes import Image, Variable

_LABEL = r"[a-z0-9_-]"

Project = Annotated[
    str,
    text_like(
        r"^[a-z][a-z0-9.:-]{4,61}[a-z0-9]$",
        "the id of a project: 6 to 63 lower-case letters, digits and -, such as flights-371",
    ),
]
GcpRegion = Annotated[str, text_like(r"^[a-z]+-[a-z]+[0-9]+$", "a region, such as europe-west1")]
GcsUrl = Annotated[
    str,
    text_like(
        r"^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$",
        "the URL of a bucket or a folder in it, such as gs://my-bucket/staging",
    ),
]
ServiceAccount = Annotated[
    str,
    text_like(
        r"^[a-z0-9-]{1,63}@[a-z0-9.:-]+\.gserviceaccount\.com$",
        "the address of a service account, such as jobs@flights-371.iam.gserviceaccount.com",
    ),
]
#: A network as "projects/NUMBER/global/networks/NAME".
Network = Annotated[
    str,
    text_like(
        r"^projects/[0-9]+/global/networks/[a-z0-9-]{1,63}$",
        "a network, such as projects/123456789/global/networks/default",
    ),
]
MachineType = Annotated[
    str, text_like(r"^[a-z][a-z0-9]*(-[a-z0-9]+)+$", "a type of machine, such as n1-standard-4")
]
#: A label as "key=value".
Label = Annotated[
    str,
    text_like(
        f"^[a-z]{_LABEL}{{0,62}}={_LABEL}{{0,63}}$",
        "a label of lower-case letters, digits, _ and -, such as team=data",
    ),
]

#: A secret of steps and where Secret Manager has it, as "database/password=flights-database:3".
SecretSource = Annotated[
    str,
    text_like(
        r"^[^=\x00-\x1f]+=(projects/[a-z0-9.:-]+/secrets/)?[A-Za-z0-9_-]{1,255}"
        r"(:[A-Za-z0-9_-]{1,63})?$",
        "a secret of steps and its name in Secret Manager, such as "
        "database/password=flights-database:3",
    ),
]


class GcpJobSettings(BaseModel):
    """Settings of jobs that all services of Google Cloud have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: Project | None = None
    region: GcpRegion | None = None
    image: Image | None = None
    staging: GcsUrl | None = None
    create_bucket: bool = False
    service_account: ServiceAccount | None = None
    stage: Literal["file", "folder"] = "file"
    send_package: bool = False
    root: (
        Annotated[str, text_like(r"^/[^\x00-\x1f]*$", "an absolute path, such as /app")] | None
    ) = None
    environ: tuple[Variable, ...] = ()
    labels: tuple[Label, ...] = ()
    budget: BudgetText | None = None


class VertexSettings(GcpJobSettings):
    """Settings of steps on Vertex AI; ``config/runners.yaml`` explains each."""

    series: Literal["e2", "n1", "n2", "c2", "g2", "a2", "a3"] = "e2"
    machine_type: MachineType | None = None
    gpu_type: (
        Literal[
            "NVIDIA_TESLA_T4",
            "NVIDIA_TESLA_P4",
            "NVIDIA_TESLA_P100",
            "NVIDIA_TESLA_V100",
            "NVIDIA_L4",
            "NVIDIA_TESLA_A100",
            "NVIDIA_A100_80GB",
            "NVIDIA_H100_80GB",
        ]
        | None
    ) = None
    spot: bool = False
    disk_gb: Annotated[int, Field(ge=100, le=64_000)] = 100
    network: Network | None = None
    cores: Annotated[float, Field(gt=0, le=256)] = 1.0
    ram_gb: Annotated[float, Field(gt=0, le=4096)] = 2.0


class CloudRunSettings(GcpJobSettings):
    """Settings of steps on Cloud Run; ``config/runners.yaml`` explains each."""

    cores: Annotated[float, Field(gt=0, le=8)] = 1.0
    ram_gb: Annotated[float, Field(gt=0, le=34)] = 2.0
    secrets: tuple[SecretSource, ...] = ()
