"""Base classes of engine settings and the types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hyperplane.core.errors import RequestError
from hyperplane.core.pydantic_faults import faults_from_validation, with_model_keys
from hyperplane.core.units import parse_seconds, to_dask_duration

if TYPE_CHECKING:
    from typing import Self

#: Longest accepted duration: about 30 years.
MAX_SECONDS = 1e9
Fraction = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _check_duration(value: str | float) -> str | float:
    try:
        if 0 <= parse_seconds(value) <= MAX_SECONDS:
            return cast("str | float", to_dask_duration(value))  # Dask itself parses some settings
    except ValueError:
        pass
    allowed = f"seconds from 0 to {MAX_SECONDS:g}, or text such as '300s', '30m' or '2 hours'"
    raise ValueError(allowed)


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("seconds, or text such as '300s', '30m' or '2 hours'")
    return value


Duration = Annotated[str | float, AfterValidator(_check_duration), BeforeValidator(_refuse_bool)]


class EngineSettings(BaseModel):
    """Settings that all engines have."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    #: Settings whose default is the value in the section of Dask's engine on the same platform.
    inherited: ClassVar[frozenset[str]] = frozenset()

    idle_timeout: Duration | None = None

    def with_options(self, options: Mapping[str, Any], where: str = "engine_options") -> Self:
        """Return a copy with some settings replaced.

        Raises
        ------
        RequestError
            With every option that is unknown or has an invalid value.
        """
        replacements = {str(name).replace("-", "_"): value for name, value in options.items()}
        try:
            return type(self)(**{**self.model_dump(), **replacements})
        except ValidationError as error:
            faults = faults_from_validation(error, where)
            raise RequestError(
                [with_model_keys(fault, type(self), where) for fault in faults]
            ) from error


class StartupSettings(EngineSettings):
    """Time limits for workers that do not start or are lost; see ``config/engines.yaml``."""

    lost_worker_timeout: Duration = "300s"
    no_workers_timeout: Duration = "300s"
    worker_ttl: Duration = "60s"


class RemoteSettings(StartupSettings):
    """Settings of engines whose workers run on other machines; see ``config/engines.yaml``."""

    idle_timeout: Duration | None = "30 minutes"
    versions: Literal["refuse", "warn"] = "refuse"
