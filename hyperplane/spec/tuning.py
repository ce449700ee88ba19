"""Settings of Dask that make plain Dask code cheaper, under one name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    field_validator,
)

from hyperplane.errors import Fault, RequestError
from hyperplane.tables import as_html, as_text
from hyperplane.units import plural

#: The profile that leaves everything as Dask ships it. It is always there and has no settings.
AS_DASK = "dask"
#: What stands in a variable for the threads of one worker process.
NTHREADS = "{nthreads}"


def _flatten(value: object) -> object:
    """Settings nested as in Dask's files, as dotted keys."""
    return dict(_flatten_section(value)) if isinstance(value, Mapping) else value


def _flatten_section(section: Mapping[Any, Any], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in section.items():
        dotted = path + str(key).replace("_", "-")
        if isinstance(value, Mapping) and value:
            found += _flatten_section(value, f"{dotted}.")
        else:
            found.append((dotted, value))
    return found


def _read_variables(value: object) -> object:
    """Variables as texts; one that is null is left out."""
    if not isinstance(value, Mapping):
        return value
    return {str(name): str(content) for name, content in value.items() if content is not None}


def _normalize_name(value: str) -> str:
    """A name as the configuration has it, where ``-`` and ``_`` are one and the same."""
    return value.strip().lower().replace("-", "_")


Dotted = Annotated[dict[str, Any], BeforeValidator(_flatten)]
Variables = Annotated[dict[str, str], BeforeValidator(_read_variables)]


class TuningProfile(BaseModel):
    """A profile as ``config/tuning.yaml`` holds it, before it meets a layout.

    Parameters
    ----------
    server : dict
        Settings of Dask for the scheduler, the nannies and the workers.
    one_process : dict
        Settings of Dask for clients and workers of a cluster of one worker process.
    environ : dict of str to str
        Variables of worker processes; ``{nthreads}`` is the number of their threads.
    direct_to_workers : bool
        Whether clients on the workers' machine ask them for results, and not the scheduler.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    direct_to_workers: bool = False
    server: Dotted = {}
    one_process: Dotted = {}
    environ: Variables = {}


def _add_dask_profile(profiles: dict[str, TuningProfile]) -> dict[str, TuningProfile]:
    return {**profiles, AS_DASK: TuningProfile()}


class TuningSection(BaseModel):
    """What ``config/tuning.yaml`` holds.

    Parameters
    ----------
    profiles : dict
        The profiles by name; ``dask`` is added, without settings.
    profile : str
        The profile that holds when a call names none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profiles: Annotated[dict[str, TuningProfile], AfterValidator(_add_dask_profile)] = {}
    profile: Annotated[str, AfterValidator(_normalize_name)]

    @field_validator("profile")
    @classmethod
    def _is_known(cls, value: str, info: ValidationInfo) -> str:
        known = info.data.get("profiles", {value})
        if value not in known:
            raise ValueError("one of " + ", ".join(known))
        return value

    def find(self, name: str | None) -> tuple[str, TuningProfile]:
        """A profile and its name as the configuration has it.

        Raises
        ------
        RequestError
            When there is none of that name, with the nearest names.
        """
        wanted = self.profile if name is None else _normalize_name(name)
        if wanted not in self.profiles:
            near = difflib.get_close_matches(wanted, self.profiles, n=2, cutoff=0.4)
            advice = f"did you mean {' or '.join(near)}?" if near else ""
            allowed = "one of " + ", ".join(self.profiles)
            raise RequestError([Fault("tuning", repr(name), allowed, advice)])
        return wanted, self.profiles[wanted]


class Tuning(BaseModel):
    """The settings of one cluster: plain data that any engine can apply.

    What the user has set otherwise in Dask's configuration or in the environment wins over all of
    it; the engine looks when it starts.

    Parameters
    ----------
    name : str
        Name of the profile.
    server : dict
        Dotted settings of Dask for the scheduler, the nannies and the workers.
    client : dict
        Dotted settings of Dask for clients, and for tasks that are clients themselves.
    environ : dict of str to str
        Variables of worker processes.
    direct_to_workers : bool
        Whether clients on the workers' machine ask them for results, and not the scheduler.

    Examples
    --------
    >>> profile = TuningProfile(environ={"POLARS_MAX_THREADS": "{nthreads}"})
    >>> print(Tuning.of("mine", profile, processes=1, nthreads=2))
    tuning   mine
    workers  POLARS_MAX_THREADS=2
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = AS_DASK
    server: dict[str, Any] = {}
    client: dict[str, Any] = {}
    environ: dict[str, str] = {}
    direct_to_workers: bool = False

    @classmethod
    def of(cls, name: str, profile: TuningProfile, processes: int, nthreads: int) -> Tuning:
        """A profile for a cluster of so many worker processes of so many threads."""
        environ = {
            key: value.replace(NTHREADS, str(nthreads)) for key, value in profile.environ.items()
        }
        client = profile.one_process if processes == 1 else {}
        return cls(
            name=name,
            server=profile.server,
            client=client,
            environ=environ,
            direct_to_workers=profile.direct_to_workers,
        )

    def summary(self) -> str:
        """The name and what it amounts to, in one line."""
        count = len(self.rows()) - 1
        if not count:
            return f"{self.name}: all as Dask ships it"
        return f"{self.name}: {plural(count, 'setting')}; the profile {AS_DASK} has none"

    def rows(self) -> list[tuple[str, str]]:
        """Every setting, as labels and texts."""
        return [
            ("tuning", self.name),
            *(("servers", f"{key}: {value}") for key, value in self.server.items()),
            *(("clients", f"{key}: {value}") for key, value in self.client.items()),
            *[("clients", "direct_to_workers: True")] * self.direct_to_workers,
            *(("workers", f"{name}={value}") for name, value in self.environ.items()),
        ]

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.rows())
