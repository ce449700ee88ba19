"""Options of sbatch: resources in Slurm's units, and ``#SBATCH`` lines of a script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hyperplane.spec.settings import BatchSettings
from hyperplane.spec.settings.slurm import parse_walltime

_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class BatchResources:
    """Resources that a batch job requests; the site's defaults apply to those that are omitted.

    Parameters
    ----------
    cores : float, optional
        Cores; rounded up, because Slurm assigns whole ones.
    memory : int, optional
        Bytes; rounded up to Slurm's megabytes, which have 2**20 bytes.
    gpus : int, optional
        GPUs.
    time_limit : int, optional
        Seconds.
    tasks : int
        Number of tasks that start together, each with these cores, memory and GPUs; 0 for a batch
        job that starts none.
    """

    cores: float | None = None
    memory: int | None = None
    gpus: int = 0
    time_limit: int | None = None
    tasks: int = 0

    def options(self) -> dict[str, str | int]:
        """Return the options of sbatch by name, without those that are not requested.

        Examples
        --------
        >>> BatchResources(cores=2.5, memory=4 * 10**9, gpus=1).options()
        {'cpus-per-task': 3, 'mem': '3815M', 'gres': 'gpu:1'}
        >>> BatchResources(cores=2, memory=4 * 10**9, gpus=1, tasks=8).options()
        {'ntasks': 8, 'cpus-per-task': 2, 'mem-per-cpu': '1908M', 'gpus-per-task': 1}
        """
        if self.tasks:
            return self._task_options()
        options: dict[str, str | int] = {}
        if self.cores is not None:
            options["cpus-per-task"] = math.ceil(self.cores)
        if self.memory is not None:
            options["mem"] = f"{to_mebibytes(self.memory)}M"
        if self.time_limit is not None:
            options["time"] = format_time(self.time_limit)
        if self.gpus:
            options["gres"] = f"gpu:{self.gpus}"
        return options

    def _task_options(self) -> dict[str, str | int]:
        """Return the options of a job of tasks, which may be on several nodes."""
        cores = 1 if self.cores is None else math.ceil(self.cores)
        options: dict[str, str | int] = {"ntasks": self.tasks, "cpus-per-task": cores}
        if self.memory is not None:
            options["mem-per-cpu"] = f"{to_mebibytes(-(-self.memory // cores))}M"
        if self.time_limit is not None:
            options["time"] = format_time(self.time_limit)
        if self.gpus:
            options["gpus-per-task"] = self.gpus
        return options


def to_mebibytes(size: int) -> int:
    """Convert bytes to whole units of 2**20 bytes, rounded up."""
    return -(-size // _MEBIBYTE)


def format_time(seconds: int) -> str:
    """Return a time limit in Slurm's notation.

    Examples
    --------
    >>> format_time(129_605)
    '36:00:05'
    """
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


def format_options(options: Mapping[str, str | int | bool | None]) -> list[str]:
    """Return options as words of a command line; True has no value, None omits an option.

    Examples
    --------
    >>> format_options({"job-name": "a", "no-requeue": True, "time": None})
    ['--job-name=a', '--no-requeue']
    """
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in options.items()
        if value is not None
    ]


def format_directives(words: Iterable[str]) -> list[str]:
    """Return the lines of a script that have the same effect as options of sbatch."""
    return [f"#SBATCH {word}" for word in words]


def node_directives(
    settings: BatchSettings, name: str, comment: str, log: str, resources: BatchResources
) -> list[str]:
    """Return the directives of a job on one node, with the settings of the user.

    Parameters
    ----------
    settings : BatchSettings
        Partition, account, walltime and other options of the user.
    name : str
        Name of the job.
    comment : str
        Comment of the job, which users see in squeue; ``extra_directives`` may have another.
    log : str
        Path of the log, in which Slurm replaces placeholders.
    resources : BatchResources
        Resources of the job; the walltime of the settings replaces their time limit.
    """
    if settings.walltime is not None:
        resources = replace(resources, time_limit=parse_walltime(settings.walltime))
    options: dict[str, str | int | bool | None] = {
        "job-name": name,
        "comment": comment,
        "output": f'"{log}"',
        "nodes": 1,
        "ntasks": 1,
        **resources.options(),
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
    }
    return format_directives([*format_options(options), *settings.extra_directives])
