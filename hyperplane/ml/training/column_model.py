"""Network of parts that each use some of the columns; their outputs are combined.

``ColumnModel`` is created on first use, because its base class is one of PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from hyperplane.core.optional import need

#: How outputs are combined, besides a module.
COMBINATIONS = ("sum", "mean")


def combine_outputs(outputs: Sequence[Any], combine: Any) -> Any:
    """Return the sum or the mean of outputs, or a module's output for their concatenation."""
    torch = need("torch", extra="torch")
    if combine not in COMBINATIONS:
        return combine(torch.cat(list(outputs), dim=1))
    total = functools.reduce(lambda one, two: one + two, outputs)
    return total / len(outputs) if combine == "mean" else total


@functools.cache
def _create_class() -> type[Any]:
    torch = need("torch", extra="torch")

    class ColumnModel(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Model whose input are all columns."""

        def __init__(self, parts: Sequence[Any], columns: Sequence[Any], combine: Any) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(parts)
            self.columns = list(columns)
            self.combine = combine  # a module is registered

        def forward(self, x: Any) -> Any:
            pairs = zip(self.parts, self.columns, strict=True)
            return combine_outputs([part(x[:, each]) for part, each in pairs], self.combine)

    ColumnModel.__qualname__ = "ColumnModel"
    return ColumnModel


def __getattr__(name: str) -> Any:
    if name == "ColumnModel":
        return _create_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
