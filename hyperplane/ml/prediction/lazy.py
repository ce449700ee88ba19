"""Lazy prediction of a Dask dataframe: ``predict``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from dask.dataframe import utils as dask_utils

from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.prediction.batch_request import find_columns_faults
from hyperplane.ml.prediction.model_files import ModelFile, find_model, load_model
from hyperplane.ml.prediction.predictors import Predictor, order_columns

_NAME = "prediction"


@check_call
def predict(
    model: str | os.PathLike[str],
    df: Any,
    *,
    columns: Sequence[str] | None = None,
    trusted: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Predict the rows of a Dask dataframe with a saved model, block by block.

    The graph has the URL and checksum of the model, and each worker process loads it once. For a
    fitted model in memory use ``dask_ml.wrappers.ParallelPostFit``, which has the model itself in
    the graph.

    Parameters
    ----------
    model : str or path
        As for :func:`predict_files`.
    df : dask.dataframe.DataFrame
        The rows.
    columns, trusted, storage_options
        As for :func:`predict_files`.

    Returns
    -------
    dask.dataframe.Series or dask.dataframe.DataFrame
        Lazy predictions with the index and the partitions of ``df``; a dataframe if the model
        predicts several values for each row.

    Raises
    ------
    RequestError
        With every fault, such as columns of the model that ``df`` lacks. A row that the model
        refuses is an error of the model when the predictions are computed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dask.dataframe as dd
    >>> import hyperplane
    >>> import pandas as pd
    >>> from hyperplane.ml import predict
    >>> from sklearn.linear_model import LinearRegression
    >>> frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": [1.0, 3.0, 5.0]})
    >>> url = Path(tempfile.mkdtemp()) / "model.skops"
    >>> _ = hyperplane.save(LinearRegression().fit(frame[["x"]], frame["y"]), url)
    >>> predict(url, dd.from_pandas(frame, npartitions=2)).compute().round(6).to_list()
    [1.0, 3.0, 5.0]
    """
    faults = [*find_flag_faults(trusted=trusted), *find_columns_faults(columns)]
    names = {base.__name__ for base in type(df).__mro__}
    if not (hasattr(df, "map_partitions") and "DataFrame" in names):
        advice = "use dask.dataframe.from_pandas" if isinstance(df, pd.DataFrame) else ""
        faults.append(Fault("df", f"a {type(df).__name__}", "a Dask dataframe", advice))
    if callable(getattr(model, "predict", None)):
        allowed = "the path or URL of a saved model"
        advice = "use dask_ml.wrappers.ParallelPostFit, or save it with hyperplane.save"
        faults.append(Fault("model", f"a {type(model).__name__}", allowed, advice))
        check(faults)
    try:
        file = find_model(model, trusted=trusted is True, storage_options=storage_options)
    except RequestError as error:
        check([*faults, *error.faults])
        raise
    check(faults)
    predictor, _ = load_model(file)
    wanted, missing = order_columns([str(name) for name in df.columns], columns, predictor)
    if missing:
        shown = ", ".join(map(repr, missing))
        check([Fault("df", "", f"it lacks the columns {shown} of the model")])
    selected = df[wanted] if predictor.columns or columns else df
    meta = _make_meta(predictor, selected._meta)
    return selected.map_partitions(_predict_block, file, meta, meta=meta)


def _make_meta(predictor: Predictor, like: pd.DataFrame) -> Any:
    """Return empty predictions, with the types of those of example rows."""
    known = predictor.empty()
    if known is not None:
        return _label(known, like.index)
    example: pd.DataFrame = dask_utils.meta_nonempty(like)  # type: ignore[attr-defined]
    return _label(_predict_frame(predictor, example), example.index).iloc[:0]


def _label(predictions: np.ndarray, index: Any) -> Any:
    """Return predictions with the index of their rows."""
    if predictions.ndim == 1:
        return pd.Series(predictions, index=index, name=_NAME)
    predictions = predictions.reshape(len(predictions), math.prod(predictions.shape[1:]))
    names = [f"{_NAME}_{number}" for number in range(predictions.shape[1])]
    return pd.DataFrame(predictions, index=index, columns=names)


def _predict_frame(predictor: Predictor, frame: pd.DataFrame) -> np.ndarray:
    return predictor.predict(frame if predictor.columns is not None else frame.to_numpy())


def _predict_block(block: pd.DataFrame, file: ModelFile, meta: Any) -> Any:
    """Predict one partition."""
    if not len(block):
        return meta.set_axis(block.index)
    predictor, _ = load_model(file)
    return _label(_predict_frame(predictor, block), block.index)
