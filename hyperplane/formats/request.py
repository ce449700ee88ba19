"""The request of a call of ``read`` or ``shard_rows``, and the plan made for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.errors import DataError, Fault, ReadError, check
from hyperplane.core.units import is_iterable
from hyperplane.formats import column_types
from hyperplane.formats import filters as row_filters
from hyperplane.formats.read_errors import join_errors, omit_skip_advice, warn_skipped

if TYPE_CHECKING:
    from hyperplane.formats.column_types import Decimals
    from hyperplane.formats.partitions import ScannablePartition
    from hyperplane.formats.schemas import SchemaMode
    from hyperplane.objectstore.locations import File

OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class ReadPlan:
    """The partitions and columns that a call of ``read`` or ``shard_rows`` reads.

    Parameters
    ----------
    parts : sequence of ScannablePartition
        At least one partition; none only for a shard without rows.
    columns : dict of str to polars.DataType
        The requested columns.
    optional : set of str
        Columns that may have missing values.
    categories : dict of str to tuple of str
        Columns of ordered categories, with these categories.
    pandas_dtypes : dict of str to dtype
        Columns whose pandas dtype the caller set and that would otherwise get another one.
    """

    parts: Sequence[ScannablePartition]
    columns: Mapping[str, pl.DataType]
    optional: set[str]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pandas_dtypes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def like(self) -> pd.DataFrame:
        """An empty frame of the columns with their pandas dtypes (Dask's ``meta``)."""
        kinds = {name: self._to_pandas_dtype(name, kind) for name, kind in self.columns.items()}
        for name, categories in self.categories.items():
            kinds[name] = pd.CategoricalDtype(pd.Index(categories, dtype=kinds[name]), ordered=True)
        kinds |= {name: dtype for name, dtype in self.pandas_dtypes.items() if name in kinds}
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})

    def _to_pandas_dtype(self, name: str, kind: pl.DataType) -> Any:
        try:
            return column_types.to_pandas_dtype(kind, name in self.optional)
        except pa.ArrowInvalid as error:  # more than 64 nested lists
            advice = (
                "read it with hyperplane.bag.read_records, or select other columns with columns="
            )
            raise DataError(
                name, f"has a type that Arrow does not support ({error}); {advice}"
            ) from error


def parse_columns(columns: Any) -> tuple[list[Any], list[Fault]]:
    """Return the elements of the argument ``columns``, and a fault if it is not a list."""
    single = isinstance(columns, str) or not is_iterable(columns)
    names = [] if single else list(columns)
    if names:
        return names, []
    value = repr(columns)[:80]
    advice = f"write columns=[{value}]" if isinstance(columns, str) else ""
    return [], [Fault("columns", value, "a list of at least one column", advice)]


@dataclass(frozen=True)
class ReadRequest:
    """The arguments of ``read`` that are common to all formats."""

    columns: Any = None
    filters: Any = None
    partition_size: int = 100_000_000
    schema_mode: SchemaMode = "strict"
    decimals: Decimals = "float"
    on_error: OnError = "raise"
    #: Whether each partition contains rows of one file only.
    one_file_each: bool = False

    def files(self, slices: Sequence[Any]) -> list[File] | None:
        """Return the file of each slice, or None if slices of different files may be joined."""
        return [file_slice.file for file_slice in slices] if self.one_file_each else None

    def resolve(
        self, known: Mapping[str, pl.DataType], default: Sequence[str]
    ) -> tuple[row_filters.Filters, dict[str, pl.DataType]]:
        """Return the parsed filters and the requested columns with their types.

        Parameters
        ----------
        known : mapping of str to polars.DataType
            All columns of the files.
        default : sequence of str
            The columns returned by default.

        Raises
        ------
        RequestError
            If a column is unknown or a filter is invalid; the error lists all faults.
        """
        names, faults = (list(default), []) if self.columns is None else parse_columns(self.columns)
        for name in names:
            if not row_filters.is_column(name, known):
                allowed = row_filters.describe_columns(known)
                advice = row_filters.suggest_similar(name, known)
                faults.append(Fault("columns", repr(name)[:80], allowed, advice))
            elif names.count(name) > 1:
                faults.append(Fault("columns", repr(name), "each column once"))
        filters_parsed, filter_faults = row_filters.parse_filters(self.filters, known)
        check(list(dict.fromkeys([*faults, *filter_faults])))
        return filters_parsed, {name: known[name] for name in names}

    def list_names(self) -> set[str] | None:
        """Return the texts of the request, among them all its columns; None if they may be any.

        Unlike :meth:`resolve` it needs no schema of the files.
        """
        filters = () if self.filters is None else self.filters
        if not isinstance(self.columns, list | tuple) or not isinstance(filters, list | tuple):
            return None
        return set(_find_texts([self.columns, filters]))

    def raise_or_warn(self, errors: Sequence[ReadError], readable: int) -> None:
        """Raise the errors of files, or warn if they are skipped and ``readable`` files remain."""
        if errors and self.on_error == "raise":
            raise join_errors(errors)
        if errors and not readable:
            raise join_errors([omit_skip_advice(error) for error in errors])
        warn_skipped(errors)


def _find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_texts(each)
