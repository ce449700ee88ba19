"""The rules of the sizing calculator, as values read from the configuration."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hyperplane.errors import Fault, RequestError
from hyperplane.spec.pool import canonical_pool_name

Weight = Literal["light", "medium", "heavy"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]


def _quoted(value: object) -> object:
    # An unquoted 16_128 in a YAML list is the number 16128.
    if not isinstance(value, str):
        raise ValueError("the name of a pool, such as pool_16_128")
    return canonical_pool_name(value)


PoolName = Annotated[str, BeforeValidator(_quoted)]
PoolNames = Annotated[tuple[PoolName, ...], Field(min_length=1)]


class _Rules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Multipliers(_Rules):
    """Memory needed as a multiple of the uncompressed data, for each weight of work."""

    light: Positive
    medium: Positive
    heavy: Positive


class Families(_Rules):
    """The pools that suit few large tasks, many tasks, and work that moves no data."""

    few_tasks: PoolNames
    many_tasks: PoolNames
    parallel: PoolNames


class Split(_Rules):
    """When a job is cut into pieces, and how large these are."""

    from_gb: Positive
    piece_gb: Positive
    weights: tuple[Weight, ...]


class Checks(_Rules):
    """Bounds within which a number of nodes is comfortable."""

    aggregation_ratio: Positive
    full_fraction: Fraction
    aggregations: tuple[str, ...]


class SizingRules(_Rules):
    """All rules of the calculator; ``config/sizing.yaml`` holds and explains them."""

    multipliers: Multipliers
    operations: dict[str, Weight]
    families: Families
    split: Split
    checks: Checks

    def weight(self, operation: str) -> Weight:
        """The weight of an operation, given by its weight or by what people call it.

        Raises
        ------
        RequestError
            For an operation that is in no list, with the nearest known ones.
        """
        key = _key(operation)
        known: dict[str, Weight] = {
            "light": "light",
            "medium": "medium",
            "heavy": "heavy",
            **{_key(name): weight for name, weight in self.operations.items()},
        }
        found = known.get(key)
        if found is None:
            raise RequestError([_unknown_operation(operation, key, known)])
        return found

    def is_aggregation(self, operation: str) -> bool:
        """Whether the rule for aggregations speaks of this operation."""
        return _key(operation) in map(_key, self.checks.aggregations)


def _key(operation: object) -> str:
    """An operation however it is written: ``"Group-by"`` is ``groupby``."""
    name = str(operation).strip().lower().replace("-", "_").replace(" ", "_")
    return name.replace("group_by", "groupby")


def _unknown_operation(asked: str, key: str, known: dict[str, Any]) -> Fault:
    near = difflib.get_close_matches(key, known, n=3)
    allowed = "light, medium or heavy, or one of " + ", ".join(
        name for name in known if name not in {"light", "medium", "heavy"}
    )
    return Fault(
        "operation", repr(asked), allowed, f"did you mean {' or '.join(near)}?" if near else ""
    )
