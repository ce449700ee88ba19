"""Transformers of columns with the names of Orca: ``StringIndexer`` and scalers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import DataError, Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.frame_functions import (
    ensure_frame,
    find_missing_columns,
    join_tree,
    join_unique,
)
from hyperplane.ml.shards.summaries import ColumnSummary, join_summaries, summarize
from hyperplane.ml.shards.xshards import XShards

_NOT_FITTED = "call fit_transform first"


class StringIndex:
    """The index of each value of a column."""

    def __init__(self, indices: Mapping[Any, int], col_name: str) -> None:
        self.col_name = col_name
        self._indices = dict(indices)

    def __repr__(self) -> str:
        return f"<StringIndex of {self.col_name!r}: {len(self._indices)} values>"

    def to_dict(self) -> dict[Any, int]:
        """Return value to index."""
        return dict(self._indices)


@check_call
class StringIndexer:
    """Replace the values of columns by the numbers 1, 2 and so on, in the order of the values.

    0 is not used, so that a program can use it for unknown values: missing values, and values that
    ``fit_transform`` has not seen, become NaN.

    Parameters
    ----------
    inputCol : str or list of str
        The columns.

    Examples
    --------
    >>> import pandas as pd
    >>> shards = XShards.from_pandas(pd.DataFrame({"city": ["Rome", "Oslo"]}), 2)
    >>> indexer = StringIndexer(inputCol="city")
    >>> indexer.fit_transform(shards).concat_to_pdf()["city"].tolist()
    [2, 1]
    >>> indexer.indices.to_dict()
    {'Oslo': 1, 'Rome': 2}
    """

    def __init__(self, inputCol: str | Sequence[str]) -> None:  # noqa: N803 - Orca's name
        self.indices: StringIndex | list[StringIndex] | None = None
        self.setInputCol(inputCol)

    @check_call
    def setInputCol(self, inputCol: str | Sequence[str]) -> None:  # noqa: N802, N803 - Orca's name
        """Set the columns."""
        self.inputCol = inputCol
        self._names = _read_names(inputCol)

    @check_call
    def fit_transform(self, shard: XShards) -> XShards:
        """Compute the distinct values of the columns, and return shards with their numbers."""
        _check_shards(shard)
        distinct = tasks.map_parts(shard.parts, _find_distinct, (self._names,), "StringIndexer")
        values = tasks.compute([join_tree(distinct, _join_distinct)])[0]
        indices = [
            StringIndex({each: number for number, each in enumerate(_sort(found), 1)}, name)
            for name, found in zip(self._names, values, strict=True)
        ]
        self.indices = indices[0] if isinstance(self.inputCol, str) else indices
        return self.transform(shard)

    @check_call
    def transform(self, shard: XShards) -> XShards:
        """Return shards with the numbers of ``fit_transform``; computes which values are known."""
        _check_shards(shard)
        if self.indices is None:
            check([Fault("StringIndexer", "", "indices", _NOT_FITTED)])
        indices = [self.indices] if isinstance(self.indices, StringIndex) else self.indices or []
        maps = {each.col_name: each.to_dict() for each in indices}
        known = tasks.map_parts(shard.parts, _are_known, (maps,), "StringIndexer")
        found = tasks.compute([join_tree(known, _join_known)])[0]
        # The same type in all shards, which later methods need.
        types = {name: "int64" if found[name] else "float64" for name in maps}
        return XShards(tasks.map_parts(shard.parts, _encode, (maps, types), "StringIndexer"))


class _Scaler(ABC):
    """A transformer that adds a column with the scaled values of several columns."""

    def __init__(self, inputCol: Any, outputCol: Any) -> None:  # noqa: N803
        self._summaries: list[ColumnSummary] | None = None
        self.inputCol, self.outputCol = inputCol, outputCol
        self._names: list[Any] = []
        if inputCol is not None:
            self.setInputOutputCol(inputCol, outputCol)

    @check_call
    def setInputOutputCol(self, inputCol: str | Sequence[str], outputCol: str) -> None:  # noqa: N802, N803
        """Set the columns to scale, and the name of the new column."""
        faults = _find_list_faults(inputCol)
        if not isinstance(outputCol, str) or not outputCol:
            faults.append(Fault("outputCol", repr(outputCol)[:80], "the name of the new column"))
        check(faults)
        self._names = _read_names(inputCol)
        self.inputCol, self.outputCol = self._names, outputCol

    @check_call
    def fit_transform(self, shard: XShards) -> XShards:
        """Compute the statistics of the columns, and return shards with the scaled values."""
        _check_shards(shard)
        if not self._names:
            check([Fault("inputCol", "None", "columns", "call setInputOutputCol first")])
        summaries = tasks.map_parts(shard.parts, summarize, (self._names,), type(self).__name__)
        found = tasks.compute([join_tree(summaries, join_summaries)])[0]
        check(
            Fault("inputCol", repr(name), "a column of numbers")
            for name, each in zip(self._names, found, strict=True)
            if each.rows and each.mean is None
        )
        self._summaries = found
        return self.transform(shard)

    @check_call
    def transform(self, shard: XShards) -> XShards:
        """Return shards with the values scaled by the statistics of ``fit_transform``; lazy."""
        _check_shards(shard)
        if self._summaries is None:
            check([Fault(type(self).__name__, "", "statistics", _NOT_FITTED)])
        pairs = [self._get_line(each) for each in self._summaries or []]
        args = (self._names, self.outputCol, pairs)
        return XShards(tasks.map_parts(shard.parts, _scale, args, type(self).__name__))

    @abstractmethod
    def _get_line(self, summary: ColumnSummary) -> tuple[float, float]:
        """Return ``a`` and ``b`` of the scaled value ``a * x + b`` of a column."""


@check_call
class MinMaxScaler(_Scaler):
    """Scale columns of numbers to a range; a column with a single value becomes its middle.

    The new column has a list of numbers in each row, in the order of the columns.

    Parameters
    ----------
    min, max : float
        The range.
    inputCol : str or list of str
        The columns. Missing values are an error.
    outputCol : str
        The new column.

    Examples
    --------
    >>> import pandas as pd
    >>> shards = XShards.from_pandas(pd.DataFrame({"a": [1, 2, 3], "b": [0, 5, 10]}), 2)
    >>> scaler = MinMaxScaler(inputCol=["a", "b"], outputCol="scaled")
    >>> scaler.fit_transform(shards).concat_to_pdf()["scaled"].tolist()
    [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]
    """

    def __init__(
        self,
        min: float = 0.0,  # noqa: A002 - Orca's name
        max: float = 1.0,  # noqa: A002 - Orca's name
        inputCol: str | Sequence[str] | None = None,  # noqa: N803
        outputCol: str | None = None,  # noqa: N803
    ) -> None:
        ends = {"min": min, "max": max}
        faults = [
            Fault(name, repr(value)[:80], "a finite number")
            for name, value in ends.items()
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value - value
        ]
        if not faults and min >= max:
            faults.append(Fault("min", repr(min), f"less than max, {max!r}"))
        check(faults)
        self.min, self.max = min, max
        super().__init__(inputCol, outputCol)

    def _get_line(self, summary: ColumnSummary) -> tuple[float, float]:
        if not summary.rows or summary.least == summary.most:
            return 0.0, (self.min + self.max) / 2
        factor = (self.max - self.min) / (summary.most - summary.least)
        return factor, self.min - summary.least * factor


@check_call
class StandardScaler(_Scaler):
    """Divide columns of numbers by their standard deviation; a column without one becomes 0.

    The new column has a list of numbers in each row, in the order of the columns.

    Parameters
    ----------
    withMean : bool
        Whether to subtract the mean first.
    withStd : bool
        Whether to divide by the standard deviation.
    inputCol : str or list of str
        The columns. Missing values are an error.
    outputCol : str
        The new column.
    """

    def __init__(
        self,
        withMean: bool = False,  # noqa: N803
        withStd: bool = True,  # noqa: N803
        inputCol: str | Sequence[str] | None = None,  # noqa: N803
        outputCol: str | None = None,  # noqa: N803
    ) -> None:
        check(find_flag_faults(withMean=withMean, withStd=withStd))
        self.withMean, self.withStd = withMean, withStd
        super().__init__(inputCol, outputCol)

    def _get_line(self, summary: ColumnSummary) -> tuple[float, float]:
        factor = 1.0
        if self.withStd:
            deviation = (summary.squares / max(summary.rows - 1, 1)) ** 0.5
            factor = 1 / deviation if deviation else 0.0
        return factor, -(summary.mean or 0.0) * factor if self.withMean else 0.0


def _find_list_faults(names: Any) -> list[Fault]:
    listed = list(names) if isinstance(names, (list, tuple)) else [names]
    if listed and all(isinstance(name, (str, int)) for name in listed):
        return []
    return [Fault("inputCol", repr(names)[:80], "a column or a list of columns, not empty")]


def _read_names(names: Any) -> list[Any]:
    check(_find_list_faults(names))
    return list(names) if isinstance(names, (list, tuple)) else [names]


def _check_shards(shards: Any) -> None:
    if not isinstance(shards, XShards):
        given = f"an object of type {type(shards).__name__}"
        check([Fault("shard", given, "XShards of pandas DataFrames")])


def _find_distinct(shard: Any, names: list[Any]) -> list[Any]:
    frame = ensure_frame(shard)
    check(find_missing_columns(frame, inputCol=names))
    return [frame[name].dropna().unique() for name in names]


def _join_distinct(found: Sequence[list[Any]]) -> list[Any]:
    return [join_unique(arrays) for arrays in zip(*found, strict=True)]


def _sort(values: Any) -> list[Any]:
    try:
        return sorted(values.tolist())
    except TypeError:  # of several types
        return sorted(values.tolist(), key=lambda value: (type(value).__name__, str(value)))


def _are_known(shard: Any, maps: Mapping[Any, Mapping[Hashable, int]]) -> dict[Any, bool]:
    """Return for each column whether all its values have an index."""
    frame = ensure_frame(shard)
    check(find_missing_columns(frame, inputCol=list(maps)))
    return {name: bool(frame[name].isin(list(known)).all()) for name, known in maps.items()}


def _join_known(found: Sequence[dict[Any, bool]]) -> dict[Any, bool]:
    return {name: all(each[name] for each in found) for name in found[0]}


def _encode(
    shard: Any, maps: Mapping[Any, Mapping[Hashable, int]], types: Mapping[Any, str]
) -> Any:
    frame = ensure_frame(shard)
    new = {
        name: frame[name].astype("object").map(dict(maps[name])).astype(kind)
        for name, kind in types.items()
    }
    frame = frame.copy(deep=False)
    for name, column in new.items():
        frame[name] = column
    return frame


def _scale(shard: Any, names: list[Any], output: str, lines: list[tuple[float, float]]) -> Any:
    import numpy as np
    import pandas as pd

    frame = ensure_frame(shard)
    check(find_missing_columns(frame, inputCol=names))
    for name in names:
        if frame[name].isna().any():
            raise DataError(str(name), "it has missing values; fill or drop them before scaling")
    factors, offsets = np.array(lines).T
    values = frame[names].to_numpy("float64") * factors + offsets
    return frame.assign(**{output: pd.Series(values.tolist(), index=frame.index, dtype="object")})
