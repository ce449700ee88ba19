"""Substitutes for Dask expressions that compute when their divisions are accessed.

Dask computes quantiles for the divisions of ``set_index`` and ``sort_values``, measures every
partition for ``repartition(partition_size=...)``, and collects Parquet statistics with a
computation. Each class here is a subclass that computes nothing, so that Dask's own simplification
can run.
"""

from __future__ import annotations

from functools import cached_property, total_ordering
from typing import Any

from dask.tokenize import tokenize
from dask.typing import no_default

from hyperplane.core.dask_internals.frames import (
    PARQUET_STATISTICS,
    Expr,
    FromMap,
    FromMapProjectable,
    JoinRecursive,
    ReadParquetFSSpec,
    ReadParquetPyarrowFS,
    Repartition,
    RepartitionFreq,
    SetIndex,
    SortValues,
    divisions_cache,
    extract_parquet_statistics,
)

Divisions = tuple[Any, ...]


@total_ordering
class UnknownDivision:
    """A division whose value is not computed; it sorts before every known value."""

    def __init__(self, position: int, step: str) -> None:
        self.order = (position, step)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnknownDivision) and self.order == other.order

    def __lt__(self, other: object) -> bool:
        return not isinstance(other, UnknownDivision) or self.order < other.order

    def __hash__(self) -> int:
        return hash(self.order)


class _LazySort:
    """Base of the substitutes of ``set_index`` and ``sort_values``."""

    operand: Any

    def _lower(self) -> None:
        return None

    @property
    def presorted(self) -> bool:
        """Whether an earlier computation found that the rows are sorted by this column."""
        return bool(self.operand("cached_divisions") and self.operand("cached_divisions")[1])

    def _get_cached_divisions(self) -> Divisions | None:
        cached = self.operand("cached_divisions")
        return tuple(cached[0]) if cached else None


class LazySetIndex(_LazySort, SetIndex):
    """``set_index`` that does not compute its divisions."""

    _parameters = [*SetIndex._parameters, "cached_divisions"]  # noqa: RUF012 - Dask declares it so
    _defaults = {**SetIndex._defaults, "cached_divisions": None}  # noqa: RUF012

    def _divisions(self) -> Divisions:
        if self.user_divisions is not None:
            divisions: Divisions = tuple(self.user_divisions)
            return divisions
        if self._npartitions_input == 1:
            return (None, None)
        cached = self._get_cached_divisions()
        if cached is not None:
            return cached
        return tuple(
            UnknownDivision(number, self._name) for number in range(self._npartitions_input + 1)
        )


class LazySortValues(_LazySort, SortValues):
    """``sort_values`` that does not compute its number of partitions."""

    _parameters = [*SortValues._parameters, "cached_divisions"]  # noqa: RUF012 - Dask declares it so
    _defaults = {**SortValues._defaults, "cached_divisions": None}  # noqa: RUF012

    def _divisions(self) -> Divisions:
        if self.frame.npartitions == 1:  # Dask ignores npartitions here
            return (None, None)
        return self._get_cached_divisions() or (None,) * (self._npartitions_input + 1)


class LazyRepartition(Repartition):
    """``repartition`` that neither measures partitions nor lowers its dependencies."""

    def _divisions(self) -> Divisions:
        if self.partition_size is not None:
            count: int = self.frame.npartitions
            return (None,) * (count + 1)
        if self.operand("new_partitions") is None:
            return tuple(self.new_divisions)
        return tuple(Repartition(*self.operands)._lower().divisions)


class LazyRepartitionFreq(RepartitionFreq):
    """``repartition(freq=...)`` of divisions that may be unknown."""

    def _divisions(self) -> Divisions:
        divisions: Divisions = self.frame.divisions
        return (
            divisions if isinstance(divisions[0], UnknownDivision) else tuple(super()._divisions())
        )


class LazyReadParquet(ReadParquetFSSpec):
    """``read_parquet`` that does not read all footers for its length."""

    def _get_lengths(self) -> None:
        return None


class LazyReadParquetArrow(ReadParquetPyarrowFS):
    """``read_parquet(filesystem="arrow")`` that reads footers directly, not in Dask tasks."""

    def _get_lengths(self) -> None:
        return None

    def load_statistics(self, files: Any = None, fragments: Any = None) -> None:
        """Store the statistics of files in Dask's cache."""
        files = self._dataset_info["all_files"] if files is None else files
        fragments = self.fragments_unsorted if fragments is None else fragments
        for file, fragment in zip(files, fragments, strict=True):
            token = tokenize(file)
            if token not in PARQUET_STATISTICS:
                footer = fragment.metadata.to_dict()
                PARQUET_STATISTICS[token] = extract_parquet_statistics(footer)

    @cached_property
    def _fusion_compression_factor(self) -> float:
        return 1.0


_LAZY_CLASSES = {
    Repartition: LazyRepartition,
    RepartitionFreq: LazyRepartitionFreq,
    ReadParquetFSSpec: LazyReadParquet,
    ReadParquetPyarrowFS: LazyReadParquetArrow,
}


def make_lazy(expr: Any) -> Any:
    """Return a copy of an expression whose properties never compute anything."""
    return _convert_step(expr, {})


def _convert_step(expr: Any, converted: dict[str, Any]) -> Any:
    """Convert a step and its dependencies; ``converted`` has the converted steps by name."""
    if expr._name not in converted:
        operands = [_convert_operand(operand, converted) for operand in expr.operands]
        converted[expr._name] = _replace_step(expr, operands)
    return converted[expr._name]


def _convert_operand(operand: Any, converted: dict[str, Any]) -> Any:
    if isinstance(operand, Expr):
        return _convert_step(operand, converted)
    if isinstance(operand, list) and any(isinstance(item, Expr) for item in operand):
        return [_convert_operand(item, converted) for item in operand]
    return operand


def _replace_step(expr: Any, operands: list[Any]) -> Any:
    """Return the substitute of a step with converted operands, or the step itself."""
    kind = type(expr)
    if kind in _LAZY_CLASSES:
        return _LAZY_CLASSES[kind](*operands)
    if kind is SetIndex:
        return _add_cached_divisions(LazySetIndex, expr, operands, expr.other._name)
    if kind is SortValues:
        return _add_cached_divisions(LazySortValues, expr, operands, expr.frame[expr.by[0]]._name)
    if kind is JoinRecursive:
        return kind(*operands)._lower()
    if kind in (FromMap, FromMapProjectable) and expr.operand("user_meta") is no_default:
        # Without user_meta a projection would call the function to find its columns.
        meta = FromMap._meta.__get__(expr)
        operands[kind._parameters.index("user_meta")] = meta
        return kind(*operands)
    changed = any(new is not old for new, old in zip(operands, expr.operands, strict=True))
    return kind(*operands) if changed else expr


def _add_cached_divisions(kind: Any, expr: Any, operands: list[Any], column: str) -> Any:
    """Return a substitute with the divisions that Dask has computed and cached for the step."""
    step = kind(*operands, None)
    ascending = expr._divisions_ascending if kind is LazySortValues else expr.ascending
    key = column, step._npartitions_input, ascending, 128e6, expr.upsample
    if key not in divisions_cache:
        return step
    divisions, lowest, highest, presorted = divisions_cache[key]
    if kind is LazySortValues:
        divisions = [None] * len(divisions)
    elif presorted and len(lowest) == step._npartitions_input:
        divisions = [*lowest, highest[-1]]
    return kind(*operands, (tuple(divisions), bool(presorted)))
