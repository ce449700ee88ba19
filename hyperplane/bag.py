"""Helpers for Dask bags: read records from files, select, count, convert to a dataframe.

Each takes a bag and returns a lazy bag, except :func:`take`, which computes as ``Bag.take`` does.
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
