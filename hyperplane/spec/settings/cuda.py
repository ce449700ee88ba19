"""Settings of the cuda engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from hyperplane.core.units import gb_to_bytes
from hyperplane.spec.settings.base import StartupSettings


def _check_limit(value: float | str | None) -> float | str | None:
    if isinstance(value, float) and not 0 < value <= 1:
        raise ValueError("more than 0 and at most 1, 'default', or null")
    return value


def _check_folder(value: str) -> str:
    # The path is also inserted into a script.
    if not value or not value.isprintable():
        raise ValueError("the path of a folder, without line breaks")
    return value


#: A fraction of the memory of a GPU; a float, because dask-cuda reads the integer 1 as one byte.
GpuFraction = Annotated[float, Field(gt=0, le=1, strict=True)]
Gigabytes = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Limit = Annotated[float | Literal["default"] | None, AfterValidator(_check_limit)]
Folder = Annotated[str, AfterValidator(_check_folder)]

#: Settings that each select a different allocator.
_ALLOCATORS = ("rmm_pool_fraction", "rmm_pool_gb", "rmm_async")


class CudaSettings(StartupSettings):
    """Settings of the cuda engine; ``config/engines.yaml`` explains each."""

    rmm_pool_fraction: GpuFraction | None = None
    rmm_pool_gb: Gigabytes | None = None
    rmm_async: bool = False
    rmm_libraries: tuple[Literal["cupy", "torch"], ...] = ()
    device_memory_limit: Limit = "default"
    enable_cudf_spill: bool = False
    dataframe_backend: Literal["cudf", "pandas"] = "cudf"
    local_directory: Folder | None = None
    security: Literal["user", "none"] = "user"

    @field_validator("rmm_pool_gb", "rmm_async")
    @classmethod
    def _check_single_allocator(
        cls, value: float | bool | None, info: ValidationInfo
    ) -> float | bool | None:
        others = [name for name in _ALLOCATORS if info.data.get(name)]
        if value and others:
            raise ValueError(f"no value with {others[0]}, which selects another allocator")
        return value

    @field_validator("rmm_libraries")
    @classmethod
    def _check_has_allocator(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and not any(info.data.get(name) for name in _ALLOCATORS):
            raise ValueError(f"empty without one of {', '.join(_ALLOCATORS)}")
        return value

    @property
    def pool(self) -> float | int | None:
        """Size of the RMM pool for dask-cuda: a float is a fraction of the GPU, an int bytes."""
        return self.rmm_pool_fraction if self.rmm_pool_gb is None else gb_to_bytes(self.rmm_pool_gb)
