"""Helpers for Dask bags: read records from files, select, count, convert to a dataframe.

All results are lazy, except that of :func:`take`, which computes as ``Bag.take`` does.
"""

from __future__ import annotations

from hyperplane.collections.bags.count_by import count_by
from hyperplane.collections.bags.read_records import bad_records, read_records
from hyperplane.collections.bags.select import select
from hyperplane.collections.bags.take import take
from hyperplane.collections.bags.to_dataframe import to_dataframe

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
