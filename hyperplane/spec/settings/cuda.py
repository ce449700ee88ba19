"""The settings of the cuda engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from hyperplane.spec.settings.base import StartupSettings
from hyperplane.units import gb_to_bytes


def _limit(value: float | str | None) -> float | str | None:
    if isinstance(value, float) and not 0 < value <= 1:
        raise ValueError("more than 0 and at most 1, 'default', or null")
    return value


def _folder(value: str) -> str:
    # It goes into a script, too.
    if not value or not value.isprintable():
        raise ValueError("the path of a folder, without line breaks")
    return value


#: A part of the memory of a GPU; always a float, because a whole 1 is one byte to dask-cuda.
Part = Annotated[float, Field(gt=0, le=1, strict=True)]
Gigabytes = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Limit = Annotated[float | Literal["default"] | None, AfterValidator(_limit)]
Folder = Annotated[str, AfterValidator(_folder)]

#: Each of these is an allocator of its own.
_ALLOCATORS = ("rmm_pool_fraction", "rmm_pool_gb", "rmm_async")


class CudaSettings(StartupSettings):
    """Settings of the cuda engine; ``config/engines.yaml`` explains each."""

    rmm_pool_fraction: Part | None = None
    rmm_pool_gb: Gigabytes | None = None
    rmm_async: bool = False
    rmm_libraries: tuple[Literal["cupy", "torch"], ...] = ()
    device_memory_limit: Limit = "default"
    enable_cudf_spill: bool = False
    dataframe_backend: Literal["cudf", "pandas"] = "cudf"
    local_directory: Folder | None = None

    @field_validator("rmm_pool_gb", "rmm_async")
    @classmethod
    def _the_only_allocator(
        cls, value: float | bool | None, info: ValidationInfo
    ) -> float | bool | None:
        others = [name for name in _ALLOCATORS if info.data.get(name)]
        if value and others:
            raise ValueError(f"nothing beside {others[0]}: each is an allocator of its own")
        return value

    @field_validator("rmm_libraries")
    @classmethod
    def _have_a_pool(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and not any(info.data.get(name) for name in _ALLOCATORS):
            raise ValueError(f"empty without one of {', '.join(_ALLOCATORS)}")
        return value

    @property
    def pool(self) -> float | int | None:
        """The RMM pool in dask-cuda's terms: a float is a part of the GPU, an int is bytes."""
        return self.rmm_pool_fraction if self.rmm_pool_gb is None else gb_to_bytes(self.rmm_pool_gb)
