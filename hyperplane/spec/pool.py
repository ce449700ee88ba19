"""Pools: types of nodes with their nominal and allocatable sizes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from hyperplane.core.pydantic_faults import CheckedModel
from hyperplane.core.units import format_number, gb_to_bytes, is_boolean

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def canonical_pool_name(name: str) -> str:
    """Normalize the name of a pool: lower case, ``_`` for ``-``, without a prefix.

    Examples
    --------
    >>> canonical_pool_name("DASK_POOL_16_16"), canonical_pool_name("Hyperplane-Med")
    ('16_16', 'hyperplane_med')
    """
    name = name.strip().lower().replace("-", "_")
    for prefix in ("dask_pool_", "pool_"):
        name = name.removeprefix(prefix)
    return name


class PoolSpec(CheckedModel):
    """A type of node with its nominal size and the size available to worker processes.

    Parameters
    ----------
    name : str
        Normalized name, such as ``"16_16"``.
    alias : str
        T-shirt size, such as ``"hyperplane-med"``; may be empty.
    cores, ram_gb : float
        Nominal cores and memory (GB, 10**9 bytes) of a node.
    allocatable_cores, allocatable_ram_gb : float
        Cores (at least 1) and memory of a node that worker processes can use.
    gpus : int
        Number of GPUs of a node.
    price_per_hour : float, optional
        Price of one node for an hour, in the currency of ``hyperplane.sizing.currency``.
    note : str
        A sentence that ``hyperplane pools`` prints below its table; may be empty.

    Raises
    ------
    RequestError
        With every field that is unknown or has an invalid value.

    Examples
    --------
    >>> import hyperplane
    >>> pool = hyperplane.get_pool("hyperplane-med")
    >>> pool.name, pool.allocatable_cores, pool.allocatable_ram_gb
    ('16_16', 15.0, 12.0)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    alias: str = ""
    cores: Positive
    ram_gb: Positive
    allocatable_cores: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    allocatable_ram_gb: Positive
    gpus: Annotated[int, Field(ge=0)] = 0
    price_per_hour: NotNegative | None = None
    note: str = ""

    @field_validator(
        "cores",
        "ram_gb",
        "allocatable_cores",
        "allocatable_ram_gb",
        "gpus",
        "price_per_hour",
        mode="before",
    )
    @classmethod
    def _check_is_number(cls, value: Any) -> Any:
        """Refuse bools, bytes and text such as "1_6", which pydantic would convert to numbers."""
        is_text = isinstance(value, str) and (not value.isascii() or "_" in value)
        if is_text or is_boolean(value) or isinstance(value, bytes | bytearray | memoryview):
            raise ValueError("a number")
        return value

    @field_validator("allocatable_cores", "allocatable_ram_gb")
    @classmethod
    def _check_not_above_nominal(cls, value: float, info: ValidationInfo) -> float:
        name = str(info.field_name).removeprefix("allocatable_")
        nominal = info.data.get(name)  # missing if it is invalid
        if nominal is not None and value > nominal:
            raise ValueError(f"at most {name}, the nominal {format_number(nominal)}")
        return value

    @property
    def allocatable_ram(self) -> int:
        """Memory of a node that worker processes can use, in bytes."""
        return gb_to_bytes(self.allocatable_ram_gb)

    @property
    def whole_cores(self) -> int:
        """Allocatable cores, rounded down because a thread needs a whole core."""
        return int(self.allocatable_cores)

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        return (
            f"{self.name} ({format_number(self.allocatable_cores)} cores, "
            f"{self.allocatable_ram_gb:g} GB{gpus})"
        )


def listing_order(pool: PoolSpec) -> tuple[float, ...]:
    """Return a sort key for lists of pools: number of GPUs, then allocatable memory and cores."""
    # Nominal sizes would mislead: 7 GB of the 32 GB of pool 4_32 are allocatable.
    return pool.gpus, pool.allocatable_ram_gb, pool.allocatable_cores
