"""Predictions of a Keras model in tasks of the workers; each process builds the model once."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import delayed

from hyperplane.core.errors import Fault, check
from hyperplane.ml.estimators.keras_batches import read_inputs
from hyperplane.ml.estimators.keras_graphs import DatasetGraph, is_dataset, pack_checked
from hyperplane.ml.estimators.keras_model import KerasModel
from hyperplane.ml.estimators.partition_reader import FeatureReader
from hyperplane.ml.estimators.spark_data import (
    is_spark_frame,
    read_spark_frame,
    write_spark_frame,
)
from hyperplane.ml.shards.xshards import XShards

#: Models that a process keeps.
_MAX_MODELS = 2
_models: OrderedDict[str, tuple[Any, KerasModel]] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class KerasPartitionPredictor:
    """Pickled definition of a model, rows of a step, reader of partitions, and names of columns."""

    model: bytes
    size: int
    reader: FeatureReader
    columns: tuple[str, ...] = ()

    def predict_arrays(self, arrays: Any) -> Any:
        """Return predictions; of no rows, arrays in the form of the prediction of one row."""
        with _lock:  # a model of Keras keeps the state of a prediction
            model, definition = _get_model(self.model, tuple(each[:1] for each in arrays))
            if len(arrays[0]):
                inputs = definition.join_inputs(model, tuple(arrays))
                return _list_to_tuple(model.predict(inputs, batch_size=self.size, verbose=0))
            predicted = model.predict(definition.make_row(model, arrays), verbose=0)
            return _map_outputs(lambda each: each[:0], _list_to_tuple(predicted))

    def predict_part(self, part: Any) -> Any:
        """Return the predictions of a partition."""
        return self.predict_arrays(self.reader(part)[0])

    def predict_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the predictions as columns."""
        return add_columns(frame, self.predict_part(frame), self.columns)

    def predict_graph(self, graph: DatasetGraph) -> Any:
        """Return the predictions of a dataset."""
        dataset = graph.load()
        if not graph.is_batched:
            dataset = dataset.batch(self.size)
        with _lock:
            model, _ = _get_model(self.model, read_inputs(dataset))
            return _list_to_tuple(model.predict(dataset, verbose=0))


def _share(predictor: KerasPartitionPredictor) -> Any:
    """Return the predictor as a key of task graphs, so that it is sent once, not with each task."""
    return delayed(predictor, pure=False, traverse=False)


def _predict_shard(predictor: KerasPartitionPredictor, part: Any) -> dict[str, Any]:
    return {"prediction": predictor.predict_part(part)}


def _predict_frame(
    frame: pd.DataFrame, predictor: KerasPartitionPredictor, meta: pd.DataFrame
) -> Any:
    return predictor.predict_frame(frame) if len(frame) else meta.set_axis(frame.index)


def predict_shards(predictor: KerasPartitionPredictor, shards: XShards) -> XShards:
    """Return lazy shards ``{"prediction": array}``; several outputs are a tuple of arrays."""
    run, shared = delayed(_predict_shard, pure=False, traverse=False), _share(predictor)
    return XShards.lazy([run(shared, part) for part in shards.parts])


def predict_data(client: Any, predictor: KerasPartitionPredictor, data: Any) -> Any:
    """Return the predictions of rows, in the form of the rows."""
    if is_spark_frame(data):
        return write_spark_frame(predict_table(client, predictor, read_spark_frame(data)))
    if is_dataset(data):
        graph = pack_checked(data, "data")
        return client.submit(predictor.predict_graph, graph, pure=False).result()
    if isinstance(data, XShards):
        return predict_shards(predictor, data)
    if isinstance(data, pd.DataFrame):
        values = predict_rows(client, predictor, predictor.reader(data)[0])
        return add_columns(data, values, predictor.columns)
    x = data["x"] if isinstance(data, dict) else data[0] if isinstance(data, tuple) else data
    if is_dask_collection(x[0] if isinstance(x, tuple | list) else x):
        predict = predict_table if hasattr(data, "columns") else predict_blocks
        return predict(client, predictor, x)
    return predict_rows(client, predictor, predictor.reader(data)[0])


