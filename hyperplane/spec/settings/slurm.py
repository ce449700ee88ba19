"""Settings of jobs of Slurm, and of the slurm engine of Dask."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from hyperplane.core.pydantic_faults import text_like
from hyperplane.core.units import parse_seconds
from hyperplane.spec.settings.base import (
    Duration,
    EngineSettings,
    NotNegative,
    RemoteSettings,
)

#: Options of sbatch that the plan sets. sbatch also accepts unambiguous prefixes of long options.
_PLAN_OPTIONS = (
    *("array", "cpus-per-task", "error", "job-name", "mem", "mem-per-cpu", "mem-per-gpu", "nodes"),
    *("ntasks", "ntasks-per-node", "output", "parsable", "wrap"),
)
_SHORT_PLAN_OPTIONS = "aceJnNo"
_SLURM_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?=\d))?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?"
)
_SHORTEST_WALLTIME = 60


def _check_line(value: str) -> str:
    """Refuse text with line breaks, which would add lines to the batch script."""
    if not value.isprintable() or not value.strip():
        raise ValueError("one line of text")
    return value


def _check_folder(value: str) -> str:
    if not value.isprintable() or not value.strip() or re.search(r"[\"'\\`]", value):
        raise ValueError("a path without quotes and backslashes, on one line")
    return value


def _check_directive(value: str) -> str:
    allowed = "one option of sbatch, such as '--exclusive' or '--reservation=tests'"
    try:
        first, *others = shlex.split(_check_line(value))
    except ValueError:
        raise ValueError(allowed) from None
    long = re.fullmatch(r"--([a-z][a-z-]*)(=.*)?", first)
    short = re.fullmatch(r"-([A-Za-z]).*", first)
    if not (long or short) or any(other.startswith(("-", "#")) for other in others):
        raise ValueError(allowed)
    is_short = short is not None and short[1] in _SHORT_PLAN_OPTIONS
    if is_short or (long is not None and any(name.startswith(long[1]) for name in _PLAN_OPTIONS)):
        raise ValueError(f"{allowed}; {first.partition('=')[0]} is set by the plan")
    return value


def _check_walltime(value: str | float) -> str | float:
    allowed = "at least a minute: seconds, text such as '2 hours', or '1-12:00:00' as in Slurm"
    try:
        if parse_walltime(value) < _SHORTEST_WALLTIME:
            raise ValueError
    except (ValueError, LookupError, OverflowError):
        raise ValueError(allowed) from None
    return value


def parse_walltime(walltime: str | float) -> int:
    """Convert a walltime to whole seconds.

    It is a number of seconds, text such as ``"2 hours"``, or in Slurm's format:
    ``[days-]hours:minutes:seconds``, ``minutes:seconds``, ``days-hours[:minutes]``. YAML reads an
    unquoted ``1:30:00`` as the number 5400, which is the same duration.

    Examples
    --------
    >>> [parse_walltime(text) for text in ("1-12:00:00", "90:00", "2 hours", 90)]
    [129600, 5400, 7200, 90]
    """
    slurm = _SLURM_TIME.fullmatch(str(walltime).strip())
    if slurm is None or not (slurm["days"] or slurm["second"]):
        return int(parse_seconds(walltime))
    parts = [int(part) for part in slurm.group("first", "second", "third") if part is not None]
    if slurm["days"] is None and len(parts) == 2:
        parts = [0, *parts]  # minutes:seconds
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return ((int(slurm["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


Name = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*$",
        "a name of letters, digits and _ . , : @ + -, such as gpu-long",
    ),
]
#: Node features with Slurm's operators for and, or, counts and groups.
Features = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9_\[(][A-Za-z0-9_.,:=&|*()\[\]+-]*$",
        "features of nodes with the operators of Slurm, such as avx512&infiniband",
    ),
]
Interface = Annotated[
    str,
    text_like(r"^[A-Za-z0-9_.:@-]{1,15}$", "the name of a network interface, such as ib0 or eth0"),
]
Line = Annotated[str, AfterValidator(_check_line)]
Folder = Annotated[str, AfterValidator(_check_folder)]
Directive = Annotated[str, AfterValidator(_check_directive)]
Walltime = Annotated[str | float, AfterValidator(_check_walltime)]


class BatchSettings(EngineSettings):
    """Options of jobs, and how they run; ``config/engines.yaml`` explains each."""

    section: ClassVar[str] = "slurm"

    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    constraint: Features | None = None
    walltime: Walltime | None = None
    memory_margin_gb: NotNegative = 0.25
    extra_directives: tuple[Directive, ...] = ()
    prologue: tuple[Line, ...] = ()
    python: Line | None = None
    interface: Interface | None = None
    shared_folder: Folder | None = None
    log_folder: Folder | None = None
    local_directory: Folder | None = None
    security: Literal["tls", "none"] = "tls"


class SlurmSettings(RemoteSettings, BatchSettings):
    """Settings of the slurm engine; ``config/engines.yaml`` explains each."""

    leave_before: Duration = "2 minutes"
