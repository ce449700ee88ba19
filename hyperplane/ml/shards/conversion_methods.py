"""Methods of :class:`XShards` that convert from and to collections of Dask, and to pandas."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from dask.delayed import Delayed

from hyperplane.core.public_calls import check_call
from hyperplane.ml.shards import conversions
from hyperplane.ml.shards.relational import RelationalMethods

if TYPE_CHECKING:
    import dask.array as da
    import dask.bag as db
    import dask.dataframe as dd
    from pyspark.sql import DataFrame


#: Orca's names that need Spark -> what to use instead.
_INSTEAD = {
    "rdd": "parts has one dask.delayed object for each shard, and collect() returns the shards",
}


class ConversionMethods(RelationalMethods):
    """Conversions; data stay on the workers, except for pandas."""

    @abstractmethod
    def __init__(self, parts: Sequence[Delayed]) -> None: ...

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _INSTEAD:
                text += f": shards are not those of Spark; {_INSTEAD[name]}"
            raise AttributeError(text, name=name, obj=self)

    @classmethod
    @check_call
    def from_dataframe(cls, df: dd.DataFrame) -> Self:
        """Return the partitions of a Dask dataframe as shards: pandas DataFrames."""
        return cls(conversions.from_dataframe(df))

    @classmethod
    def from_spark(cls, df: DataFrame, folder: str | PathLike[str] | None = None) -> Self:
        """Return the rows of a dataframe of Spark as shards: pandas DataFrames.

        Arguments and errors are those of :func:`hyperplane.dataframe.from_spark`.
        """
        from hyperplane.exchange.spark_frames import from_spark

        return cls.from_dataframe(from_spark(df, folder))

    @classmethod
    @check_call
    def from_array(cls, array: da.Array) -> Self:
        """Return blocks of rows of a Dask array as shards: NumPy arrays."""
        return cls(conversions.from_array(array))

    @classmethod
    @check_call
    def from_bag(cls, bag: db.Bag) -> Self:
        """Return the partitions of a Dask bag as shards: lists."""
        return cls(conversions.from_bag(bag))

    def to_dataframe(self) -> dd.DataFrame:
        """Return shards of DataFrames as a Dask dataframe; computes the columns of a shard."""
        df: dd.DataFrame = conversions.to_dataframe(self.parts, self.is_cached())
        return df

    def to_spark_df(self, folder: str | PathLike[str] | None = None) -> DataFrame:
        """Compute shards of DataFrames, and return their rows as a dataframe of Spark.

        Argument and errors are those of :func:`hyperplane.dataframe.to_spark`.
        """
        from hyperplane.exchange.spark_frames import to_spark

        return to_spark(self.to_dataframe(), folder)

    def to_array(self) -> da.Array:
        """Return shards of arrays as a Dask array, whose number of rows may be unknown."""
        array: da.Array = conversions.to_array(self.parts, self.is_cached())
        return array

    def to_bag(self) -> db.Bag:
        """Return a Dask bag of the rows or items: records of DataFrames, items of lists."""
        bag: db.Bag = conversions.to_bag(self.parts)
        return bag

    def to_pandas(self) -> Any:
        """Compute and return one pandas DataFrame."""
        return self.concat_to_pdf()
