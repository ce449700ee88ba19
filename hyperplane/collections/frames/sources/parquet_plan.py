"""From Parquet files to parts: what they hold, which row groups go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.partitions import Bounds
from hyperplane.collections.frames.sources import (
    folders,
    footers,
    index_ranges,
    schemas,
    types,
)
from hyperplane.collections.frames.sources.filters import (
    Bound,
    Filters,
    columns_of,
    may_match,
)
from hyperplane.collections.frames.sources.footers import Footer
from hyperplane.collections.frames.sources.parquet import ParquetPart, Piece
from hyperplane.collections.frames.sources.plan import joined
from hyperplane.collections.frames.sources.recipe import Recipe, may_lose
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.errors import Fault, check
from hyperplane.stores.places import File

T = TypeVar("T")
Kinds = dict[str, pl.DataType]
Words = Mapping[str, tuple[str, ...]]


@dataclass
class _Family:
    """The files of one schema."""

    number: int
    schema: pa.Schema
    shape: schemas.Shape
    leaves: Mapping[str, Sequence[int]]
    with_intervals: frozenset[str]
    index: str | None
    members: list[Footer] = field(default_factory=list)

    @property
    def by_arrow(self) -> bool:
        """Whether pyarrow reads the files: Polars opens none with such a column."""
        return bool(self.with_intervals or self.shape.unreadable)

    @property
    def likes(self) -> int | None:
        """Its number, if all of its files are of one schema for Polars as well."""
        # For pyarrow dates are dates; Polars reads some as times, as the writer had them.
        dates = any(pa.types.is_date(kind) for kind in self.schema.types)
        return None if dates else self.number


@dataclass(frozen=True)
class _Unit:
    """One row group."""

    footer: Footer
    family: _Family
    recipe: Recipe
    number: int
    start: int
    group: Any

    @property
    def file(self) -> File:
        return self.footer.file

    def bound(self, name: str, kind: pl.DataType) -> Bound | None:
        fixed = dict(self.recipe.fixed)
        rows = self.group.num_rows
        if name in fixed:
            value = fixed[name]
            return Bound(value, value, 0 if value is not None else rows, rows)
        # What a type does not hold is an error, and no reason to pass over the row group; the
        # statistics of UUIDs are bytes, and no text.
        if kind.is_nested() or name in self.recipe.lossy | self.recipe.uuids:
            return None
        if name == self.family.index and self.footer.index is not None:
            return self.footer.index.bound(self.start, rows)
        leaves = self.family.leaves[name]
        if len(leaves) > 1:
            return None
        held = self.family.schema.field(name).type
        return footers.bound(self.group, leaves[0], kind, held)

    def memory(self, names: Sequence[str]) -> int:
        leaves = [leaf for name in names for leaf in self.family.leaves.get(name, ())]
        schema = self.footer.metadata.schema
        index = 8 * self.group.num_rows if self.family.index in names else 0
        return index + sum(footers.memory(self.group, leaf, schema) for leaf in leaves)


def plan(files: Sequence[File], request: Request) -> Table:
    """Read the footers, and make a table of the files.

    Raises
    ------
    RequestError
        When files do not go together, or what is asked does not go with them.
    ReadError
        When a file has no sound footer, unless it is to be skipped.
    """
    found, damaged = footers.read(files)
    request.tell(damaged, len(found))
    index_ranges.warn_of_lost_ranges(found, request.columns)
    families = _families(found, request.decimals)
    columns, faults = schemas.merged([family.shape for family in families], request.mixing)
    check(faults)
    keys, key_kinds, lacking = folders.keys([footer.file.path for footer in found], columns)
    columns = {**columns, **key_kinds}
    filters, chosen = request.checked(columns, _usual(columns))
    looked_at = {name: columns[name] for name in columns_of(filters)}
    check(_without_form(families, {**chosen, **looked_at}))
    words = _words(found, families, chosen)
    units = []
    for family in families:
        recipes: dict[Any, Recipe] = {}
        for footer in family.members:
            fixed = keys.get(footer.file.path, ())
            if fixed not in recipes:
                recipes[fixed] = _recipe(family, dict(fixed), chosen, looked_at, words)
            units += _units(footer, family, recipes[fixed])
    order = {id(footer): place for place, footer in enumerate(found)}
    units.sort(key=lambda unit: (order[id(unit.footer)], unit.number))
    optional = {name for name in chosen if _optional(name, chosen[name], families, key_kinds)}
    optional |= lacking.intersection(chosen)
    kept = [unit for unit in units if _may_match(unit, filters, looked_at)]
    sizes = {id(unit): unit.memory(list(chosen)) for unit in kept}
    each = [sizes[id(unit)] for unit in kept]
    groups = joined(kept, each, request.partition_size, request.files(kept))
    parts = [
        ParquetPart(
            tuple(_pieces(group)),
            filters,
            sum(sizes[id(unit)] for unit in group),
            request.on_error,
            _bounds(group, chosen),
        )
        for group in groups
    ]
    parts = parts or [_nothing(families[0], chosen, looked_at, filters)]
    return Table(parts, chosen, optional, words)


def _families(found: Sequence[Footer], decimals: types.Decimals) -> list[_Family]:
    families: list[_Family] = []
    faults = []
    for footer in found:
        schema, intervals = footer.schema, footer.with_intervals
        leaves = footers.leaves(schema)
        index = footer.index.name if footer.index is not None else None
        if index is not None:
            schema = schema.append(pa.field(index, pa.int64(), nullable=False))
        same = (o for o in families if (o.with_intervals, o.index) == (intervals, index))
        family = next((one for one in same if one.schema.equals(schema)), None)
        if family is None:
            shape, wrong = schemas.shape(schema, decimals, footer.file.url, intervals)
            faults += wrong
            family = _Family(len(families), schema, shape, leaves, intervals, index)
            families.append(family)
        else:
            family.shape.urls.append(footer.file.url)
        family.members.append(footer)
    check(faults)
    return families


def _without_form(families: Sequence[_Family], names: Kinds) -> list[Fault]:
    """Wanted columns of types that Polars has not, or that are stored as numbers and records."""
    return schemas.unreadable((family.shape for family in families), names) + [
        Fault(
            family.members[0].file.url,
            f"{field.name}: {field.type.extension_name.removeprefix('pandas.')}",
            "a type that Polars has",
            "read it with hyperplane.load or dask.dataframe.read_parquet, or name the other "
            "columns with columns=",
        )
        for family in families
        for field in family.schema
        if field.name in names and types.is_of_pandas(field.type)
    ]


def _usual(columns: Kinds) -> list[str]:
    """All columns but the unnamed index that pandas and Dask store beside them."""
    return [name for name in columns if not schemas.is_unnamed_index(name)]


def _words(found: Sequence[Footer], families: Sequence[_Family], chosen: Kinds) -> Words:
    """Columns that are words in the same order of their own in all files, and those words."""
    everywhere = [footers.ordered(family.schema) for family in families]
    return footers.words(found, set(chosen).intersection(*everywhere))


def _recipe(
    family: _Family,
    fixed: Mapping[str, Any],
    chosen: Kinds,
    looked_at: Kinds,
    words: Words,
) -> Recipe:
    used = {**chosen, **looked_at}
    here = family.shape.kinds
    absent = {name: fixed.get(name) for name in used if name not in here}
    cast = frozenset(
        name
        for name, kind in used.items()
        if name in here and not _as_it_is(family.schema.field(name).type, kind)
    )
    return Recipe(
        tuple(chosen.items()),
        tuple(looked_at.items()),
        cast,
        tuple(absent.items()),
        tuple(words.items()),
        frozenset(n for n in cast if may_lose(here[n], used[n])),
        frozenset(n for n in cast if types.is_uuid(family.schema.field(n).type)),
    )


def _as_it_is(arrow: pa.DataType, kind: pl.DataType) -> bool:
    # A file may keep dates of another width than its own schema says.
    return not pa.types.is_date(arrow) and types.of_arrow(arrow) == kind


def _units(footer: Footer, family: _Family, recipe: Recipe) -> list[_Unit]:
    units, start = [], 0
    for number in range(footer.metadata.num_row_groups):
        group = footer.metadata.row_group(number)
        if group.num_rows:
            units.append(_Unit(footer, family, recipe, number, start, group))
        start += group.num_rows
    return units


def _may_match(unit: _Unit, filters: Filters, looked_at: Kinds) -> bool:
    return may_match(filters, lambda name: unit.bound(name, looked_at[name]))


def _optional(name: str, kind: pl.DataType, families: Sequence[_Family], key_kinds: Kinds) -> bool:
    if not (kind.is_integer() or isinstance(kind, pl.Boolean)):
        return True
    for family in families:
        if name == family.index:
            continue
        if name not in family.leaves:
            if name not in key_kinds:
                return True
            continue
        leaf = family.leaves[name][0]
        if any(footers.nullable(footer, leaf) for footer in family.members):
            return True
    return False


def _pieces(group: Sequence[_Unit]) -> list[Piece]:
    """Neighbouring row groups of one file as one piece."""
    runs: list[list[_Unit]] = []
    for unit in group:
        last = runs[-1][-1] if runs else None
        if last is not None and last.footer is unit.footer and _next(last) == unit.start:
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return [_piece(run) for run in runs]


def _next(unit: _Unit) -> int:
    return int(unit.start + unit.group.num_rows)


def _piece(run: Sequence[_Unit]) -> Piece:
    first, rows = run[0], _next(run[-1]) - run[0].start
    whole = rows == first.footer.metadata.num_rows
    numbers = tuple(unit.number for unit in run)
    family = first.family
    return Piece(
        first.footer.file,
        numbers,
        first.start,
        rows,
        whole,
        family.likes,
        first.recipe,
        family.by_arrow,
        _index(first.footer, first.recipe),
    )


def _index(footer: Footer, recipe: Recipe) -> index_ranges.IndexRange | None:
    """The index of a file that is in its metadata, where it is wanted."""
    used = dict([*recipe.schema, *recipe.looked_at])
    return footer.index if footer.index is not None and footer.index.name in used else None


def _nothing(family: _Family, chosen: Kinds, looked_at: Kinds, filters: Filters) -> ParquetPart:
    """A part without rows, for there must be one."""
    recipe = _recipe(family, {}, chosen, looked_at, {})
    footer, by_arrow = family.members[0], family.by_arrow
    index = _index(footer, recipe)
    piece = Piece(footer.file, (), 0, 0, False, None, recipe, by_arrow, index)
    return ParquetPart((piece,), filters, 0)


def _bounds(group: Sequence[_Unit], chosen: Kinds) -> dict[str, Bounds]:
    """Least and greatest value of each column of times or integers, where all are known."""
    known = {}
    for name, kind in chosen.items():
        if not (kind.is_integer() or isinstance(kind, pl.Datetime)):
            continue
        bounds = [unit.bound(name, kind) for unit in group]
        valued = [one for one in bounds if one is None or one.nulls is None or one.nulls < one.rows]
        if valued and all(one is not None and one.low is not None for one in valued):
            known[name] = (
                min(one.low for one in valued if one is not None),
                max(one.high for one in valued if one is not None),
            )
    return known
