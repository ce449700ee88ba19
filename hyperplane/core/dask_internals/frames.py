"""Private names of Dask's dataframe expressions; loads pandas."""

from __future__ import annotations

from dask._collections import new_collection
from dask.dataframe.dask_expr._accessor import FunctionMap
from dask.dataframe.dask_expr._concat import Concat
from dask.dataframe.dask_expr._expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    And,
    Apply,
    Assign,
    Blockwise,
    ClearDivisions,
    DropDuplicatesBlockwise,
    DropnaFrame,
    DropnaSeries,
    Expr,
    Filter,
    Invert,
    Isin,
    IsNa,
    MaybeAlignPartitions,
    NotNull,
    OpAlignPartitions,
    Or,
    Partitions,
    Projection,
    RenameFrame,
    ResetIndex,
    Sample,
)
from dask.dataframe.dask_expr._groupby import (
    GroupbyAggregation,
    GroupByApply,
    GroupByApplyConcatApply,
    GroupByBase,
    GroupByBFill,
    GroupByFFill,
    GroupByReduction,
    GroupByShift,
    GroupByTransform,
)
from dask.dataframe.dask_expr._groupby import Median as GroupByMedian
from dask.dataframe.dask_expr._groupby import NUnique as GroupByNUnique
from dask.dataframe.dask_expr._indexing import (
    Loc,
    LocBase,
    LocUnknown,
)
from dask.dataframe.dask_expr._merge import (
    JoinRecursive,
    Merge,
)
from dask.dataframe.dask_expr._merge_asof import MergeAsof
from dask.dataframe.dask_expr._reductions import (
    DropDuplicates,
    Unique,
    ValueCounts,
)
from dask.dataframe.dask_expr._repartition import (
    Repartition,
    RepartitionFreq,
)
from dask.dataframe.dask_expr._shuffle import (
    BaseSetIndexSortValues,
    SetIndex,
    Shuffle,
    ShuffleBase,
    SortValues,
)
from dask.dataframe.dask_expr._shuffle import divisions_lru as divisions_cache
from dask.dataframe.dask_expr.io import (
    IO,
    FromMap,
    FromMapProjectable,
    FromPandas,
    ReadParquet,
)
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.dataframe.dask_expr.io.parquet import _STATS_CACHE as PARQUET_STATISTICS
from dask.dataframe.dask_expr.io.parquet import (
    ReadParquetFSSpec,
    ReadParquetPyarrowFS,
)
from dask.dataframe.dask_expr.io.parquet import _extract_stats as extract_parquet_statistics

__all__ = [
    "EQ",
    "GE",
    "GT",
    "IO",
    "LE",
    "LT",
    "PARQUET_STATISTICS",
    "And",
    "Apply",
    "Assign",
    "BaseSetIndexSortValues",
    "Blockwise",
    "ClearDivisions",
    "Concat",
    "DropDuplicates",
    "DropDuplicatesBlockwise",
    "DropnaFrame",
    "DropnaSeries",
    "Expr",
    "Filter",
    "FromDelayed",
    "FromMap",
    "FromMapProjectable",
    "FromPandas",
    "FunctionMap",
    "GroupByApply",
    "GroupByApplyConcatApply",
    "GroupByBFill",
    "GroupByBase",
    "GroupByFFill",
    "GroupByMedian",
    "GroupByNUnique",
    "GroupByReduction",
    "GroupByShift",
    "GroupByTransform",
    "GroupbyAggregation",
    "Invert",
    "IsNa",
    "Isin",
    "JoinRecursive",
    "Loc",
    "LocBase",
    "LocUnknown",
    "MaybeAlignPartitions",
    "Merge",
    "MergeAsof",
    "NotNull",
    "OpAlignPartitions",
    "Or",
    "Partitions",
    "Projection",
    "ReadParquet",
    "ReadParquetFSSpec",
    "ReadParquetPyarrowFS",
    "RenameFrame",
    "Repartition",
    "RepartitionFreq",
    "ResetIndex",
    "Sample",
    "SetIndex",
    "Shuffle",
    "ShuffleBase",
    "SortValues",
    "Unique",
    "ValueCounts",
    "divisions_cache",
    "extract_parquet_statistics",
    "new_collection",
]
