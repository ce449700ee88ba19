"""Functions of one shard or a few, which workers call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from dask.delayed import Delayed

from hyperplane.collections.frames.arguments import make_unknown_column_fault
from hyperplane.core.errors import Fault, check
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.nested_arrays import is_frame, is_series


def find_missing_columns(frame: Any, **columns: Sequence[Any]) -> list[Fault]:
    """Return a fault for each column that is unknown or not unique; names may be numbers."""
    names = list(frame.columns)
    known = set(names)  # looked up by hash: pandas.NA cannot be compared
    faults = []
    for where, wanted in columns.items():
        for name in wanted:
            # Arrays and dataframes, which cannot be compared with names, are not hashable.
            if not isinstance(name, Hashable) or name not in known:
                faults.append(make_unknown_column_fault(frame, name, where))
            elif names.count(name) > 1:
                allowed = f"a column with a unique name; {names.count(name)} have this one"
                faults.append(Fault(where, repr(name), allowed))
    return faults


def join_tree(parts: Sequence[Delayed], function: Callable[..., Any]) -> Delayed:
    """Combine lazy objects, eight at a time."""
    parts = list(parts)
    while len(parts) > 1:
        parts = [
            tasks.call_with_list(function, "join", parts[start : start + 8])
            for start in range(0, len(parts), 8)
        ]
    return parts[0]


def get_unique(shard: Any) -> Any:
    """Return the distinct values of a Series."""
    if not is_series(shard):
        allowed = "Currently only support unique() on XShards of Pandas Series"
        advice = "select a column first, such as shards['x'].unique()"
        check([Fault("unique", "", f"{allowed}, not {type(shard).__name__}", advice)])
    return join_unique([shard.unique()])


def join_unique(arrays: Sequence[Any]) -> Any:
    """Return the distinct values of arrays."""
    import numpy as np
    import pandas as pd

    return np.asarray(pd.concat([pd.Series(each) for each in arrays]).unique())


def ensure_frame(shard: Any) -> Any:
    """Return a DataFrame, also for a Series, or raise a RequestError."""
    import pandas as pd

    if is_series(shard):
        return pd.DataFrame(shard)
    if not is_frame(shard):
        message = "Currently only support this for XShards of Pandas DataFrame"
        check([Fault("shards", "", f"{message}; a shard is of type {type(shard).__name__}")])
    return shard


def reset_index(shard: Any) -> Any:
    """Number the rows anew."""
    return shard.reset_index(drop=True)


def sample_rows(shard: Any, frac: float, replace: bool, weights: Any, seed: int) -> Any:
    """Return random rows."""
    frame = ensure_frame(shard)
    if weights is not None:
        check(find_missing_columns(frame, weights=[weights]))
    return frame.sample(frac=frac, replace=replace, weights=weights, random_state=seed)


def select_columns(shard: Any, names: list[Any]) -> Any:
    """Return some columns."""
    frame = ensure_frame(shard)
    check(find_missing_columns(frame, cols=names))
    return frame[names]


def keep_columns(shard: Any, is_kept: list[bool]) -> Any:
    """Return the columns at some positions."""
    return ensure_frame(shard).loc[:, is_kept]


def take_rows(shard: Any, count: int) -> Any:
    """Return the first rows."""
    return shard.head(count) if is_series(shard) else ensure_frame(shard).head(count)


def assemble(shard: Any, features: list[str], labels: list[str]) -> dict[str, Any]:
    """Return features and labels as arrays with a column for each name."""
    import numpy as np

    frame = ensure_frame(shard)
    check(find_missing_columns(frame, featureCols=features, labelCols=labels))
    return {
        "x": np.stack([frame[name].to_numpy() for name in features], axis=1),
        "y": np.stack([frame[name].to_numpy() for name in labels], axis=1),
    }


def stack_pair(shard: Any) -> dict[str, Any]:
    """Return a pair of features and labels as arrays of float32."""
    import numpy as np

    if not isinstance(shard, tuple) or len(shard) != 2:
        allowed = "Currently only support stack_feature_labels() on XShards of tuple of features "
        allowed += f"and labels, not {type(shard).__name__}"
        check([Fault("stack_feature_labels", "", allowed)])
    return {key: np.asarray(value, dtype="float32") for key, value in zip("xy", shard, strict=True)}
