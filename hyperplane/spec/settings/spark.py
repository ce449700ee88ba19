"""Settings of the engines of Spark."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from hyperplane.spec.settings.local import MachineSettings

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

PropertyValue = bool | int | float | str


def describe_property(key: object, value: object) -> str:
    """Return what is allowed in place of a property; empty if it is valid.

    No message contains a value, because values may be secret.

    Examples
    --------
    >>> describe_property("spark.sql.shuffle.partitions", 8)
    ''
    >>> describe_property("spark.master", "local")
    'a property that the cluster does not set: spark.master is its address, security or size'
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        return "the name of a property of Spark, such as 'spark.sql.shuffle.partitions'"
    if key in CLUSTER_PROPERTIES:
        return f"a property that the cluster does not set: {key} is its address, security or size"
    if not isinstance(value, str | int | float):
        return "a value that is text, a number, True or False"
    if not str(value).isprintable():
        return "a value without line breaks and other control characters"
    return ""


def _check_properties(properties: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
    allowed = {key: describe_property(key, value) for key, value in properties.items()}
    if faults := [f"{key}: {text}" for key, text in allowed.items() if text]:
        raise ValueError(f"valid properties of Spark; {'; '.join(faults)}")
    return properties


Properties = Annotated[dict[str, PropertyValue], AfterValidator(_check_properties)]


class SparkLocalSettings(MachineSettings):
    """Settings of the engine ``spark:local``; ``config/engines.yaml`` explains each."""

    dashboard: bool = True
    properties: Properties = Field(default_factory=dict)
