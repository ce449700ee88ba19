"""What the settings of all engines have, and the kinds of values in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hyperplane.errors import RequestError
from hyperplane.spec.faults import faults_of, with_known
from hyperplane.units import as_dask_writes, parse_seconds

if TYPE_CHECKING:
    from typing import Self

Fraction = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _duration(value: str | float) -> str | float:
    try:
        if 0 <= parse_seconds(value) <= _LONGEST:
            return cast("str | float", as_dask_writes(value))  # some settings are handed to Dask
    except ValueError:
        pass
    allowed = f"seconds up to {_LONGEST:g}, or text such as '300s', '30m' or '2 hours'"
    raise ValueError(allowed)


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("seconds, or text such as '300s', '30m' or '2 hours'")
    return value


#: Some thirty years: a longer time is a slip.
_LONGEST = 1e9
Duration = Annotated[str | float, AfterValidator(_duration), BeforeValidator(_no_truth_value)]


class EngineSettings(BaseModel):
    """What every engine has: when an idle cluster ends by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    idle_timeout: Duration | None = None

    def with_options(self, options: Mapping[str, Any], where: str = "engine_options") -> Self:
        """The settings with some of them as one call wants them.

        Raises
        ------
        RequestError
            With every option that there is not or that has a wrong value.
        """
        given = {str(name).replace("-", "_"): value for name, value in options.items()}
        try:
            return type(self)(**{**self.model_dump(), **given})
        except ValidationError as error:
            found = faults_of(error, where)
            known = type(self).model_fields
            raise RequestError([with_known(fault, known, where) for fault in found]) from error


class StartupSettings(EngineSettings):
    """How long is waited for workers; ``config/engines.yaml`` explains each."""

    lost_worker_timeout: Duration = "300s"
    no_workers_timeout: Duration = "300s"
    worker_ttl: Duration = "60s"


class RemoteSettings(StartupSettings):
    """What engines have whose workers are elsewhere; ``config/engines.yaml`` explains each."""

    idle_timeout: Duration | None = "30 minutes"
    versions: Literal["refuse", "warn"] = "refuse"
