"""Base classes of engine settings and the types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)

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


SettingsT = TypeVar("SettingsT", bound=BaseModel)


def replace_settings(settings: SettingsT, options: Mapping[str, Any], where: str) -> SettingsT:
    """Return a copy of a model with some settings replaced.

    Raises
    ------
    RequestError
        With every option that is unknown or has an invalid value; ``where`` is the argument.
    """
    replacements = {str(name).replace("-", "_"): value for name, value in options.items()}
    try:
        return type(settings)(**{**settings.model_dump(), **replacements})
    except ValidationError as error:
        faults = faults_from_validation(error, where)
        raise RequestError(
            [with_model_keys(fault, type(settings), where) for fault in faults]
        ) from error


Duration = Annotated[str | float, AfterValidator(_check_duration), BeforeValidator(_refuse_bool)]


class EngineSettings(BaseModel):
    """Settings that all engines have."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    #: Settings whose default is the value in the section of Dask's engine on the same platform.
    inherited: ClassVar[frozenset[str]] = frozenset()
    #: The section of these settings, or of Dask's engine on the same platform.
    section: ClassVar[str] = ""

    idle_timeout: Duration | None = None
    #: Keys of the configuration with inherited settings that another section overrides.
    _keys: dict[str, str] = PrivateAttr(default_factory=dict)

    def locate(self, name: str) -> str:
        """Return the key of the configuration with the value of a setting, for messages."""
        return self._keys.get(name, f"hyperplane.engines.{self.section}.{name}")

    def with_keys(self, keys: Mapping[str, str]) -> Self:
        """Return a copy whose settings are at these keys of the configuration."""
        copy = self.model_copy()
        copy._keys = dict(keys)
        return copy

    @property
    def setting_keys(self) -> dict[str, str]:
        """Keys of the configuration with inherited settings that another section overrides."""
        return dict(self._keys)

    def with_options(self, options: Mapping[str, Any], where: str = "engine_options") -> Self:
        """Return a copy with some settings replaced.

        Raises
        ------
        RequestError
            With every option that is unknown or has an invalid value.
        """
        return replace_settings(self, options, where).with_keys(self._keys)


class StartupSettings(EngineSettings):
    """Time limits for workers that do not start or are lost; see ``config/engines.yaml``."""

    lost_worker_timeout: Duration = "300s"
    no_workers_timeout: Duration = "300s"
    worker_ttl: Duration = "60s"
    stall_timeout: Duration | None = "60s"
    oom: Literal["retry", "raise"] = "retry"


class PreflightSettings(EngineSettings):
    """Setting of engines that check before a start what would make it fail."""

    preflight: bool = True


class RemoteSettings(StartupSettings, PreflightSettings):
    """Settings of engines whose workers run on other machines; see ``config/engines.yaml``."""

    idle_timeout: Duration | None = "30 minutes"
    versions: Literal["refuse", "warn"] = "refuse"


class LeaseTimes(EngineSettings):
    """Settings of the lease of clusters that outlive a killed program."""

    lease_timeout: Duration = "40s"
    keep_alive: bool = False

    @property
    def lease_seconds(self) -> float | None:
        """Seconds after the last heartbeat of a program; None if the cluster outlives them."""
        return None if self.keep_alive else parse_seconds(self.lease_timeout) or None


class LeaseSettings(RemoteSettings, LeaseTimes):
    """Settings of engines whose clusters outlive a killed program; see ``config/engines.yaml``."""
