"""Settings of steps that run as jobs of AWS Batch and AWS Glue, and on Amazon EMR."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hyperplane.core.pydantic_faults import text_like
from hyperplane.spec.budget import read_budget
from hyperplane.spec.settings.kubernetes import Image, Variable

#: Log group of Batch.
DEFAULT_LOG_GROUP = "/aws/batch/job"

_ROLE = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$"
_SOURCE = r"^[^=\x00-\x1f]+=arn:aws[a-z-]*:(secretsmanager|ssm):[^\x00-\x20]+$"
_PART = r"[A-Za-z0-9 +.:/@_-]"

Line = Annotated[str, text_like(r"^[^\x00-\x1f]+$", "one line of text")]
Region = Annotated[str, text_like(r"^[a-z]{2}(-[a-z]+)+-[0-9]+$", "a region, such as us-east-1")]
#: Name or ARN of a job queue.
Queue = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9][A-Za-z0-9_:/-]{0,255}$", "the name or ARN of a job queue, such as my-queue"
    ),
]
StagingUrl = Annotated[
    str,
    text_like(
        r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$",
        "the URL of a bucket or a folder in it, such as s3://my-bucket/staging",
    ),
]
Role = Annotated[
    str, text_like(_ROLE, "the ARN of a role, such as arn:aws:iam::123456789012:role/jobs")
]
#: A secret of steps and the ARN of its value, as "database/password=arn:aws:...".
SecretSource = Annotated[
    str,
    text_like(
        _SOURCE,
        "a secret of steps and its ARN, such as database/password="
        "arn:aws:secretsmanager:us-east-1:123456789012:secret:flights",
    ),
]
Tag = Annotated[
    str,
    text_like(
        f"^{_PART}{{1,128}}={_PART}{{0,256}}$", "the key and value of a tag, such as team=data"
    ),
]
#: A requirement of pip for --additional-python-modules, whose separator is a comma.
PythonModule = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9][^,\x00-\x20]{0,255}$",
        "a requirement of pip without blanks and commas, such as pandas==2.2.3",
    ),
]
#: An object such as a wheel, for --extra-py-files.
PythonFile = Annotated[
    str,
    text_like(
        r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^,\x00-\x20]+$",
        "the URL of an object, such as s3://my-bucket/my_package.whl",
    ),
]
#: Name, or ARN, of a role or of an instance profile.
RoleName = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9+=,.@_:/-]{1,640}$", "the name or ARN of a role, such as EMR_DefaultRole"
    ),
]
#: An option of Spark, as "spark.sql.shuffle.partitions=64".
SparkOption = Annotated[
    str,
    text_like(
        r"^spark\.[A-Za-z0-9._-]+=[^\x00-\x1f]*$",
        "an option of Spark, such as spark.sql.shuffle.partitions=64",
    ),
]
#: URL of a script and its arguments, in the words of a shell.
BootstrapAction = Annotated[
    str,
    text_like(
        r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^\x00-\x1f'\"\\]+$",
        "the URL of a script and its arguments, such as s3://my-bucket/setup.sh --fast",
    ),
]
#: Name of a package of Amazon Linux.
SystemPackage = Annotated[
    str, text_like(r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", "the name of a package, such as libgomp")
]
PythonName = Annotated[
    str,
    text_like(
        r"^(/[A-Za-z0-9._/-]+/)?python3(\.[0-9]+)?$",
        "a program of Python 3, such as python3.11 or /usr/bin/python3",
    ),
]
LogGroup = Annotated[
    str,
    text_like(r"^[A-Za-z0-9._/#-]{1,512}$", "the name of a log group, such as /aws/batch/job"),
]


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
    create_bucket: bool = False
    platform: Literal["ec2", "fargate"] = "ec2"
    job_role: Role | None = None
    execution_role: Role | None = None
    public_ip: bool = False
    cores: Annotated[float, Field(gt=0, le=256)] = 1.0
    ram_gb: Annotated[float, Field(gt=0, le=4096)] = 2.0
    stage: Literal["file", "folder"] = "file"
    send_package: bool = False
    root: (
        Annotated[str, text_like(r"^/[^\x00-\x1f]*$", "an absolute path, such as /app")] | None
    ) = None
    secrets: tuple[SecretSource, ...] = ()
    environ: tuple[Variable, ...] = ()
    tags: tuple[Tag, ...] = ()
    log_group: LogGroup = DEFAULT_LOG_GROUP
    budget: BudgetText | None = None


class _DriverSettings(BaseModel):
    """Settings of the services whose attempts are the programs of drivers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: Region | None = None
    profile: Line | None = None
    staging: StagingUrl | None = None
    create_bucket: bool = False
    python_files: tuple[PythonFile, ...] = ()
    stage: Literal["file", "folder"] = "file"
    send_package: bool = False
    environ: tuple[Variable, ...] = ()
    tags: tuple[Tag, ...] = ()
    budget: BudgetText | None = None

    @property
    def root(self) -> None:
        """Return None: the files of a pipeline are always sent."""

    @property
    def image(self) -> None:
        """Return None: the service has the image."""


