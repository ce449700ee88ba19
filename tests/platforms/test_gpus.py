"""Detection of GPUs by the driver, the kernel and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from hyperplane.platforms.local import gpus as local_gpus
from hyperplane.platforms.local.gpus import Gpus


@pytest.mark.parametrize(
    ("here", "limit", "visible"),
    [
        (2, None, ("0", "1")),
        (0, None, ()),
        (0, "0,GPU-8932f937", ()),  # more than are installed
        (4, "1", ("1",)),
        (4, "3, 1", ("3", "1")),
        (4, "GPU-8932f937,MIG-41b3359c", ("GPU-8932f937", "MIG-41b3359c")),
        (4, "", ()),
        (4, "-1", ()),
        (4, "NoDevFiles", ()),
        (4, "0,9,1", ("0",)),  # CUDA stops at the first invalid name
        (4, "0,0", ("0",)),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(
    monkeypatch: pytest.MonkeyPatch, here: int, limit: str | None, visible: tuple[str, ...]
) -> None:
    monkeypatch.setattr(local_gpus, "_count_installed", lambda root: here)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if limit is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", limit)
    assert local_gpus.detect_gpus() == Gpus(here, visible, limit)


def test_the_kernel_says_how_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local_gpus, "_import_nvml", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_gpus._count_installed(tmp_path) == 0
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/gpus/0000:02:00.0").mkdir()
    assert local_gpus._count_installed(tmp_path) == 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo '  MIG 1g.18gb Device 0: (UUID: M)'", 1),
        ("echo 'No devices were found'; exit 6", 0),
        ("echo 'GPU 0: of a driver that has failed since'; exit 9", 0),
    ],
)
def test_nvidia_smi_says_how_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, count: int
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-gpus ] || exit 3\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setattr(local_gpus, "_import_nvml", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_gpus._count_installed(tmp_path) == count


def test_nvml_is_queried_first_and_shut_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began: list[None] = []
    library = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: began.append(None),
        nvmlDeviceGetCount=lambda: 4,
        nvmlShutdown=began.pop,
    )
    monkeypatch.setattr(local_gpus, "_import_nvml", lambda: library)
    assert local_gpus._count_installed(tmp_path) == 4
    assert not began


def test_nvml_without_a_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_driver() -> None:
        raise RuntimeError("NVML Shared Library Not Found")

    library = types.SimpleNamespace(NVMLError=RuntimeError, nvmlInit=no_driver)
    monkeypatch.setattr(local_gpus, "_import_nvml", lambda: library)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_gpus._count_installed(tmp_path) == 0
