"""Detect the GPUs that this process may use, without creating a CUDA context.

A context would occupy GPU memory, and a process that assigns GPUs to others, such as dask-cuda's,
must have none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path("/")
#: Folder of device files; in a container it has files only for the GPUs that the container may use.
DEVICE_FOLDER = Path("/dev")
VARIABLE = "CUDA_VISIBLE_DEVICES"
#: Seconds that nvidia-smi may take; it may have to load the driver first.
NVIDIA_SMI_TIMEOUT_SECONDS = 20.0


class Gpus(NamedTuple):
    """GPUs of this machine.

    Parameters
    ----------
    installed : int
        Number of GPUs that the driver knows.
    visible : tuple of str
        GPUs that this process may use, named as in ``CUDA_VISIBLE_DEVICES``.
    limit : str or None
        Value of ``CUDA_VISIBLE_DEVICES``; None if it is not set.
    """

    installed: int
    visible: tuple[str, ...]
    limit: str | None


def detect_gpus(root: Path = ROOT) -> Gpus:
    """Return the installed GPUs and those that this process may use.

    Parameters
    ----------
    root : Path
        Parent of ``/proc``; tests replace it.
    """
    installed = _count_installed(root)
    limit = os.environ.get(VARIABLE)
    everything = tuple(str(number) for number in range(installed))
    return Gpus(installed, everything if limit is None else _parse_visible(limit, installed), limit)


def count_device_files() -> int:
    """Return the number of NVIDIA GPUs that have a device file."""
    try:
        return sum(
            bool(re.fullmatch("nvidia[0-9]+", file.name)) for file in DEVICE_FOLDER.iterdir()
        )
    except OSError:
        return 0


def _parse_visible(limit: str, installed: int) -> tuple[str, ...]:
    """Return the GPUs in ``CUDA_VISIBLE_DEVICES`` up to the first invalid name, as CUDA does."""
    names: list[str] = []
    if not installed:
        return ()
    for text in limit.split(","):
        name = text.strip()
        is_number = name.isascii() and name.isdecimal() and int(name) < installed
        if not (is_number or name.startswith(("GPU-", "MIG-"))) or name in names:
            break
        names.append(name)
    return tuple(names)


def _count_installed(root: Path) -> int:
    """Return the number of GPUs according to NVML, nvidia-smi or the kernel, in that order."""
    return _count_by_nvml() or _count_by_nvidia_smi() or _count_by_kernel(root)


def _count_by_nvml() -> int:
    library = _import_nvml()
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


def _import_nvml() -> ModuleType | None:
    """Return the Python module of NVML, a dependency of dask-cuda, or None."""
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module


def _count_by_nvidia_smi() -> int:
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        result = subprocess.run(  # noqa: S603 - constant arguments, no shell
            [program, "--list-gpus"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    lines = result.stdout.splitlines() if result.returncode == 0 else []
    return sum(line.startswith("GPU ") for line in lines)


def _count_by_kernel(root: Path) -> int:
    try:
        return sum(1 for _ in (root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return 0