class GlueSettings(_DriverSettings):
    """Settings of steps on AWS Glue; ``config/runners.yaml`` explains each."""

    role: Role | None = None
    job_type: Literal["pythonshell", "glueetl"] = "pythonshell"
    glue_version: Annotated[str, text_like(r"^[0-9]+\.[0-9]+$", "a version, such as 5.0")] = "5.0"
    worker_type: Literal["G.1X", "G.2X", "G.4X", "G.8X"] = "G.1X"
    workers: Annotated[int, Field(ge=2, le=299)] = 2
    cores: Annotated[float, Field(gt=0, le=32)] = 0.25
    ram_gb: Annotated[float, Field(gt=0, le=128)] = 1.0
    python_modules: tuple[PythonModule, ...] = ()


class EmrServerlessSettings(_DriverSettings):
    """Settings of steps on EMR Serverless; ``config/runners.yaml`` explains each."""

    application: (
        Annotated[
            str,
            text_like(r"^[0-9a-z]{1,64}$", "the id of an application, such as 00f1r2e3s4"),
        ]
        | None
    ) = None
    role: Role | None = None
    workers: Annotated[int, Field(ge=2, le=1000)] = 2
    cores: Annotated[float, Field(gt=0, le=16)] = 1.0
    ram_gb: Annotated[float, Field(gt=0, le=120)] = 2.0
    python: PythonName = "python3"
    spark_conf: tuple[SparkOption, ...] = ()


class EmrSettings(_DriverSettings):
    """Settings of steps on Amazon EMR; ``config/runners.yaml`` explains each."""

    cluster: (
        Annotated[
            str, text_like(r"^j-[A-Z0-9]{1,64}$", "the id of a cluster, such as j-2AXXXGAPLF")
        ]
        | None
    ) = None
    release: Annotated[
        str, text_like(r"^emr-[0-9]+\.[0-9]+\.[0-9]+$", "a release, such as emr-7.10.0")
    ] = "emr-7.10.0"
    service_role: RoleName = "EMR_DefaultRole"
    instance_profile: RoleName = "EMR_EC2_DefaultRole"
    subnet: (
        Annotated[
            str, text_like(r"^subnet-[0-9a-f]+$", "the id of a subnet, such as subnet-0a1b2c3d")
        ]
        | None
    ) = None
    instance_type: Literal[
        "m5.xlarge", "r5.xlarge", "m5.2xlarge", "r5.2xlarge",
        "m5.4xlarge", "r5.4xlarge", "m5.8xlarge", "r5.8xlarge",
    ] = "m5.xlarge"  # fmt: skip
    workers: Annotated[int, Field(ge=1, le=1000)] = 2
    cores: Annotated[float, Field(gt=0, le=32)] = 1.0
    ram_gb: Annotated[float, Field(gt=0, le=250)] = 2.0
    python: PythonName = "python3"
    system_packages: tuple[SystemPackage, ...] = ()
    python_modules: tuple[PythonModule, ...] = ()
    bootstrap_actions: tuple[BootstrapAction, ...] = ()
    spark_conf: tuple[SparkOption, ...] = ()
