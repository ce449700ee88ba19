"""Methods of :class:`XShards` whose shards are pandas DataFrames; shuffles are those of Dask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from dask.delayed import Delayed

from hyperplane.collections.frames.arguments import (
    find_column_faults,
    list_names,
    make_unknown_column_fault,
)
from hyperplane.core.argument_checks import find_count_faults, find_flag_faults, is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.shards import conversions, tasks
from hyperplane.ml.shards.aggregation import aggregate, join_aggregates, read_aggregations
from hyperplane.ml.shards.construction import MAX_SHARDS
from hyperplane.ml.shards.frame_functions import (
    assemble,
    ensure_frame,
    find_missing_columns,
    get_unique,
    join_tree,
    join_unique,
    keep_columns,
    reset_index,
    sample_rows,
    select_columns,
    stack_pair,
    take_rows,
)
from hyperplane.ml.shards.summaries import (
    count_missing,
    finish_summary,
    get_maximum,
    join_counts,
    join_maxima,
    join_summaries,
    summarize,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


_RENAME = "rename the columns with transform_shard"


class RelationalMethods(ABC):
    """Methods for shards of DataFrames; the columns are those of the first shard.

    Methods that move rows between shards compute the columns and types of the first shard, or those
    of all shards if the workers hold them: call ``compute()`` first if reading takes long.
    """

    @property
    @abstractmethod
    def parts(self) -> list[Delayed]:
        """One ``dask.delayed`` object for each shard."""

    @abstractmethod
    def is_cached(self) -> bool:
        """Return whether the workers hold the shards."""

    @abstractmethod
    def _new(self, parts: Sequence[Delayed]) -> Self: ...

    @check_call
    def partition_by(self, cols: Any, num_partitions: int | None = None) -> Self:
        """Move rows so that those with the same value of a column are in the same shard.

        Parameters
        ----------
        cols : str
            One column.
        num_partitions : int, optional
            Number of shards of the result; by default as many as here. Some may have no rows.

        Returns
        -------
        XShards
            Lazy; each shard has a new index.

        Raises
        ------
        RequestError
            If the column is unknown, with all columns.
        """
        faults = []
        if num_partitions is not None:
            faults += find_count_faults("num_partitions", num_partitions, most=MAX_SHARDS)
        if not isinstance(cols, str):
            faults.append(Fault("cols", repr(cols)[:80], "Only support partition by a column name"))
        df = self._to_frame("partition by")
        if isinstance(cols, str) and cols not in df.columns:
            unknown = make_unknown_column_fault(df._meta, cols, "cols")
            allowed = f"The partition column is not in the DataFrame; {unknown.allowed}"
            faults.append(replace(unknown, allowed=allowed))
        check(faults)
        moved = df.shuffle(
            on=cols, npartitions=num_partitions or len(self.parts), ignore_index=True
        )
        return self._new(tasks.map_parts(moved.to_delayed(), reset_index, (), "partition_by"))

    def unique(self) -> np.ndarray[Any, Any]:
        """Compute and return the distinct values of shards that are Series."""
        distinct = tasks.map_parts(self.parts, get_unique, (), "unique")
        values: np.ndarray[Any, Any] = tasks.compute([join_tree(distinct, join_unique)])[0]
        return values

    def deduplicates(self) -> Self:
        """Remove rows that are equal to another row, also of other shards; lazy."""
        df = self._to_frame("dedup")
        distinct = df.drop_duplicates(split_out=len(self.parts), ignore_index=True)
        return self._new(distinct.to_delayed())

    @check_call
    def sort_values(
        self, col_names: str | Sequence[str] | None = None, ascending: bool | Sequence[bool] = True
    ) -> Self:
        """Sort rows across shards: the first shard has the first rows.

        Parameters
        ----------
        col_names : str or list of str, optional
            The columns; all by default.
        ascending : bool or list of bool
            Whether the smallest values come first.

        Returns
        -------
        XShards
            Lazy.
        """
        from hyperplane.collections.frames.sort_values import sort_values

        df = self._to_frame("sort_values")
        names = list(df.columns) if col_names is None else list_names(col_names)
        check(find_column_faults(df._meta, col_names=names))
        count = len(self.parts)
        return self._new(sort_values(df, names, ascending=ascending, split_out=count).to_delayed())

    @check_call
    def group_by(
        self,
        columns: str | Sequence[str] = (),
        agg: str | Sequence[str] | Mapping[str, Any] = "count",
        join: bool = False,
    ) -> Self:
        """Aggregate the rows of groups; lazy.

        Parameters
        ----------
        columns : str or list of str
            The columns of the groups; without any, all rows are one group.
        agg : str, list or dict
            A function or a list of functions for all other columns (``"sum"``, ``"mean"`` and the
            like: for those of numbers), or column to function or list of functions; ``"*"`` with
            ``"count"`` is the number of rows. Result columns are named as in Spark:
            ``"max(price)"``, ``"count(1)"`` for ``"*"``.
        join : bool
            Whether to add the result to each row of its group, instead of one row per group.

        Returns
        -------
        XShards
        """
        df = self._to_frame("group_by")
        names = list_names(columns)
        faults = [*find_column_faults(df._meta, columns=names), *find_flag_faults(join=join)]
        names = [name for name in names if isinstance(name, str)]
        aggregations = read_aggregations(agg, df, names, faults)
        present = set(df.columns if join is True else names)
        faults += [
            Fault("agg", "", f"the result would have two columns {each.name!r}", _RENAME)
            for each in aggregations
            if each.name in present
        ]
        check(faults)
        result = aggregate(df, names, aggregations)
        if join:
            result = join_aggregates(df, result, names)
        return self._new(result.to_delayed())

    @check_call
    def merge(self, right: Any, how: str = "inner", on: str | Sequence[str] | None = None) -> Self:
        """Join with other shards, as ``pandas.merge``; lazy.

        Parameters
        ----------
        right : XShards
            Other shards of DataFrames.
        how : {"inner", "left", "right", "outer"}
            Which rows without a match are kept.
        on : str or list of str, optional
            Columns of both; by default all that both have.

        Returns
        -------
        XShards
        """
        kinds = ("inner", "left", "right", "outer")
        faults = []
        if how is None or not is_one_of(how, kinds):
            faults.append(Fault("how", repr(how)[:80], "one of " + ", ".join(kinds)))
        if not isinstance(right, RelationalMethods):
            given = f"an object of type {type(right).__name__}"
            faults.append(Fault("right", given, "XShards of pandas DataFrames"))
        check(faults)
        left_df, right_df = self._to_frame("merge"), right._to_frame("merge")
        common = [name for name in left_df.columns if name in right_df.columns]
        names = common if on is None else list_names(on)
        faults += find_column_faults(left_df._meta, on=names)
        faults += find_column_faults(right_df._meta, **{"on (right)": names})
        if not names:
            faults.append(Fault("on", repr(on), "at least one column that both have"))
        check(faults)
        return self._new(left_df.merge(right_df, how=how, on=names).to_delayed())

    @check_call
    def sample(
        self, frac: Any, replace: bool = False, weights: Any = None, random_state: Any = None
    ) -> Self:
        """Return a random fraction of the rows of each shard; lazy.

        Parameters
        ----------
        frac : float
            Fraction of the rows.
        replace : bool
            Whether a row may be drawn twice.
        weights : str, optional
            Column of the weights.
        random_state : int, optional
            Seed; each shard draws with a different one that depends on it.

        Returns
        -------
        XShards
        """
        import numpy as np

        is_number = isinstance(frac, (int, float, np.number)) and not isinstance(frac, bool)
        faults = find_flag_faults(replace=replace)
        if not is_number or not 0 <= frac <= (1 if replace is False else 1e6):
            faults.append(Fault("frac", repr(frac)[:80], "a number from 0 to 1; more with replace"))
        if random_state is not None:
            faults += find_count_faults("random_state", random_state, least=0)
        if weights is not None and not isinstance(weights, str):
            faults.append(Fault("weights", type(weights).__name__, "the name of a column"))
        check(faults)
        seeds = np.random.SeedSequence(random_state).generate_state(len(self.parts))
        new: list[Delayed] = []
        for part, seed in zip(self.parts, seeds, strict=True):
            args = (frac, replace, weights, int(seed))
            new += tasks.map_parts([part], sample_rows, args, "sample")
        return self._new(new)

    @check_call
    def select(self, cols: str | Sequence[str]) -> Self:
        """Return shards with some columns, as DataFrames; lazy."""
        if not isinstance(cols, (str, int, list, tuple)) or cols in ([], ()):
            check([Fault("cols", repr(cols)[:80], "a column or a list of columns, not empty")])
        args = (_list(cols),)
        return self._new(tasks.map_parts(self.parts, select_columns, args, "select"))

    @check_call
    def describe(self, cols: str | Sequence[str] | None = None) -> pd.DataFrame:
        """Compute count, mean, std, min and max, exactly; by default of columns of numbers.

        Columns of text and times, if ``cols`` has them, have no mean and std.
        """
        like = conversions.get_like(self.parts, self.is_cached(), "describe")
        names = list(like.select_dtypes("number").columns) if cols is None else _list(cols)
        faults = find_missing_columns(like, cols=names)
        if not names:
            faults.append(Fault("cols", "nothing", "columns of numbers"))
        check(faults)
        summaries = tasks.map_parts(self.parts, summarize, (names,), "describe")
        joined = tasks.compute([join_tree(summaries, join_summaries)])[0]
        described: pd.DataFrame = finish_summary(joined, names)
        return described

    @check_call
    def head(self, n: int = 5) -> pd.DataFrame:
        """Compute and return the first rows, from as many shards as needed."""
        import pandas as pd

        check(find_count_faults("n", n, least=0))
        found: list[Any] = []
        for part in self.parts:
            missing = n - sum(map(len, found))
            if found and missing <= 0:
                break
            found += tasks.compute(tasks.map_parts([part], take_rows, (missing,), "head"))
        rows: pd.DataFrame = pd.concat(found)
        return rows

    @check_call
    def concat_to_pdf(self, axis: int = 0) -> pd.DataFrame:
        """Compute and return all shards as one pandas DataFrame in this process."""
        import pandas as pd

        if find_count_faults("axis", axis, least=0, most=1):
            check([Fault("axis", repr(axis)[:80], "0 or 1")])
        frames = tasks.compute(tasks.map_parts(self.parts, ensure_frame, (), "concat_to_pdf"))
        joined: pd.DataFrame = pd.concat(frames, axis=axis)  # type: ignore[call-overload]
        return joined

    @check_call
    def sample_to_pdf(
        self,
        frac: Any,
        replace: bool = False,
        weights: Any = None,
        random_state: Any = None,
        axis: int = 0,
    ) -> pd.DataFrame:
        """Compute and return a random fraction of the rows as one pandas DataFrame."""
        return self.sample(frac, replace, weights, random_state).concat_to_pdf(axis)

    @check_call
    def assembleFeatureLabelCols(  # noqa: N802 - the documented name
        self,
        featureCols: Sequence[str],  # noqa: N803
        labelCols: Sequence[str],  # noqa: N803
    ) -> Self:
        """Return shards ``{"x": features, "y": labels}`` of arrays with a column for each name.

        Parameters
        ----------
        featureCols, labelCols : list of str
            The columns.

        Returns
        -------
        XShards
            Lazy.
        """
        lists = {"featureCols": featureCols, "labelCols": labelCols}
        check(
            Fault(where, repr(names)[:80], "a list of columns, not empty")
            for where, names in lists.items()
            if not isinstance(names, (list, tuple)) or not names
        )
        args = (list(featureCols), list(labelCols))
        return self._new(tasks.map_parts(self.parts, assemble, args, "assembleFeatureLabelCols"))

    def stack_feature_labels(self) -> Self:
        """Return shards ``{"x": ..., "y": ...}`` of float32 of pairs of features and labels."""
        return self._new(tasks.map_parts(self.parts, stack_pair, (), "stack_feature_labels"))

    @check_call
    def max_values(self, col_name: str) -> Any:
        """Compute and return the maximum of a column; NaN if it has no values."""
        largest = tasks.map_parts(self.parts, get_maximum, (col_name,), "max_values")
        return join_maxima(tasks.compute([join_tree(largest, join_maxima)]))

    def get_null_sum(self) -> pd.DataFrame:
        """Compute the missing values of each column, as columns ``col`` and ``total``."""
        import pandas as pd

        counts = tasks.map_parts(self.parts, count_missing, (), "get_null_sum")
        totals = tasks.compute([join_tree(counts, join_counts)])[0]
        return pd.DataFrame({"col": list(totals.index), "total": totals.to_numpy()})

    def drop_missing_value(self) -> Self:
        """Remove the columns that have missing values in any shard; computes these."""
        is_complete = (self.get_null_sum()["total"] == 0).tolist()
        return self._new(tasks.map_parts(self.parts, keep_columns, (is_complete,), "drop_missing"))

    def get_schema(self) -> dict[str, Any]:
        """Compute and return ``columns`` and ``dtypes`` of the first shard."""
        like = conversions.get_like(self.parts, self.is_cached(), "get_schema")
        return {"columns": list(like.columns), "dtypes": like.dtypes}

    def _to_frame(self, method: str) -> Any:
        df = conversions.to_dataframe(self.parts, self.is_cached(), method)
        try:
            check(find_column_faults(df._meta))  # of names that the helpers do not support
        except RequestError as error:
            check(replace(fault, where=method, advice=_RENAME) for fault in error.faults)
        return df


def _list(cols: Any) -> list[Any]:
    return list(cols) if isinstance(cols, (list, tuple)) else [cols]
