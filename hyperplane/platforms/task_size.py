"""Size of a task in a container."""

from __future__ import annotations

from typing import NamedTuple


class TaskSize(NamedTuple):
    """vCPUs, memory in MiB and GPUs of one task."""

    cores: float
    memory: int
    gpus: int = 0
