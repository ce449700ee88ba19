"""Number of nodes of a request: one number, or a minimum and a maximum."""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import ValidationError, ValidatorFunctionWrapHandler

_TEXT = re.compile(r"\s*([0-9]+)\s*-\s*([0-9]+)\s*", re.ASCII)
_ALLOWED = "a whole number, or the minimum and the maximum of an adaptive cluster, as (2, 10)"


class NodeRange(int):
    """The minimum of an adaptive cluster's nodes, which is the number at the start.

    Parameters
    ----------
    minimum, maximum : int
        Least and most nodes of the cluster.

    Examples
    --------
    >>> nodes = NodeRange(2, 10)
    >>> nodes + 1, nodes.maximum, str(nodes)
    (3, 10, '(2, 10)')
    """

    maximum: int

    def __new__(cls, minimum: int, maximum: int) -> Self:
        """Create a range."""
        nodes = super().__new__(cls, minimum)
        nodes.maximum = maximum
        return nodes

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.maximum

    def __repr__(self) -> str:
        return f"({int(self)}, {self.maximum})"


def most_nodes(nodes: int) -> int:
    """Return the most nodes of a request.

    Examples
    --------
    >>> most_nodes(NodeRange(2, 10)), most_nodes(3)
    (10, 3)
    """
    return nodes.maximum if isinstance(nodes, NodeRange) else nodes


def read_nodes(value: Any, check_count: ValidatorFunctionWrapHandler) -> int:
    """Read one number of nodes, or a pair, also as text such as ``"2-10"``."""
    if isinstance(value, NodeRange):
        value = (int(value), value.maximum)
    text = _TEXT.fullmatch(value) if isinstance(value, str) else None
    pair = text.groups() if text is not None else value
    if not isinstance(pair, list | tuple):
        try:
            count: int = check_count(value)
        except ValidationError as error:
            if all(entry["type"].endswith("_than_equal") for entry in error.errors()):
                raise  # a number that is too small or too large
            raise ValueError(_ALLOWED) from None
        return count
    try:
        minimum, maximum = map(check_count, pair)
    except (ValidationError, ValueError):
        raise ValueError(f"{_ALLOWED}, each from 1 to 1,000,000") from None
    if minimum > maximum:
        raise ValueError(f"{_ALLOWED}, the smaller number first")
    return int(minimum) if minimum == maximum else NodeRange(minimum, maximum)
