"""Tuning profiles: named sets of Dask settings that improve performance."""

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

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.text_tables import as_html, as_text
from hyperplane.core.units import plural

#: The profile without settings, which keeps Dask's defaults; it always exists.
AS_DASK = "dask"
#: Placeholder in environment variables for the number of threads of a worker process.
NTHREADS = "{nthreads}"
#: Placeholder in settings of servers for the number of worker processes, at most this number.
PROCESSES, MOST_PROCESSES = "{processes}", 10
#: Placeholder in settings of servers for a buffer in bytes: a sixteenth of the memory of a worker
#: process, at most 1 GiB, which is Dask's default for the buffers of messages of a shuffle.
BUFFER, MEMORY_PARTS, LARGEST_BUFFER = "{buffer}", 16, 2**30


def _flatten(value: object) -> object:
    """Convert nested settings to dotted keys."""
    return dict(_flatten_section(value)) if isinstance(value, Mapping) else value


def _flatten_section(section: Mapping[Any, Any], path: str = "") -> list[tuple[str, Any]]:
    settings: list[tuple[str, Any]] = []
    for key, value in section.items():
        dotted = path + str(key).replace("_", "-")
        if isinstance(value, Mapping) and value:
            settings += _flatten_section(value, f"{dotted}.")
        else:
            settings.append((dotted, value))
    return settings


def _read_variables(value: object) -> object:
    """Convert the values of environment variables to text; omit null values."""
    if not isinstance(value, Mapping):
        return value
    return {str(name): str(content) for name, content in value.items() if content is not None}


def _normalize_name(value: str) -> str:
    """Normalize the name of a profile; Dask treats ``-`` and ``_`` as equal."""
    return value.strip().lower().replace("-", "_")


Dotted = Annotated[dict[str, Any], BeforeValidator(_flatten)]
Variables = Annotated[dict[str, str], BeforeValidator(_read_variables)]


class TuningProfile(BaseModel):
    """A profile of ``config/tuning.yaml``, independent of the layout of a cluster.

    ``server`` has Dask settings for the scheduler, nannies and workers; ``one_process`` those for
    clients and workers of a cluster with one worker process. In the values of ``environ``, the
    environment variables of workers, ``{nthreads}`` is the number of threads of a worker. A value
    ``{processes}`` in ``server`` is the number of worker processes, at most 10, and a value
    ``{buffer}`` a sixteenth of the memory of one, at most 1 GiB.
    ``direct_to_workers``: clients on the workers' machine fetch results from the workers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    direct_to_workers: bool = False
    server: Dotted = {}
    one_process: Dotted = {}
    environ: Variables = {}


def _add_dask_profile(profiles: dict[str, TuningProfile]) -> dict[str, TuningProfile]:
    return {**profiles, AS_DASK: TuningProfile()}


class TuningSection(BaseModel):
    """The profiles of ``config/tuning.yaml`` and the name of the default profile.

    The profile ``dask``, without settings, is always added.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profiles: Annotated[dict[str, TuningProfile], AfterValidator(_add_dask_profile)] = {}
    profile: Annotated[str, AfterValidator(_normalize_name)]

    @field_validator("profile")
    @classmethod
    def _check_is_known(cls, value: str, info: ValidationInfo) -> str:
        known = info.data.get("profiles", {value})
        if value not in known:
            raise ValueError("one of " + ", ".join(known))
        return value

    def find(self, name: str | None) -> tuple[str, TuningProfile]:
        """Find a profile, the default one for None; return its normalized name and settings.

        Raises
        ------
        RequestError
            If there is no such profile, with the nearest names.
        """
        wanted = self.profile if name is None else _normalize_name(name)
        if wanted not in self.profiles:
            near = difflib.get_close_matches(wanted, self.profiles, n=2, cutoff=0.4)
            advice = f"did you mean {' or '.join(near)}?" if near else ""
            allowed = "one of " + ", ".join(self.profiles)
            raise RequestError([Fault("tuning", repr(name), allowed, advice)])
        return wanted, self.profiles[wanted]


class Tuning(BaseModel):
    """Performance settings of one cluster.

    Values that the user has set in Dask's configuration or in the environment take precedence;
    the engine checks for them at the start.

    Parameters
    ----------
    name : str
        Name of the profile.
    server : dict
        Dask settings, with dotted keys, for the scheduler, nannies and workers.
    client : dict
        Dask settings, with dotted keys, for clients, including those that tasks open.
    environ : dict of str to str
        Environment variables of worker processes.
    direct_to_workers : bool
        Whether clients on the workers' machine fetch results from the workers instead of through
        the scheduler.

    Examples
    --------
    >>> profile = TuningProfile(environ={"POLARS_MAX_THREADS": "{nthreads}"})
    >>> print(Tuning.of("mine", profile, processes=1, nthreads=2, memory=4 * 10**9))
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
    def of(
        cls, name: str, profile: TuningProfile, processes: int, nthreads: int, memory: int
    ) -> Tuning:
        """Return the settings of a profile for worker processes, with threads and bytes of each."""
        environ = {
            key: value.replace(NTHREADS, str(nthreads)) for key, value in profile.environ.items()
        }
        values = {
            PROCESSES: min(processes, MOST_PROCESSES),
            BUFFER: min(memory // MEMORY_PARTS, LARGEST_BUFFER),
        }
        server = {
            key: values.get(value, value) if isinstance(value, str) else value
            for key, value in profile.server.items()
        }
        client = profile.one_process if processes == 1 else {}
        return cls(
            name=name,
            server=server,
            client=client,
            environ=environ,
            direct_to_workers=profile.direct_to_workers,
        )

    def summary(self) -> str:
        """Return the name and the number of settings in one line."""
        count = len(self.rows()) - 1
        if not count:
            return f"{self.name}: Dask's defaults"
        return f"{self.name}: {plural(count, 'setting')}; the profile {AS_DASK} has none"

    def rows(self) -> list[tuple[str, str]]:
        """Return all settings as rows of labels and texts."""
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
