"""Which GPUs this process may use, found without a CUDA context of its own.

A context would hold memory on a GPU, and dask-cuda wants none before each worker process has been
given its GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path("/")
VARIABLE = "CUDA_VISIBLE_DEVICES"
#: Seconds that nvidia-smi may take; on an idle machine the driver may have to be loaded first.
PATIENCE = 20.0


class Gpus(NamedTuple):
    """The GPUs of this machine.

    Parameters
    ----------
    here : int
        How many the driver knows.
    visible : tuple of str
        Those this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.
    limit : str or None
        What ``CUDA_VISIBLE_DEVICES`` says; None when it is not set.
    """

    installed: int
    visible: tuple[str, ...]
    limit: str | None


def gpus(root: Path = ROOT) -> Gpus:
    """The GPUs that are here and those that this process may use.

    Parameters
    ----------
    root : Path
        Where ``/proc`` is; other than ``/`` in tests.
    """
    installed = _installed(root)
    limit = os.environ.get(VARIABLE)
    everything = tuple(str(number) for number in range(installed))
    return Gpus(installed, everything if limit is None else _named(limit, installed), limit)


def _named(limit: str, installed: int) -> tuple[str, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names; CUDA reads up to the first bad name."""
    found: list[str] = []
    if not installed:
        return ()
    for text in limit.split(","):
        name = text.strip()
        is_number = name.isascii() and name.isdecimal() and int(name) < installed
        if not (is_number or name.startswith(("GPU-", "MIG-"))) or name in found:
            break
        found.append(name)
    return tuple(found)


def _installed(root: Path) -> int:
    """How many GPUs the driver knows, by the first that can say: NVML, nvidia-smi, the kernel."""
    return _by_nvml() or _by_nvidia_smi() or _by_kernel(root)


def _by_nvml() -> int:
    library = _nvml()
    if library is None:
        return 0
    try:
        library.nvmlInit()
    except library.NVMLError:  # no driver
        return 0
    try:
        return int(library.nvmlDeviceGetCount())
    except library.NVMLError:
        return 0
    finally:
        library.nvmlShutdown()


def _nvml() -> ModuleType | None:
    """The Python module of NVML, which dask-cuda brings."""
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module


def _by_nvidia_smi() -> int:
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listed = subprocess.run(  # noqa: S603 - no shell, and nothing in it is from outside
            [program, "--list-gpus"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return sum(line.startswith("GPU ") for line in lines)


def _by_kernel(root: Path) -> int:
    try:
        return sum(1 for _ in (root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return 0
