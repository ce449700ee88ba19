"""Settings of steps that run as jobs of AWS Batch and of AWS Glue."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from hyperplane.spec.budget import read_budget
from hyperplane.spec.settings.kubernetes import IMAGE_PATTERN, Variable

#: Log group of Batch.
DEFAULT_LOG_GROUP = "/aws/batch/job"

_ROLE = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$"
_SOURCE = r"^[^=\x00-\x1f]+=arn:aws[a-z-]*:(secretsmanager|ssm):[^\x00-\x20]+$"
_PART = r"[A-Za-z0-9 +.:/@_-]"

Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$")]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")]
#: Name or ARN of a job queue.
Queue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_:/-]{0,255}$")]
Image = Annotated[str, StringConstraints(pattern=f"^{IMAGE_PATTERN}$")]
StagingUrl = Annotated[
    str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$")
]
Role = Annotated[str, StringConstraints(pattern=_ROLE)]
#: A secret of steps and the ARN of its value, as "database/password=arn:aws:...".
SecretSource = Annotated[str, StringConstraints(pattern=_SOURCE)]
Tag = Annotated[str, StringConstraints(pattern=f"^{_PART}{{1,128}}={_PART}{{0,256}}$")]
#: A requirement of pip for --additional-python-modules, whose separator is a comma.
PythonModule = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][^,\x00-\x20]{0,255}$")]
#: An object such as a wheel, for --extra-py-files.
PythonFile = Annotated[
    str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^,\x00-\x20]+$")
]
LogGroup = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/#-]{1,512}$")]


def _normalize_budget(value: Any) -> Any:
    """Return a budget as text, such as ``"5 USD"``, so that settings can be stored as JSON."""
    budget = read_budget(value)
    # All digits of the amount, which the text for messages does not have.
    return None if budget is None else f"{Decimal(repr(budget.amount)):f} {budget.unit}"


BudgetText = Annotated[str, BeforeValidator(_normalize_budget)]


class AwsBatchSettings(BaseModel):
    """Settings of steps on AWS Batch; ``config/runners.yaml`` explains each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: Region | None = None
    profile: Line | None = None
    queue: Queue | None = None
    image: Image | None = None
    staging: StagingUrl | None = None
    platform: Literal["ec2", "fargate"] = "ec2"
    job_role: Role | None = None
    execution_role: Role | None = None
    public_ip: bool = False
    cores: Annotated[float, Field(gt=0, le=256)] = 1.0
    ram_gb: Annotated[float, Field(gt=0, le=4096)] = 2.0
    stage: Literal["file", "folder"] = "file"
    send_package: bool = False
    root: Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$")] | None = None
    secrets: tuple[SecretSource, ...] = ()
    environ: tuple[Variable, ...] = ()
    tags: tuple[Tag, ...] = ()
    log_group: LogGroup = DEFAULT_LOG_GROUP
    budget: BudgetText | None = None


class GlueSettings(BaseModel):
    """Settings of steps on AWS Glue; ``config/runners.yaml`` explains each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: Region | None = None
    profile: Line | None = None
    role: Role | None = None
    staging: StagingUrl | None = None
    job_type: Literal["pythonshell", "glueetl"] = "pythonshell"
    glue_version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+$")] = "5.0"
    worker_type: Literal["G.1X", "G.2X", "G.4X", "G.8X"] = "G.1X"
    workers: Annotated[int, Field(ge=2, le=299)] = 2
    cores: Annotated[float, Field(gt=0, le=32)] = 0.25
    ram_gb: Annotated[float, Field(gt=0, le=128)] = 1.0
    python_modules: tuple[PythonModule, ...] = ()
    python_files: tuple[PythonFile, ...] = ()
    stage: Literal["file", "folder"] = "file"
    send_package: bool = False
    environ: tuple[Variable, ...] = ()
    tags: tuple[Tag, ...] = ()
    budget: BudgetText | None = None

    @property
    def root(self) -> None:
        """Return None: there is no image that could have the files of a pipeline."""

    @property
    def image(self) -> None:
        """Return None: Glue chooses the image."""
