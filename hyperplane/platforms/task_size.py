"""Size of a task in a container."""

from __future__ import annotations

from typing import NamedTuple


class TaskSize(NamedTuple):
    """vCPUs, memory in MiB and GPUs of one task."""

    cores: float
    memory: int
    gpus: int = 0

    def describe(self) -> str:
        """Return it as text.

        Examples
        --------
        >>> TaskSize(0.5, 1024).describe(), TaskSize(4, 16384, 1).describe()
        ('0.5 vCPU, 1024 MiB', '4 vCPU, 16384 MiB, 1 GPUs')
        """
        return f"{self.cores:g} vCPU, {self.memory} MiB" + f", {self.gpus} GPUs" * bool(self.gpus)
