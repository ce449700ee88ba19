"""Models of the rules of the sizing calculator; their values are in ``config/sizing.yaml``."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.pydantic_faults import text_like
from hyperplane.spec.pool import canonical_pool_name

Weight = Literal["light", "medium", "heavy"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]


def _read_pool_name(value: object) -> object:
    # YAML reads an unquoted 16_128 as the number 16128.
    if not isinstance(value, str):
        raise ValueError("the name of a pool, such as pool_16_128")
    return canonical_pool_name(value)


PoolName = Annotated[str, BeforeValidator(_read_pool_name)]
Currency = Annotated[
    str, text_like("^[A-Z]{3}$", "three capital letters of a currency, such as USD")
]
PoolNames = Annotated[tuple[PoolName, ...], Field(min_length=1)]


class _Rules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Multipliers(_Rules):
    """Memory needed as a multiple of the uncompressed data, for each weight of an operation."""

    light: Positive
    medium: Positive
    heavy: Positive


class Families(_Rules):
    """Pools for few large tasks, for many tasks, and for work that moves no data."""

    few_tasks: PoolNames
    many_tasks: PoolNames
    parallel: PoolNames


class Split(_Rules):
    """Size from which a job is split into pieces, and the size of the pieces."""

    from_gb: Positive
    piece_gb: Positive
    weights: tuple[Weight, ...]


class Checks(_Rules):
    """Rules of thumb on spare memory."""

    aggregation_ratio: Positive
    full_fraction: Fraction
    aggregations: tuple[str, ...]


class SizingRules(_Rules):
    """All rules of the calculator; see ``config/sizing.yaml``."""

    multipliers: Multipliers
    operations: dict[str, Weight]
    families: Families
    split: Split
    checks: Checks
    currency: Currency = "USD"

    def weight(self, operation: str) -> Weight:
        """Return the weight of an operation.

        Raises
        ------
        RequestError
            If the operation is unknown, with the nearest names.
        """
        key = _normalize_operation(operation)
        known: dict[str, Weight] = {
            "light": "light",
            "medium": "medium",
            "heavy": "heavy",
            **{_normalize_operation(name): each for name, each in self.operations.items()},
        }
        weight = known.get(key)
        if weight is None:
            raise RequestError([_unknown_operation_fault(operation, key, known)])
        return weight

    def is_aggregation(self, operation: str) -> bool:
        """Return whether the rule for aggregations applies to an operation."""
        return _normalize_operation(operation) in map(
            _normalize_operation, self.checks.aggregations
        )


def _normalize_operation(operation: object) -> str:
    """Normalize the name of an operation: ``"Group-by"`` becomes ``groupby``."""
    name = str(operation).strip().lower().replace("-", "_").replace(" ", "_")
    return name.replace("group_by", "groupby")


def _unknown_operation_fault(operation: str, key: str, known: dict[str, Any]) -> Fault:
    near = difflib.get_close_matches(key, known, n=3)
    allowed = "light, medium or heavy, or one of " + ", ".join(
        name for name in known if name not in {"light", "medium", "heavy"}
    )
    return Fault(
        "operation", repr(operation), allowed, f"did you mean {' or '.join(near)}?" if near else ""
    )
