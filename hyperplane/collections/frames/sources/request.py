"""What a caller of ``read`` asks for, checked against what the files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.sources import filters as row_filters
from hyperplane.collections.frames.sources import types
from hyperplane.collections.frames.sources.errors import joined, tell_skipped
from hyperplane.errors import DataError, Fault, ReadError, check
from hyperplane.units import is_iterable

if TYPE_CHECKING:
    from hyperplane.collections.frames.partitions import ScannablePartition
    from hyperplane.collections.frames.sources.schemas import Mixing
    from hyperplane.collections.frames.sources.types import Decimals

OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class Table:
    """What the files make together.

    Parameters
    ----------
    parts : sequence of Part
        At least one.
    columns : dict of str to polars.DataType
        The columns that were asked for.
    optional : set of str
        Those in which values may be missing.
    words : dict of str to tuple of str
        Those that are words in an order of their own, and which.
    declared : dict of str to dtype
        Those whose pandas type the caller set, where another one would be made of its own type.
    """

    parts: Sequence[ScannablePartition]
    columns: Mapping[str, pl.DataType]
    optional: set[str]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declared: Mapping[str, Any] = field(default_factory=dict)

    @property
    def like(self) -> pd.DataFrame:
        """No rows; the columns with their pandas types."""
        kinds = {name: self._in_pandas(name, kind) for name, kind in self.columns.items()}
        for name, words in self.words.items():
            kinds[name] = pd.CategoricalDtype(pd.Index(words, dtype=kinds[name]), ordered=True)
        kinds |= {name: dtype for name, dtype in self.declared.items() if name in kinds}
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})

    def _in_pandas(self, name: str, kind: pl.DataType) -> Any:
        try:
            return types.in_pandas(kind, name in self.optional)
        except pa.ArrowInvalid as error:  # lists within lists, more than 64 deep
            advice = "read it with hyperplane.bag.read_records, or name other columns in columns="
            raise DataError(name, f"has no type in Arrow ({error}); {advice}") from error


@dataclass(frozen=True)
class Request:
    """The arguments of ``read`` that all formats share."""

    columns: Any = None
    filters: Any = None
    partition_size: int = 100_000_000
    mixing: Mixing = "strict"
    decimals: Decimals = "float"
    on_error: OnError = "raise"
    #: Whether no part holds rows of two files.
    apart: bool = False

    def files(self, units: Sequence[Any]) -> list[str] | None:
        """The file of each of some units, where none are joined with those of other files."""
        return [unit.file.path for unit in units] if self.apart else None

    def checked(
        self, known: Mapping[str, pl.DataType], usual: Sequence[str]
    ) -> tuple[row_filters.Filters, dict[str, pl.DataType]]:
        """Filters and the columns that are wanted, with their types.

        Parameters
        ----------
        known : mapping of str to polars.DataType
            All columns of the files.
        usual : sequence of str
            Those that one gets when none are asked for.

        Raises
        ------
        RequestError
            With every unknown column and every wrong filter.
        """
        faults = []
        names = list(usual)
        if self.columns is not None:
            single = isinstance(self.columns, str) or not is_iterable(self.columns)
            names = [] if single else list(self.columns)
            if not names:
                asked = repr(self.columns)[:80]
                advice = f"write columns=[{asked}]" if isinstance(self.columns, str) else ""
                faults.append(Fault("columns", asked, "a list of at least one column", advice))
        for name in names:
            if not row_filters.is_among(name, known):
                allowed = "a column of the files: " + _some(known)
                advice = row_filters.near(name, known)
                faults.append(Fault("columns", repr(name)[:80], allowed, advice))
            elif names.count(name) > 1:
                faults.append(Fault("columns", repr(name), "each column once"))
        made, wrong = row_filters.parse(self.filters, known)
        check(list(dict.fromkeys([*faults, *wrong])))
        return made, {name: known[name] for name in names}

    def tell(self, errors: Sequence[ReadError], left: int) -> None:
        """Raise what is wrong with files, or warn when they are to be skipped.

        Parameters
        ----------
        errors : sequence of ReadError
            One for each file.
        left : int
            Files that can be read.
        """
        if errors and (self.on_error == "raise" or not left):
            raise joined(errors)
        tell_skipped(errors)


def _some(names: Mapping[str, Any]) -> str:
    shown = ", ".join(list(names)[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
