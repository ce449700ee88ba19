"""Peer-to-peer shuffles of a sample: only some inputs, and outputs of the true size.

The tasks of a shuffle call a plugin of their worker. Here, in a process without a worker, this
plugin splits partitions as Dask's does, and keeps the pieces in files. An output partition of the
real shuffle has rows of all inputs. From the inputs of the sample it would have too few, so that
rows of several output partitions are used, until they have as many bytes as a real one. Both tables
of a join use the same partitions, so that their rows still match.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from hyperplane.core.dask_internals.shuffles import (
    ArrayRechunkSpec,
    buffers_to_table,
    convert_chunk,
    convert_shards,
    deserialize_table,
    serialize_table,
    split_axes,
    split_by_partition,
    split_by_worker,
)

#: Share of the bytes of a real partition from which on no further partition is added.
_ENOUGH = 0.95


class SampledShuffles:
    """Plugin for the tasks of shuffles.

    Parameters
    ----------
    specs : mapping
        Description of each shuffle, by its ID.
    inputs : mapping of str to int
        Number of the inputs of each shuffle, also of those that are not in the sample.
    folder : Path
        Where the pieces are kept.
    """

    def __init__(self, specs: Mapping[str, Any], inputs: Mapping[str, int], folder: Path) -> None:
        self.specs, self.inputs, self.folder = specs, inputs, folder
        self.added: Counter[str] = Counter()
        self.taken = 0
        self._received: list[tuple[str, list[tuple[Any, bytes]]]] = []
        #: Of each shuffle and each input the place of the piece of each partition: file, position
        #: and length.
        self._pieces: dict[str, list[dict[int, tuple[Path, int, int]]]] = {}
        self._chosen: dict[str, Sequence[int]] = {}
        self._dtypes: dict[str, Any] = {}

    def add_partition(self, data: Any, partition_id: Any, id: str, **options: Any) -> int:  # noqa: A002
        """Split a partition; called by the tasks."""
        del options
        spec = self.specs[id]
        if isinstance(spec, ArrayRechunkSpec):
            # Dask copies each piece.
            self._dtypes[id] = data.dtype
            self.added[id] += data.nbytes
            data.copy()
            return 1
        workers = pd.Series(dict.fromkeys(spec.output_partitions, "w"), name="_workers")
        tables = split_by_worker(data, spec.column, spec.meta, workers.astype("category"))
        buffers = [(partition_id, serialize_table(table)) for table in tables.values()]
        self.added[id] += sum(len(buffer) for _, buffer in buffers)
        self._received.append((id, buffers))
        return 1

    def start_task(self, takes: Sequence[tuple[str, float]]) -> None:
        """Count from zero, and choose the partitions that the next task gets as one."""
        self.added, self.taken = Counter(), 0
        self._choose_partitions(takes)

    def forget(self) -> None:
        """Forget all pieces."""
        self._pieces.clear()

    def receive(self) -> None:
        """Write the pieces that were added; other workers do this while further tasks run."""
        for name, buffers in self._received:
            pieces = self._pieces.setdefault(name, [])
            places: dict[int, tuple[Path, int, int]] = {}
            if buffers:
                spec = self.specs[name]
                table = buffers_to_table(buffers)
                groups = split_by_partition(table, spec.column, spec.drop_column)
                path = self.folder / f"{name}-{len(pieces)}"
                with path.open("wb") as file:
                    for partition, group in groups.items():
                        piece = serialize_table(group)
                        places[int(partition)] = (path, file.tell(), len(piece))
                        file.write(piece)
            pieces.append(places)
        self._received.clear()

    def barrier(self, id: str, run_ids: Sequence[int]) -> int:  # noqa: A002
        """Return the number of the run; called by the task of the barrier."""
        del id, run_ids
        return 1

    def _choose_partitions(self, takes: Sequence[tuple[str, float]]) -> None:
        """Choose the same partitions of all shuffles that a task uses."""
        names = [name for name, _ in takes if self._pieces.get(name)]
        self._chosen = {}
        if not names:
            return
        partitions = list(self.specs[names[0]].output_partitions)
        sizes: Counter[int] = Counter()
        real = 0.0
        for name in names:
            own = _add_sizes(self._pieces[name])
            sizes.update(own)
            real += sum(own.values()) * self.inputs[name] / len(self._pieces[name])
        enough = _ENOUGH * real / len(partitions)
        first = min(int(takes[0][1] * len(partitions)), len(partitions) - 1)
        chosen, total = [], 0
        for partition in [*partitions[first:], *partitions[:first]]:
            chosen.append(partition)
            total += sizes[partition]
            if total >= enough:
                break
        self._chosen = dict.fromkeys(names, chosen)

    def get_output_partition(
        self,
        id: str,  # noqa: A002
        run_id: int,
        partition_id: Any,
        meta: Any = None,
    ) -> Any:
        """Return an output partition; called by the tasks."""
        del run_id, meta
        spec = self.specs[id]
        if isinstance(spec, ArrayRechunkSpec):
            return self._make_chunk(id, spec, partition_id)
        tables = []
        for partition in self._chosen.get(id, ()):
            for places in self._pieces[id]:
                if partition in places:
                    path, position, length = places[partition]
                    with path.open("rb") as file:
                        file.seek(position)
                        tables.append(deserialize_table(file.read(length)))
                    self.taken += length
        if not tables:
            empty = spec.meta.copy()
            return empty.drop(columns=spec.column) if spec.drop_column else empty
        return convert_shards(tables, spec.meta, spec.column, spec.drop_column)

    def _make_chunk(self, name: str, spec: Any, chunk: tuple[int, ...]) -> Any:
        """Return a chunk that is put together from as many pieces as in the real rechunk."""
        sides = []
        for axis, number in zip(split_axes(spec.old, spec.new), chunk, strict=True):
            splits = [split for old in axis for split in old if split.chunk_index == number]
            splits.sort(key=lambda split: split.split_index)
            sides.append([split.slice.stop - split.slice.start for split in splits])
        pieces = []
        for index in itertools.product(*(range(len(side)) for side in sides)):
            shape = [side[place] for side, place in zip(sides, index, strict=True)]
            pieces.append((index, np.ones(shape, self._dtypes.get(name, float))))
        self.taken += sum(piece.nbytes for _, piece in pieces)
        return convert_chunk([pieces])

    def get_shares(self) -> dict[str, dict[int, float]]:
        """Return the share of partitions in the rows of a shuffle, as it is in most inputs.

        The median over the inputs: a frequent key is in most of them, while in a table that is
        sorted each partition has rows of a few inputs only, of which a sample shows nothing.
        """
        shares: dict[str, dict[int, float]] = {}
        for name, pieces in self._pieces.items():
            totals = [sum(length for _, _, length in places.values()) for places in pieces]
            shares[name] = {
                partition: median(
                    (places[partition][2] if partition in places else 0) / max(total, 1)
                    for places, total in zip(pieces, totals, strict=True)
                )
                for partition in set().union(*pieces)
            }
        return shares


def _add_sizes(pieces: Sequence[Mapping[int, tuple[Path, int, int]]]) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for places in pieces:
        for partition, (_, _, length) in places.items():
            sizes[partition] += length
    return sizes
