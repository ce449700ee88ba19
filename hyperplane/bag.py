"""Helpers for Dask bags: records from files, selected, counted and made a dataframe.

Each takes a bag, of :func:`read_records` or any other, and gives a lazy one; :func:`take`
computes, as the method of that name does.
"""

from __future__ import annotations

from hyperplane.collections.bags.count import count_by
from hyperplane.collections.bags.frame import to_dataframe
from hyperplane.collections.bags.read import bad_records, read_records
from hyperplane.collections.bags.select import select
from hyperplane.collections.bags.take import take

__all__ = [
    "bad_records",
    "count_by",
    "read_records",
    "select",
    "take",
    "to_dataframe",
]


def __dir__() -> list[str]:
    return list(__all__)
