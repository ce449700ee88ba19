"""Data of an estimator as partitions of a gang: every rank gets its own rows, evenly divided.

The rules of all estimators:

* The rows have the order of the partitions. Of N rows and n ranks, rank r gets the rows from
  ``r * N // n`` to ``(r + 1) * N // n``: the numbers of rows differ by at most one. Only the
  partitions at these limits are divided; nothing passes through the client, except data that
  was in its memory.
* In step s, a rank uses its rows from ``s * b`` to ``(s + 1) * b`` with the batch size b of each
  rank; shuffled rows are permuted within the rank, by the seed, the epoch and the rank.
* All ranks take the same number of steps, :func:`count_steps`. Losses and gradients of a step are
  averages over its rows on all ranks, not averages over ranks, so that n ranks with the batch size
  b equal one process with the batch size n * b. A rank without rows in the last step
  contributes a weight of 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import delayed

from hyperplane.core.errors import Fault, check
from hyperplane.core.units import plural
from hyperplane.ml.estimators.partition_reader import (
    Arrays,
    FeatureReader,
    describe_array,
    find_column_faults,
    find_name_faults,
)
from hyperplane.ml.estimators.spark_data import is_spark_frame, read_spark_frame
from hyperplane.ml.shards.xshards import XShards

_ALLOWED = (
    "XShards, a dataframe of Dask, Spark or pandas, or arrays of Dask or NumPy; arrays as x, "
    "(x, y) or {'x': ..., 'y': ...}"
)
#: Bytes of arrays in the client's memory up to which they are part of the task graph, so that they
#: outlive a worker; larger ones are sent to one worker.
_GRAPH_BYTES = 8_000_000


@dataclass(frozen=True)
class TrainingData:
    """Partitions of a gang, an equal number for each rank, and the rows of each rank.

    Parameters
    ----------
    partitions : list of distributed.Future
        Pieces of the data, argument ``data`` of :func:`hyperplane.ml.gang`; some are empty.
    rows : tuple of int
        Number of rows of each rank.
    """

    partitions: list[Any]
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Number of rows of all ranks."""
        return sum(self.rows)


def divide_rows(lengths: Sequence[int], ranks: int) -> list[list[tuple[int, int, int]]]:
    """Return for each rank the partitions of its rows, with start and stop in the partition.

    Examples
    --------
    >>> divide_rows([3, 4], 2)
    [[(0, 0, 3)], [(1, 0, 4)]]
    >>> divide_rows([5], 2)
    [[(0, 0, 2)], [(0, 2, 5)]]
    """
    ends = np.cumsum([0, *lengths]).tolist()
    total = ends[-1]
    shares = []
    for rank in range(ranks):
        first, last = rank * total // ranks, (rank + 1) * total // ranks
        shares.append(
            [
                (number, max(first, start) - start, min(last, stop) - start)
                for number, (start, stop) in enumerate(itertools.pairwise(ends))
                if max(first, start) < min(last, stop)
            ]
        )
    return shares


