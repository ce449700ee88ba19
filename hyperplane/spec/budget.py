"""Budget of a cluster: core-hours or money, after which it closes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hyperplane.core.units import format_number, is_boolean

_CORE_HOURS = r"(?:core|cpu)[-_ ]?(?:hours?|hrs?|h)"
_TEXT = re.compile(
    rf"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(?:({_CORE_HOURS})|([a-z]{{3}}))?\s*",
    re.ASCII | re.IGNORECASE,
)
#: Three letters that are times or resources, whatever the currency of the prices.
_NO_CURRENCIES = frozenset({"HRS", "MIN", "SEC", "DAY", "CPU", "GPU"})
_ALLOWED = "core-hours as a number above 0 or as '12 core-hours', or money such as '5 USD'"


@dataclass(frozen=True)
class Budget:
    """What a cluster may take until it is closed.

    Parameters
    ----------
    amount : float
        Number of core-hours, or amount of money.
    currency : str
        Currency of the amount, ``hyperplane.sizing.currency``; empty for core-hours.

    Examples
    --------
    >>> str(Budget(12)), str(Budget(5, "USD"))
    ('12 core-hours', '5 USD')
    """

    amount: float
    currency: str = ""

    @property
    def unit(self) -> str:
        """The currency, or ``core-hours``."""
        return self.currency or "core-hours"

    def __str__(self) -> str:
        return f"{format_number(self.amount)} {self.unit}"


def read_budget(value: Any) -> Budget | None:
    """Read a budget as a number of core-hours, or as text.

    Examples
    --------
    >>> print(read_budget(12), read_budget("1.5 core hours"), read_budget("5 usd"), sep=", ")
    12 core-hours, 1.5 core-hours, 5 USD
    """
    if value is None or isinstance(value, Budget):
        return value
    currency = ""
    amount: Any = value
    if isinstance(value, str):
        found = _TEXT.fullmatch(value)
        if found is None:
            raise ValueError(_ALLOWED)
        amount, currency = found[1], (found[3] or "").upper()
        if currency in _NO_CURRENCIES:
            raise ValueError(_ALLOWED)
    if is_boolean(value) or isinstance(value, bytes):
        raise ValueError(_ALLOWED)
    try:
        number = float(amount)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(_ALLOWED) from None
    if not 0 < number <= 1e12:  # also refuses nan
        raise ValueError(_ALLOWED)
    return Budget(number, currency)