def predict_table(client: Any, predictor: KerasPartitionPredictor, data: Any) -> Any:
    """Return a lazy dataframe with the predictions as columns.

    A column has numbers if the output has one value for each row, otherwise arrays.
    """
    row = _make_row(data._meta, predictor.reader.features or ())
    if row is None:
        row = data.head(1, npartitions=-1)
    if not len(row):
        check([Fault("data", "a dataframe without rows", "a dataframe with a row")])
    predicted = predict_rows(client, predictor, predictor.reader(row)[0])
    meta = add_columns(data._meta.iloc[:0], _map_outputs(lambda each: each[:0], predicted),
                       predictor.columns)  # fmt: skip
    return data.map_partitions(_predict_frame, _share(predictor), meta, meta=meta)


def predict_blocks(client: Any, predictor: KerasPartitionPredictor, x: Any) -> Any:
    """Return a lazy array with the chunks of rows of ``x``; a tuple of them for several outputs."""
    leaves = list(x) if isinstance(x, tuple | list) else [x]
    row = tuple(np.zeros((1, *leaf.shape[1:]), leaf.dtype) for leaf in leaves)
    predicted = predict_rows(client, predictor, row)
    run, shared = delayed(_predict_block, pure=False, traverse=False), _share(predictor)
    blocks = zip(*(leaf.to_delayed().ravel() for leaf in leaves), strict=True)
    parts = [run(shared, *each) for each in blocks]
    chunks = leaves[0].chunks[0]

    def join(output: np.ndarray, key: Any) -> Any:
        return da.concatenate(
            [
                da.from_delayed(
                    part if key is None else part[key], (rows, *output.shape[1:]), output.dtype
                )
                for part, rows in zip(parts, chunks, strict=True)
            ],
            allow_unknown_chunksizes=True,
        )

    if isinstance(predicted, dict):
        return {key: join(output, key) for key, output in predicted.items()}
    if isinstance(predicted, tuple):
        return tuple(join(output, key) for key, output in enumerate(predicted))
    return join(predicted, None)


def _predict_block(predictor: KerasPartitionPredictor, *arrays: Any) -> Any:
    return predictor.predict_arrays(arrays)


def predict_rows(client: Any, predictor: KerasPartitionPredictor, arrays: Any) -> Any:
    """Return the predictions of arrays in the memory of the client."""
    return client.submit(predictor.predict_arrays, arrays, pure=False).result()


def _make_row(frame: pd.DataFrame, features: Sequence[str]) -> pd.DataFrame | None:
    """Return a row of zeros with the types of the columns; None if cells may be arrays."""
    if any(frame[name].dtype == object for name in features):
        return None
    row = pd.DataFrame(np.zeros((1, len(features))), columns=list(features))
    return row.astype({name: frame[name].dtype for name in features})


def _list_to_tuple(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) else values


def _map_outputs(function: Any, outputs: Any) -> Any:
    if isinstance(outputs, dict):
        return {name: function(each) for name, each in outputs.items()}
    return tuple(map(function, outputs)) if isinstance(outputs, tuple) else function(outputs)


def _get_model(payload: bytes, inputs: Any) -> tuple[Any, KerasModel]:
    key = hashlib.sha256(payload).hexdigest()
    if key not in _models:
        definition: KerasModel = cloudpickle.loads(payload)
        _models[key] = definition.build(inputs), definition
        while len(_models) > _MAX_MODELS:
            _models.popitem(last=False)
    _models.move_to_end(key)
    return _models[key]


def add_columns(frame: pd.DataFrame, predicted: Any, names: Sequence[str]) -> pd.DataFrame:
    """Return a table with predictions: one column for each output that has a name.

    Without names, the column ``prediction`` has the values of one output, or tuples of several.
    """
    if isinstance(predicted, dict):
        predicted = tuple(predicted.values())
    outputs = predicted if isinstance(predicted, tuple) else (predicted,)
    columns = [_make_column(each, frame.index) for each in outputs]
    if names:
        if len(names) != len(columns):
            given, allowed = f"{len(names)} names", f"a name for each of {len(columns)} outputs"
            check([Fault("output_cols", given, allowed)])
        return frame.assign(**dict(zip(names, columns, strict=True)))
    if len(columns) == 1:
        return frame.assign(prediction=columns[0])
    cells = pd.Series(list(zip(*columns, strict=True)), index=frame.index, dtype=object)
    return frame.assign(prediction=cells)


def _make_column(predictions: np.ndarray, index: Any) -> pd.Series:
    """Return predictions as a column: numbers, or arrays if there are several for each row."""
    if predictions.ndim == 1 or predictions.shape[1:] == (1,):
        return pd.Series(predictions.reshape(-1), index=index)
    return pd.Series(list(predictions), index=index, dtype=object)
