"""Pieces of divided tables of a sample, of which output partitions of the true size are made.

A shuffle with tasks divides each partition into one piece for each output. Only some partitions are
in the sample: an output partition gets the pieces of these with its own number, and then those with
the following numbers, until it has as many bytes as an output partition has on average.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

Place = TypeVar("Place", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)

#: Share of the bytes of an output partition from which on no further piece is added.
_ENOUGH = 0.95
#: Column in which Dask keeps the number of the output partition of each row.
_NUMBERS = "_partitions"


def choose_pieces(
    numbers: Mapping[Name, int],
    places: Mapping[Name, Place],
    tables: Mapping[Place, Mapping[int, Any]],
    most: int,
    sizeof: Callable[[Any], int],
) -> tuple[dict[Name, Any], int]:
    """Return a piece for each input of an output partition, and the bytes of all of them.

    Parameters
    ----------
    numbers, places : mapping
        Names of the inputs -> number of the piece, and the divided table that is used.
    tables : mapping
        The pieces of each divided table, by their numbers.
    most : int
        How many different numbers are used.
    sizeof : callable
        Returns the bytes of a piece.

    Examples
    --------
    >>> tables = {"t": {0: "aa", 1: "bb", 2: "", 3: "dd"}}
    >>> choose_pieces({"x": 1, "y": 1}, {"x": "t", "y": "t"}, tables, 2, len)
    ({'x': 'bb', 'y': 'dd'}, 4)
    """
    used = list(dict.fromkeys(places.values()))
    ordered = sorted(set().union(*(tables[place] for place in used)))
    real = sum(sum(map(sizeof, tables[place].values())) / len(ordered) for place in places.values())
    first = next((at for at, number in enumerate(ordered) if number >= min(numbers.values())), 0)
    filled = [
        [piece for place in used if len(piece := tables[place].get(number, ()))]
        for number in [*ordered[first:], *ordered[:first]]
    ]
    pieces = itertools.chain.from_iterable([each for each in filled if each][:most])
    following = itertools.cycle(pieces)
    empty = next(iter(tables[used[0]].values()))[:0]
    chosen: dict[Name, Any] = {}
    total = 0
    for name in numbers:
        chosen[name] = next(following, empty) if total < _ENOUGH * real else empty
        total += sizeof(chosen[name]) if len(chosen[name]) else 0
    return chosen, total


def rotate_pieces(pieces: list[Any], use: int, is_once: bool) -> list[Any]:
    """Return a list of pieces of a table with others in their places; empty if there are no more.

    Parameters
    ----------
    pieces : list
        Pieces of a table, one for each task that receives rows.
    use : int
        How often the list has been used before.
    is_once : bool
        Whether no piece is used again.

    Examples
    --------
    >>> rotate_pieces(["a", "b", "c"], 1, True), rotate_pieces(["a", "b", "c"], 4, False)
    (['b', 'c', 'a'], ['b', 'c', 'a'])
    """
    if use < len(pieces) or not is_once:
        first = use % len(pieces)
        return [*pieces[first:], *pieces[:first]]
    piece = pieces[0]
    while isinstance(piece, list):
        piece = piece[0]
    table = piece.load() if hasattr(piece, "load") else piece
    return [table.clear()] * len(pieces)


def measure_outputs(
    pieces: Mapping[int, Any], outputs: int, sizeof: Callable[[Any], int]
) -> dict[int, int]:
    """Return the bytes that each output partition of a shuffle gets of a divided table.

    A shuffle of many partitions has several stages: in the first one a piece has the rows of
    several outputs, whose numbers are in a column. Without that column nothing is known of them.
    """
    if len(pieces) >= outputs:
        return {number: sizeof(piece) for number, piece in pieces.items()}
    sizes: Counter[int] = Counter()
    for piece in pieces.values():
        if _NUMBERS not in getattr(piece, "columns", ()) or not len(piece):
            continue
        each = sizeof(piece) / len(piece)
        for number, rows in (piece[_NUMBERS] % outputs).value_counts().items():
            sizes[int(number)] += round(rows * each)
    return dict(sizes)