def count_steps(rows: Sequence[int], batch_size: int) -> int:
    """Return the steps of an epoch: the batches of the rank with the most rows.

    Examples
    --------
    >>> count_steps([32, 33], batch_size=16)
    3
    """
    return -(-max(rows) // batch_size)


def count_step_rows(rows: Sequence[int], batch_size: int, step: int) -> int:
    """Return the rows of all ranks in a step, the denominator of averages.

    Examples
    --------
    >>> [count_step_rows([32, 33], 16, step) for step in range(3)]
    [32, 32, 1]
    """
    return sum(min(batch_size, max(0, count - step * batch_size)) for count in rows)


def order_rows(count: int, shuffle: bool, seed: int, epoch: int, rank: int) -> np.ndarray:
    """Return the order in which a rank uses its rows in an epoch; the same for the same values."""
    if not shuffle:
        return np.arange(count)
    return np.random.default_rng([seed, epoch, rank]).permutation(count)


def iterate_batches(order: np.ndarray, batch_size: int, steps: int) -> Iterator[np.ndarray]:
    """Yield the numbers of the rows of each step; empty when the rows are used up."""
    for step in range(steps):
        yield order[step * batch_size : (step + 1) * batch_size]


def join_pieces(pieces: Sequence[Any]) -> Arrays:
    """Return all rows of a rank, from the list of partitions that the gang passes to it."""
    filled = [piece for piece in pieces if piece is not None]
    features = tuple(map(_concatenate, zip(*(piece[0] for piece in filled), strict=True)))
    if filled[0][1] is None:
        return features, None
    return features, tuple(map(_concatenate, zip(*(piece[1] for piece in filled), strict=True)))


def _concatenate(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def prepare_training_data(
    client: Any,
    data: Any,
    ranks: int,
    feature_cols: str | Sequence[str] | None = None,
    label_cols: str | Sequence[str] | None = None,
    *,
    where: str = "data",
    needs_labels: bool = True,
) -> TrainingData:
    """Compute the partitions of data, and divide their rows among ranks.

    Each column of ``feature_cols`` is one input of the model, as in Orca: floats as float32,
    integers with their type, cells that are arrays as stacked arrays.

    Raises
    ------
    RequestError
        With every fault of the type, the columns and the chunks, or if there are fewer rows than
        ranks.
    DataError
        If a partition does not have the form of the others.
    """
    check(find_training_data_faults(data, feature_cols, label_cols, where, needs_labels))
    if is_spark_frame(data):
        data = read_spark_frame(data)
        # The types of its columns are known now.
        check(find_training_data_faults(data, feature_cols, label_cols, where, needs_labels))
    parts = list_partitions(data, feature_cols, label_cols, needs_labels)
    futures = _start(client, parts)
    shapes = client.gather(client.map(_describe, futures, pure=False))
    lengths = [rows for rows, _ in shapes]
    _check_shapes(where, shapes)
    if sum(lengths) < ranks:
        allowed = f"at least one row for each of the {ranks} ranks"
        check([Fault(where, f"data of {plural(sum(lengths), 'row')}", allowed)])
    shares = divide_rows(lengths, ranks)
    most = max(map(len, shares))
    pieces = []
    for share in shares:
        for number, start, stop in share:
            piece = futures[number]
            if stop - start < lengths[number]:
                piece = client.submit(slice_arrays, piece, start, stop, pure=False)
            pieces.append(piece)
        # Gangs divide partitions by their number.
        pieces += [client.submit(_pass, None, pure=False) for _ in range(most - len(share))]
    return TrainingData(pieces, tuple(_count(share) for share in shares))


def _count(share: Sequence[tuple[int, int, int]]) -> int:
    return sum(stop - start for _, start, stop in share)


def join_shares(first: list[Any], second: list[Any], ranks: int) -> list[Any]:
    """Return the partitions of two data sets, those of each rank together."""
    a, b = len(first) // ranks, len(second) // ranks
    return [
        piece
        for rank in range(ranks)
        for piece in (*first[rank * a : rank * a + a], *second[rank * b : rank * b + b])
    ]


def find_training_data_faults(
    data: Any,
    feature_cols: Any = None,
    label_cols: Any = None,
    where: str = "data",
    needs_labels: bool = True,
) -> list[Fault]:
    """Return every fault of data and columns that is known without computing a partition."""
    faults = [
        *find_name_faults("feature_cols", feature_cols),
        *find_name_faults("label_cols", label_cols),
    ]
    if isinstance(data, XShards):
        return faults
    if is_spark_frame(data):
        dtypes = dict.fromkeys(data.columns, np.dtype(float))  # as far as is known
        names = (_list_names(feature_cols), _list_names(label_cols))
        return faults or find_column_faults(dtypes, *names, needs_labels)
    if _is_table(data):
        if faults:
            return faults
        names = (_list_names(feature_cols), _list_names(label_cols))
        return find_column_faults(data.dtypes.to_dict(), *names, needs_labels)
    inputs, labels = _split_structure(data)
    leaves = [*inputs, *(labels or ())]
    wrong = [leaf for leaf in leaves if not _is_array(leaf)]
    if wrong or not inputs:
        given = describe_array(wrong[0] if wrong else data)
        return [*faults, Fault(where, given, _ALLOWED)]
    if labels is None and needs_labels:
        faults.append(Fault(where, "arrays without labels", "(x, y) or {'x': ..., 'y': ...}"))
    for name, value in (("feature_cols", feature_cols), ("label_cols", label_cols)):
        if value is not None:
            faults.append(Fault(name, "", "only data of tables has columns; leave it out"))
    return faults + _find_array_faults(where, leaves)


def _find_array_faults(where: str, leaves: Sequence[Any]) -> list[Fault]:
    kinds = {is_dask_collection(leaf) for leaf in leaves}
    if len(kinds) > 1:
        return [Fault(where, "Dask arrays and NumPy arrays", "arrays of one kind")]
    if kinds == {False}:
        lengths = sorted({len(leaf) for leaf in leaves})
        allowed = "arrays with the same number of rows"
        return [Fault(where, f"arrays of {lengths} rows", allowed)] if len(lengths) > 1 else []
    if any(count > 1 for leaf in leaves for count in leaf.numblocks[1:]):
        advice = "rechunk it: data.rechunk({0: 'auto', 1: -1})"
        return [Fault(where, "an array of divided rows", "chunks of whole rows", advice)]
    chunks = {tuple(map(str, leaf.chunks[0])) for leaf in leaves}
    if len(chunks) > 1:
        advice = "rechunk them: y.rechunk({0: x.chunks[0]})"
        return [Fault(where, "arrays of different chunks", "the same chunks of rows", advice)]
    return []


def list_partitions(
    data: Any, feature_cols: Any, label_cols: Any, needs_labels: bool = True
) -> list[Any]:
    """Return one lazy ``(features, labels)`` for each partition of valid data."""
    features, labels = _list_names(feature_cols), _list_names(label_cols)
    reader = FeatureReader(features, labels, needs_labels)
    read = delayed(reader, pure=False, traverse=False)
    if isinstance(data, XShards):
        return [read(part) for part in data.parts]
    if isinstance(data, pd.DataFrame):
        return [reader(data)]
    if _is_table(data):
        columns = list(dict.fromkeys([*(features or ()), *(labels or ())]))
        return [read(part) for part in data[columns].to_delayed()]
    inputs, outputs = _split_structure(data)
    if not is_dask_collection(inputs[0]):
        return [reader((inputs, outputs))]
    combine = delayed(_combine, pure=False, traverse=False)
    blocks = [leaf.to_delayed().ravel() for leaf in (*inputs, *(outputs or ()))]
    return [combine(reader, len(inputs), *each) for each in zip(*blocks, strict=True)]


def _combine(reader: FeatureReader, inputs: int, *blocks: Any) -> Arrays:
    return reader((blocks[:inputs], blocks[inputs:] or None))


def _start(client: Any, parts: Sequence[Any]) -> list[Any]:
    """Return futures of the partitions; arrays of the client are sent."""
    if is_dask_collection(parts[0]):
        return list(client.compute(list(parts)))
    size = sum(array.nbytes for part in parts for group in part if group for array in group)
    if size > _GRAPH_BYTES:
        return list(client.scatter(list(parts), hash=False))
    return [client.submit(_pass, part, pure=False) for part in parts]


def _pass(value: Any) -> Any:
    return value


def slice_arrays(arrays: Arrays, start: int, stop: int) -> Arrays:
    """Return rows of features and labels."""
    x, y = arrays
    return (
        tuple(array[start:stop] for array in x),
        None if y is None else tuple(array[start:stop] for array in y),
    )


def _describe(arrays: Arrays) -> tuple[int, Any]:
    """Return the rows of a partition, and the shape and type of one row."""
    rows = [[(array.shape[1:], array.dtype.str) for array in group or ()] for group in arrays]
    return len(arrays[0][0]), rows


def _check_shapes(where: str, shapes: Sequence[tuple[int, Any]]) -> None:
    filled = [(number, rows) for number, (count, rows) in enumerate(shapes) if count]
    for number, rows in filled[1:]:
        first = [[shape for shape, _ in group] for group in filled[0][1]]
        if [[shape for shape, _ in group] for group in rows] != first:
            given = (
                f"partition {number} has rows of {rows}, partition {filled[0][0]} {filled[0][1]}"
            )
            check([Fault(where, given, "partitions with the same inputs and labels")])


def _list_names(names: Any) -> tuple[str, ...] | None:
    return (names,) if isinstance(names, str) else None if names is None else tuple(names)


def _is_table(data: Any) -> bool:
    if isinstance(data, pd.DataFrame):
        return True
    names = {base.__name__ for base in type(data).__mro__}
    return hasattr(data, "map_partitions") and "DataFrame" in names


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.dtype.kind in "iufb"
    return is_dask_collection(value) and hasattr(value, "numblocks") and value.ndim > 0


def _split_structure(data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Return inputs and labels of x, (x, y) or {'x': ..., 'y': ...}; inputs are empty if wrong."""
    if isinstance(data, dict):
        unknown = set(data) - {"x", "y"}
        inputs, labels = (None if unknown else data.get("x")), data.get("y")
    elif isinstance(data, tuple) and len(data) == 2:
        inputs, labels = data
    else:
        inputs, labels = data, None
    return _list_values(inputs) or (), None if labels is None else _list_values(labels)


def _list_values(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    return tuple(value) if isinstance(value, tuple | list) else (value,)
