"""GPUs that a program in place of nvidia-smi reports, and what actors see of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hyperplane.platforms.local import gpus as local_gpus


@contextmanager
def two_gpus(folder: Path) -> Iterator[None]:
    """Let this machine have two GPUs; ``folder`` gets the program."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A'; echo 'GPU 1: NVIDIA B'\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.setattr(local_gpus, "_import_nvml", lambda: None)
        yield


def read_devices(count: int) -> list[Any]:
    """Return CUDA_VISIBLE_DEVICES and Ray's GPU IDs in actors, each of which keeps one GPU."""
    import ray

    class Holder:  # local, because workers cannot import this file
        def read(self) -> tuple[str | None, list[str]]:
            import os

            import ray

            return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()

    holders = [ray.remote(num_gpus=1)(Holder).remote() for _ in range(count)]
    read = ray.get([holder.read.remote() for holder in holders], timeout=120)
    for holder in holders:
        ray.kill(holder)
    return read
