"""Predictions of a PyTorch model, partition by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.dataframe import utils as dask_utils
from dask.delayed import delayed

from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need
from hyperplane.ml.estimators.partition_reader import Arrays, FeatureReader
from hyperplane.ml.estimators.torch_batches import to_tensors
from hyperplane.ml.estimators.torch_losses import to_arrays
from hyperplane.ml.estimators.training_data import list_partitions
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.xshards import XShards

_NAME = "prediction"


@dataclass(frozen=True)
class ModulePredictor:
    """Pickled model, number of rows of a batch, reader of partitions, and names of the outputs."""

    model: bytes
    batch_size: int
    reader: FeatureReader
    names: tuple[str, ...] | None = None

    def predict_arrays(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs of the model for rows of inputs."""
        torch = need("torch", extra="torch")
        model = cloudpickle.loads(self.model)  # of the user's client, as every task
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model.to(device).eval()
        count = len(inputs[0])
        if not count:  # many models cannot reshape an array without rows
            inputs = [np.zeros((1, *each.shape[1:]), each.dtype) for each in inputs]
        outputs = []
        with torch.no_grad():
            for start in range(0, max(1, count), self.batch_size):
                chosen = [each[start : start + self.batch_size] for each in inputs]
                outputs.append(to_arrays(model(*to_tensors(torch, chosen, model, device))))
        return [np.concatenate(each)[:count] for each in zip(*outputs, strict=True)]

    def name_outputs(self, outputs: Sequence[Any]) -> list[str]:
        """Return a name for each output: ``prediction``, or ``output_0`` and so on."""
        if self.names is not None:
            if len(self.names) != len(outputs):
                allowed = f"{len(outputs)} names: the model has {len(outputs)} outputs"
                check([Fault("output_cols", str(list(self.names)), allowed)])
            return list(self.names)
        if len(outputs) == 1:
            return [_NAME]
        return [f"output_{number}" for number in range(len(outputs))]

    def predict_shard(self, part: Any) -> dict[str, np.ndarray] | pd.DataFrame:
        """Return the predictions of a shard by name; a table is returned with them as columns."""
        if isinstance(part, pd.DataFrame):
            return self.predict_frame(part)
        outputs = self.predict_arrays(self.reader(part)[0])
        return dict(zip(self.name_outputs(outputs), outputs, strict=True))

    def predict_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table with columns of predictions; vectors are cells."""
        outputs: list[np.ndarray] = [np.empty(0)]
        if len(frame):
            outputs = self.predict_arrays(self.reader(frame)[0])
        columns = {}
        for name, output in zip(self.name_outputs(outputs), outputs, strict=True):
            found = output[:, 0] if output.ndim == 2 and output.shape[1] == 1 else output
            cells: Any = found if found.ndim == 1 else list(found)
            kind = object if found.ndim > 1 else None
            columns[name] = pd.Series(cells, index=frame.index, dtype=kind)
        return frame.assign(**columns)


def predict_data(
    model: Any,
    data: Any,
    batch_size: int,
    feature_cols: Any,
    output_cols: str | Sequence[str] | None = None,
) -> Any:
    """Return the predictions of valid data in its form; lazy for data on the workers."""
    names, outputs = _list_names(feature_cols), _list_names(output_cols)
    reader = FeatureReader(names, None, needs_labels=False)
    predictor = ModulePredictor(cloudpickle.dumps(model), batch_size, reader, outputs)
    if isinstance(data, XShards):
        return XShards(tasks.map_parts(data.parts, predictor.predict_shard, (), "predict"))
    if isinstance(data, pd.DataFrame):
        return predictor.predict_frame(data)
    if hasattr(data, "map_partitions") and not hasattr(data, "numblocks"):
        example = _predict_example(predictor, data)
        meta = example.iloc[:0]
        return data.map_partitions(_predict_block, predictor, meta, meta=meta)
    parts = list_partitions(data, None, None, needs_labels=False)
    if not is_dask_collection(parts[0]):
        found = predictor.predict_arrays(parts[0][0])
        return found[0] if len(found) == 1 else tuple(found)
    return _predict_array(predictor, data, parts)


def _list_names(names: Any) -> tuple[str, ...] | None:
    return (names,) if isinstance(names, str) else None if names is None else tuple(names)


def _predict_example(predictor: ModulePredictor, data: Any) -> pd.DataFrame:
    """Return the predictions of a row of placeholders, or of the first row if that fails."""
    try:
        return predictor.predict_frame(dask_utils.meta_nonempty(data._meta))  # type: ignore[attr-defined]
    except Exception as error:
        first = data.head(1, npartitions=-1)
        if not len(first):
            raise
        try:
            return predictor.predict_frame(first)
        except Exception as second:
            raise second from error


def _predict_block(block: pd.DataFrame, predictor: ModulePredictor, meta: Any) -> pd.DataFrame:
    if not len(block):
        empty: pd.DataFrame = meta.set_axis(block.index)
        return empty
    new = meta.columns[len(block.columns) :]
    return predictor.predict_frame(block).astype({name: meta[name].dtype for name in new})


def _predict_array(predictor: ModulePredictor, data: Any, parts: Sequence[Any]) -> Any:
    leaf = data
    while not hasattr(leaf, "chunks"):
        leaf = leaf["x"] if isinstance(leaf, dict) else leaf[0]
    inputs = data["x"] if isinstance(data, dict) else data[0] if isinstance(data, tuple) else data
    leaves = inputs if isinstance(inputs, tuple | list) else [inputs]
    examples = predictor.predict_arrays([np.zeros((1, *a.shape[1:]), a.dtype) for a in leaves])
    run = delayed(_predict_features, pure=False, traverse=False)
    found = [run(predictor, part) for part in parts]
    joined = []
    for number, example in enumerate(examples):
        blocks = [
            da.from_delayed(part[number], (rows, *example.shape[1:]), example.dtype)
            for part, rows in zip(found, leaf.chunks[0], strict=True)
        ]
        joined.append(da.concatenate(blocks, allow_unknown_chunksizes=True))
    return joined[0] if len(joined) == 1 else tuple(joined)


def _predict_features(predictor: ModulePredictor, arrays: Arrays) -> list[np.ndarray]:
    return predictor.predict_arrays(arrays[0])
