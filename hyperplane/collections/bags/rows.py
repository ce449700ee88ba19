"""Records as the rows of pandas dataframes, a partition at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute

from hyperplane.collections.bags.fields import Getter, Where
from hyperplane.collections.bags.files import Part
from hyperplane.collections.bags.kernel import TRIES, Filter, columns, ended_chunks
from hyperplane.collections.bags.lines import line_number
from hyperplane.collections.bags.records import Source, Tally, parse
from hyperplane.collections.bags.types import EXACT, Column, array, finished, series, takes_null

if TYPE_CHECKING:
    import pandas as pd


def frame(decided: Sequence[Column], pieces: Sequence[list[Any]]) -> pd.DataFrame:
    """A pandas dataframe of columns, each in pieces."""
    import pandas as pd  # here, for programs that make no dataframe

    made = {c.name: series(c, its) for c, its in zip(decided, pieces, strict=True)}
    return pd.DataFrame(made, columns=[column.name for column in decided])


def arrays(decided: Sequence[Column], records: list[Any], where: Callable[[int], str]) -> list[Any]:
    """The columns of records, checked; ``where`` names the place of a record."""
    found = []
    for column in decided:
        get = Getter(column.path)
        found.append(array(column, [get(record, None) for record in records], where))
    return found


@dataclass(frozen=True)
class ReadFrame:
    """Reads a partition of files as a pandas dataframe."""

    source: Source
    where: Where | None
    decided: tuple[Column, ...]
    token: str

    def __dask_tokenize__(self) -> str:
        return self.token

    def __call__(self, part: Part, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """A partition, with all columns or some."""
        if columns is not None and not columns:  # the rows alone, to be counted
            return self(part, [self.decided[0].name])[[]]
        by_name = {column.name: column for column in self.decided}
        decided = [by_name[name] for name in (by_name if columns is None else columns)]
        source, where = self.source, self.where
        tally = Tally(source, part)
        conditions = Filter(where)
        pieces: list[list[Any]] = [[] for _ in decided]
        tries = TRIES if conditions.is_whole else 0
        for span, place, chunk in ended_chunks(source, part):
            found = _from_columns(source, chunk, decided, conditions, tally) if tries else None
            if found is None:
                tries = max(0, tries - 1)
                found = _from_records(source, span, place, chunk, decided, where, tally)
            for piece, values in zip(pieces, found, strict=True):
                piece.append(values)
        tally.close()
        return frame(decided, pieces)


def _from_columns(
    source: Source, chunk: bytes, decided: Sequence[Column], conditions: Filter, tally: Tally
) -> list[Any] | None:
    """Arrays of all columns; None when one may hold what is not of its type."""
    types = {**{column.path: column.arrow for column in decided}, **conditions.types}
    if None in types.values() or any(types[c.path] != c.arrow for c in decided):
        return None
    found = columns(source, chunk, types)
    if found is None:
        return None
    mask = conditions.mask(found)
    made = []
    for column in decided:
        values = found[column.path] if mask is None else found[column.path].filter(mask)
        if values.null_count and not takes_null(column):
            return None
        if column.kind == "float64" and _may_be_inexact(values):
            return None  # whole numbers of more digits
        try:
            made.append(finished(column, values))
        except pa.ArrowInvalid:
            return None
    tally.good += chunk.count(b"\n")
    return made


def _may_be_inexact(values: Any) -> bool:
    return bool(compute.any(compute.greater_equal(compute.abs(values), float(EXACT))).as_py())


def _from_records(
    source: Source,
    span: Any,
    place: int,
    chunk: bytes,
    decided: Sequence[Column],
    where: Where | None,
    tally: Tally,
) -> list[Any]:
    matches: Callable[[Any], bool] = where.test() if where else lambda record: True
    records = list(filter(matches, parse(source, span, place, chunk, tally)))

    def named(position: int) -> str:
        """The line of a record, found by going through the chunk again."""
        number = line_number(source.store, span, place)
        for line in chunk.split(b"\n"):
            found = parse(source, span, place, line + b"\n", Tally(source, ()))
            position -= sum(map(matches, found))
            if position < 0:
                break
            number += 1
        return f"line {number} of {span.path}"

    return arrays(decided, records, named)
