"""Settings of the engines of Spark."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, field_validator

from hyperplane.spec.settings.base import Duration, EngineSettings, NotNegative
from hyperplane.spec.settings.kubernetes import Bytes, Cpu, PodSettings
from hyperplane.spec.settings.local import MachineSettings
from hyperplane.spec.settings.slurm import BatchSettings
from hyperplane.spec.settings.ssh import HostSettings

_KEY = re.compile(r"spark\.[A-Za-z0-9_.-]+")
#: Properties that a cluster sets: its address, security and sizes.
CLUSTER_PROPERTIES = frozenset(
    {
        "spark.authenticate",
        "spark.authenticate.secret",
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.executor.cores",
        "spark.executor.memory",
        "spark.local.dir",
        "spark.master",
        "spark.master.rest.enabled",
        "spark.submit.deployMode",
        "spark.ui.enabled",
        "spark.ui.killEnabled",
        "spark.ui.port",
    }
)

#: Properties that a cluster on several machines sets, too: its encryption.
ENCRYPTION_PROPERTIES = frozenset(
    {
        "spark.network.crypto.authEngineVersion",
        "spark.network.crypto.cipher",
        "spark.network.crypto.enabled",
        "spark.network.crypto.saslFallback",
    }
)

PropertyValue = bool | int | float | str


def describe_property(
    key: object, value: object, reserved: frozenset[str] = CLUSTER_PROPERTIES
) -> str:
    """Return what is allowed in place of a property; empty if it is valid.

    ``reserved`` are the names of the properties that the cluster sets. No message contains a value,
    because values may be secret.

    Examples
    --------
    >>> describe_property("spark.sql.shuffle.partitions", 8)
    ''
    >>> describe_property("spark.master", "local")
    'a property that the cluster does not set: spark.master is its address, security or size'
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        return "the name of a property of Spark, such as 'spark.sql.shuffle.partitions'"
    if key in reserved:
        return f"a property that the cluster does not set: {key} is its address, security or size"
    if not isinstance(value, str | int | float):
        return "a value that is text, a number, True or False"
    if not str(value).isprintable():
        return "a value without line breaks and other control characters"
    return ""


class SparkSettings(EngineSettings):
    """Settings of all engines of Spark."""

    #: Names of properties that the cluster sets.
    reserved: ClassVar[frozenset[str]] = CLUSTER_PROPERTIES | ENCRYPTION_PROPERTIES

    dashboard: bool = True
    properties: dict[str, PropertyValue] = Field(default_factory=dict)

    @field_validator("properties")
    @classmethod
    def _check_properties(cls, properties: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
        allowed = {
            key: describe_property(key, value, cls.reserved) for key, value in properties.items()
        }
        if faults := [f"{key}: {text}" for key, text in allowed.items() if text]:
            raise ValueError(f"valid properties of Spark; {'; '.join(faults)}")
        return properties


class SparkLocalSettings(MachineSettings, SparkSettings):
    """Settings of the engine ``spark:local``; ``config/engines.yaml`` explains each."""

    reserved: ClassVar[frozenset[str]] = CLUSTER_PROPERTIES


class SparkSshSettings(HostSettings, SparkSettings):
    """Settings of the engine ``spark:ssh``; ``config/engines.yaml`` explains each."""

    inherited: ClassVar[frozenset[str]] = (
        frozenset(HostSettings.model_fields) | {"local_directory"}
    ) - {"idle_timeout"}

    java_home: str | None = None
    local_directory: str | None = None
    idle_timeout: Duration | None = "30 minutes"


class SparkSlurmSettings(BatchSettings, SparkSettings):
    """Settings of the engine ``spark:slurm``; ``config/engines.yaml`` explains each."""

    inherited: ClassVar[frozenset[str]] = frozenset(BatchSettings.model_fields) - {
        "idle_timeout",
        "memory_margin_gb",
    }

    memory_margin_gb: NotNegative = 0.5
    idle_timeout: Duration | None = "30 minutes"


class SparkKubernetesSettings(PodSettings, SparkSettings):
    """Settings of the engine ``spark:kubernetes``; ``config/engines.yaml`` explains each."""

    inherited: ClassVar[frozenset[str]] = frozenset(PodSettings.model_fields) - {"idle_timeout"}

    context: Annotated[str, StringConstraints(min_length=1)] | None = None
    dashboard: bool = False
    driver_cpu: Cpu = 1.0
    driver_ram: Bytes = "2Gi"
