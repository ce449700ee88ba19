"""``XShards``: shards of any Python object, one in each partition, on the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from dask.delayed import Delayed

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import check_call
from hyperplane.ml.shards import construction, tasks
from hyperplane.ml.shards.construction import MAX_SHARDS
from hyperplane.ml.shards.conversion_methods import ConversionMethods
from hyperplane.ml.shards.nested_arrays import join_shards, slice_shard
from hyperplane.ml.shards.shared_value import record_shared_values
from hyperplane.ml.shards.variable_values import fix_variables


@check_call
class XShards(ConversionMethods):
    """A collection of shards on the workers: one Python object for each partition.

    Create one with :meth:`partition`, :meth:`load_pickle`, a reader such as
    :func:`hyperplane.ml.read_csv`, or from a Dask collection. Methods are lazy and return new
    shards, unless their description says that they compute.

    Parameters
    ----------
    parts : sequence of dask.delayed.Delayed
        One lazy object for each shard.

    Examples
    --------
    >>> import numpy as np
    >>> shards = XShards.partition({"x": np.arange(6), "y": np.ones(6)}, num_shards=2)
    >>> doubled = shards.transform_shard(lambda shard: shard["x"] * 2)
    >>> doubled.collect()
    [array([0, 2, 4]), array([ 6,  8, 10])]
    """

    def __init__(self, parts: Sequence[Delayed]) -> None:
        self._set_parts(parts)
        if tasks.EAGER.is_set():
            self.compute()

    def _set_parts(self, parts: Sequence[Delayed]) -> None:
        is_list = isinstance(parts, (list, tuple))
        wrong = [part for part in parts if not isinstance(part, Delayed)] if is_list else [parts]
        if wrong or not parts:
            given = type(wrong[0]).__name__ if wrong else "an empty list"
            advice = "create shards with XShards.partition, a reader or XShards.from_dataframe"
            check([Fault("parts", given, "a list of dask.delayed objects", advice)])
        self._lazy = list(parts)
        self._held: list[Delayed] | None = None

    def __repr__(self) -> str:
        state = "held by the workers" if self.is_cached() else "lazy"
        return f"<XShards: {self.num_partitions()} shards, {state}>"

    @property
    def parts(self) -> list[Delayed]:
        """One ``dask.delayed`` object for each shard."""
        return list(self._lazy if self._held is None else self._held)

    # Construction.

    @staticmethod
    @check_call
    def partition(data: Any, num_shards: int | None = None) -> XShards:
        """Split arrays into shards along the first dimension, and send these to the workers.

        Each shard has the same structure as the data. Shards are distributed evenly, in order.
        They are lost with a worker that ends; read large data from files instead.

        Parameters
        ----------
        data : array, or dict, list or tuple of arrays
            NumPy arrays, DataFrames or Series, also nested, with the same number of rows.
        num_shards : int, optional
            Number of shards; by default one per thread of the cluster, and at most one per row.

        Returns
        -------
        XShards

        Raises
        ------
        RequestError
            With every invalid array, the lengths if these differ, or if there are fewer rows than
            ``num_shards``.

        Examples
        --------
        >>> import numpy as np
        >>> shards = XShards.partition([np.arange(5), np.zeros(5)], num_shards=2)
        >>> [len(shard[0]) for shard in shards.collect()]
        [3, 2]
        """
        shards = XShards(construction.partition(data, num_shards))
        shards._held = shards._lazy
        return shards

    @staticmethod
    @check_call
    def from_pandas(df: Any, num_shards: int | None = None) -> XShards:
        """Split a pandas DataFrame or Series into shards on the workers."""
        return XShards.partition(df, num_shards)

    @classmethod
    @check_call
    def load_pickle(
        cls,
        path: str | os.PathLike[str],
        minPartitions: int | None = None,  # noqa: N803 - the documented name
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> XShards:
        """Read shards that :meth:`save_pickle` has written. Load only files that you trust.

        Parameters
        ----------
        path : str or path
            The folder; also a URL.
        minPartitions : int, optional
            Minimum number of shards: if the folder has fewer, they are divided.
        storage_options : dict, optional
            Options for fsspec.

        Returns
        -------
        XShards

        Raises
        ------
        RequestError
            If the folder does not exist or is not complete.
        StorageError
            If it cannot be read.
        """
        if minPartitions is not None:
            check(find_count_faults("minPartitions", minPartitions, most=MAX_SHARDS))
        shards = cls(construction.load_pickle(path, storage_options))
        if minPartitions is not None and minPartitions > shards.num_partitions():
            return shards.repartition(minPartitions)
        return shards

    @check_call
    def save_pickle(
        self,
        path: str | os.PathLike[str],
        batchSize: int = 10,  # noqa: N803 - the documented name
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> XShards:
        """Compute the shards, and let each worker write its shards to a folder.

        Parameters
        ----------
        path : str or path
            A new folder that all workers can write to; also a URL.
        batchSize : int
            Accepted for compatibility: each shard is a separate file.
        storage_options : dict, optional
            Options for fsspec.

        Returns
        -------
        XShards
            These shards.

        Raises
        ------
        OutputExists
            If the folder exists and is not empty.
        StorageError
            If it cannot be written.
        """
        if batchSize is not None:
            check(find_count_faults("batchSize", batchSize))
        construction.save_pickle(self.parts, path, storage_options)
        return self

    # Transformation.

    @check_call
    def transform_shard(self, func: Any, *args: Any) -> XShards:
        """Apply a function to each shard.

        Parameters
        ----------
        func : callable
            Called as ``func(shard, *args)`` on a worker. It may change the shard: frames, arrays
            and structures of these are copies. Other objects are not copied. Its variables have
            the values of the time of this call, such as those of a loop.
        *args
            Further arguments; a :class:`SharedValue` is sent to each worker once.

        Returns
        -------
        XShards
            Lazy.

        Raises
        ------
        RequestError
            If the function or an argument cannot be pickled, with the names of the variables.
        """
        if not callable(func):
            check([Fault("func", repr(func)[:80], "a function of a shard")])
        fixed = fix_variables(func)
        with record_shared_values() as shared:
            check(find_pickle_faults("func", fixed, args))
        needed = [tasks.as_part(future) for future in shared.values()]
        return XShards(
            tasks.map_parts(self.parts, fixed, args, "transform_shard", copies=True, needed=needed)
        )

    @check_call
    def repartition(self, num_partitions: int) -> XShards:
        """Change the number of shards, in the same order of rows.

        Fewer shards are concatenated neighbors; for more, each shard is divided evenly. Shards are
        DataFrames, Series, lists, arrays, or dicts and tuples of arrays.

        Parameters
        ----------
        num_partitions : int
            Number of shards of the result.

        Returns
        -------
        XShards
            Lazy.
        """
        check(find_count_faults("num_partitions", num_partitions, most=MAX_SHARDS))
        parts = self.parts
        count, wanted = len(parts), int(num_partitions)
        new: list[Delayed] = []
        if wanted <= count:
            bounds = tasks.split_bounds(count, wanted)
            new = [
                parts[start]
                if stop - start == 1
                else tasks.call_with_list(join_shards, "repartition", parts[start:stop])
                for start, stop in bounds
            ]
        else:
            for part, (start, stop) in zip(parts, tasks.split_bounds(wanted, count), strict=True):
                pieces = stop - start
                new += [
                    tasks.call(slice_shard, "repartition", part, piece, pieces)
                    for piece in range(pieces)
                ]
        return XShards(new)

    @check_call
    def zip(self, other: Any) -> XShards:
        """Pair each shard with that of other shards.

        Parameters
        ----------
        other : XShards
            As many shards as here.

        Returns
        -------
        XShards
            Lazy; each shard is a tuple of two.
        """
        if not isinstance(other, XShards):
            given = f"an object of type {type(other).__name__}"
            check([Fault("other", given, "XShards; other should be a SparkXShards")])
        if other.num_partitions() != self.num_partitions():
            allowed = "The two XShards should have the same number of partitions; "
            allowed += f"they have {self.num_partitions()} and {other.num_partitions()}"
            check([Fault("other", "", allowed, "call repartition on one of them")])
        pairs = zip(self.parts, other.parts, strict=True)
        return XShards([tasks.call(tasks.make_pair, "zip", *pair) for pair in pairs])

    @check_call
    def split(self) -> list[XShards]:
        """Return one XShards for each position of shards that are lists or tuples.

        The workers compute these shards and keep them, as :meth:`compute` does, so that all results
        are of the same calls of functions, also of functions with random numbers.

        Returns
        -------
        list of XShards
            These shards alone, if they are neither lists nor tuples, or have one item.

        Raises
        ------
        RequestError
            If the lengths of the shards differ.
        """
        self.compute()
        lengths = tasks.compute(tasks.map_parts(self.parts, tasks.get_sequence_length, (), "split"))
        if len(set(lengths)) > 1:
            allowed = "Cannot split this XShards because its partitions have different split length"
            allowed += ": " + ", ".join(map(str, lengths[:20]))
            check([Fault("split", "", allowed)])
        if lengths[0] <= 1:
            return [self]
        return [
            XShards(tasks.map_parts(self.parts, tasks.get_position, (number,), "split"))
            for number in range(lengths[0])
        ]

    def __getitem__(self, key: Any) -> XShards:
        return self.lazy(tasks.map_parts(self.parts, tasks.get_item, (key,), "selection"))

    def __iter__(self) -> Any:
        raise TypeError("XShards are not iterable; use collect() or take(n)")

    # Computation.

    def cache(self) -> XShards:
        """Compute the shards, and keep them on the workers until :meth:`uncache`.

        Returns
        -------
        XShards
            These shards.
        """
        return self.compute()

    def uncache(self) -> XShards:
        """Release shards that :meth:`cache` or :meth:`compute` keeps; they are lazy again.

        Returns
        -------
        XShards
            These shards.
        """
        if self._held is not self._lazy:  # the shards of ``partition`` exist only on the workers
            self._held = None
        return self

    def is_cached(self) -> bool:
        """Return whether the workers hold the shards."""
        return self._held is not None

    def compute(self) -> XShards:
        """Compute the shards and keep them on the workers, evenly distributed.

        Returns
        -------
        XShards
            These shards.
        """
        if self._held is None:
            self._held = tasks.hold(self._lazy)
        return self

    def to_lazy(self) -> XShards:
        """Return the same shards without results that the workers hold."""
        return self.lazy(self._lazy)

    def collect(self) -> list[Any]:
        """Compute and return all shards, in order."""
        return tasks.compute(self.parts)

    def first(self) -> Any:
        """Compute and return the first shard."""
        return tasks.compute(self.parts[:1])[0]

    @check_call
    def take(self, n: int) -> list[Any]:
        """Compute and return the first ``n`` shards."""
        check(find_count_faults("n", n, least=0))
        return tasks.compute(self.parts[:n])

    def num_partitions(self) -> int:
        """Return the number of shards."""
        return len(self._lazy)

    def __len__(self) -> int:
        return int(sum(tasks.compute(tasks.map_parts(self.parts, tasks.get_length, (), "len"))))

    @classmethod
    def lazy(cls, parts: Sequence[Delayed]) -> XShards:
        """Return lazy shards of ``dask.delayed`` objects; Orca takes an RDD of Spark."""
        shards = cls.__new__(cls)
        shards._set_parts(parts)
        return shards

    def _new(self, parts: Sequence[Delayed]) -> Self:
        return type(self)(parts)


#: Orca's name of the class.
SparkXShards = XShards
