"""What the values of all trials of an estimator depend on, to refuse a name for another search.

Texts and hashes are the same in another process for the same call. Where that is not possible, they
are empty, which equals everything.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Collection
from typing import Any

import numpy as np

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SIMPLE = (type(None), bool, int, float, str)


def describe_search(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    cv: Any,
    scoring: Any,
    space: Collection[str],
) -> dict[str, str]:
    """Return a text or hash of each argument; ``space`` names the parameters that trials set.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> one, two = (describe_search(Ridge(a), [[1]], [1], 5, None, []) for a in (1, 2))
    >>> [name for name in one if one[name] != two[name]]
    ['objective']
    """
    return {
        "objective": _describe_estimator(estimator, space),
        "X": _hash_rows(X),
        "y": _hash_rows(y),
        "cv": _describe_folds(cv),
        "scoring": "of the estimator" if scoring is None else _describe(scoring),
    }


def list_differences(earlier: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the arguments that differ.

    Examples
    --------
    >>> list_differences({"X": "a", "cv": "", "y": "b"}, {"X": "c", "cv": "5", "y": "b"})
    ['X']
    """
    if not earlier or not now:  # one of them is the search of a function
        return ["objective"] if earlier or now else []
    return [
        name
        for name, value in now.items()
        if value and earlier.get(name) and earlier[name] != value
    ]


def _describe_estimator(estimator: Any, space: Collection[str]) -> str:
    kind = type(estimator)
    parameters = {
        name: _describe(value)
        for name, value in sorted(estimator.get_params(deep=True).items())
        if name not in space
    }
    return json.dumps([kind.__module__, kind.__qualname__, parameters])


def _describe(value: Any) -> str:
    """Return the text of a simple value, and the names of a function or of the class of others."""
    if isinstance(value, _SIMPLE):
        return repr(value)
    if callable(getattr(value, "get_params", None)):  # its parameters are listed, too
        return type(value).__qualname__
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else _hash_text(_ADDRESS.sub("", repr(value)))


def _describe_folds(cv: Any) -> str:
    if cv is None or isinstance(cv, int):
        return str(5 if cv is None else cv)  # as in scikit-learn
    if callable(getattr(cv, "split", None)):
        return f"{type(cv).__qualname__} {_hash_text(_ADDRESS.sub('', repr(cv)))}"
    return ""  # lists and generators of positions


def _hash_text(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _hash_rows(table: Any) -> str:
    """Return a hash of rows, whatever their layout in memory; "" for objects of other kinds."""
    if table is None:
        return "none"
    try:
        return _hash_text(" ".join(_list_hashes(table)))
    except Exception:  # noqa: BLE001 - of pandas, SciPy or a class of the user: not compared
        return ""


def _list_hashes(table: Any) -> list[str]:
    pd: Any = sys.modules.get("pandas")  # a dataframe exists only where it is imported
    # While another thread imports pandas, it may not have the classes yet.
    classes: Any = tuple(getattr(pd, name, None) for name in ("DataFrame", "Series"))
    if None not in classes and isinstance(table, classes):
        columns = [str(name) for name in getattr(table, "columns", ())]
        return [repr(columns), *_list_hashes(pd.util.hash_pandas_object(table, index=False).array)]
    if callable(getattr(table, "tocsr", None)):
        rows = table.tocsr(copy=True)
        rows.sort_indices()
        return [
            str(rows.shape),
            *(
                text
                for part in (rows.data, rows.indices, rows.indptr)
                for text in _list_hashes(part)
            ),
        ]
    array = np.asarray(table)
    if array.dtype.kind == "O":
        raise TypeError("objects")
    data = np.ascontiguousarray(array)
    return [str(array.shape), str(array.dtype), hashlib.blake2b(data.tobytes()).hexdigest()]
