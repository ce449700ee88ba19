"""What the settings of all engines have, and the kinds of values in them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dask.utils import parse_timedelta
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from hyperplane.errors import Fault, RequestError
from hyperplane.spec.faults import faults_of

if TYPE_CHECKING:
    from typing_extensions import Self

Fraction = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _duration(value: str | float) -> str | float:
    try:
        parse_timedelta(value)
    except (ValueError, LookupError):
        raise ValueError("seconds, or text such as '300s'") from None
    return value


Duration = Annotated[str | float, AfterValidator(_duration)]


class EngineSettings(BaseModel):
    """What every engine has: when an idle cluster ends by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    idle_timeout: Duration | None = None

    def with_options(self, options: Mapping[str, Any]) -> Self:
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
            found = faults_of(error, "engine_options")
            raise RequestError([self._known(fault) for fault in found]) from error

    def _known(self, fault: Fault) -> Fault:
        """A fault; of a name that is not known, with those that are."""
        name = fault.where.removeprefix("engine_options.")
        if name.partition(".")[0] in type(self).model_fields:
            return fault
        near = difflib.get_close_matches(name, type(self).model_fields, n=1)
        advice = f"did you mean {near[0]}?" if near else ""
        return replace(fault, allowed="one of " + ", ".join(type(self).model_fields), advice=advice)


class PatientSettings(EngineSettings):
    """How long is waited for workers; ``config/engines.yaml`` explains each."""

    lost_worker_timeout: Duration = "300s"
    no_workers_timeout: Duration = "300s"
    worker_ttl: Duration = "60s"


class RemoteSettings(PatientSettings):
    """What engines have whose workers are elsewhere; ``config/engines.yaml`` explains each."""

    idle_timeout: Duration | None = "30 minutes"
    versions: Literal["refuse", "warn"] = "refuse"
