"""Predictions of SavedModels of TensorFlow."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import weakref
import zipfile
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.core.process_folders import remove_folder
from hyperplane.ml.prediction.network_predictors import NetworkInput, NetworkPredictor

_SIGNATURE = "serving_default"


class SavedModelPredictor(NetworkPredictor):
    """The signature ``serving_default`` of a SavedModel.

    Parameters
    ----------
    model : object
        The loaded SavedModel.
    """

    def __init__(self, model: Any) -> None:
        self.tensorflow = need("tensorflow", "tensorflow")
        self.model = model
        signature = model.signatures.get(_SIGNATURE)
        if signature is None:
            known = ", ".join(sorted(model.signatures)) or "none"
            raise ValueError(f"the SavedModel has no signature {_SIGNATURE}; it has {known}")
        self._compute_signature = signature
        specs = signature.structured_input_signature[1]
        # Their order in the signature differs from process to process.
        super().__init__([_make_input(name, specs[name]) for name in sorted(specs)])

    def _compute(self, arrays: list[np.ndarray]) -> list[Any]:
        tensors = {
            each.name: self.tensorflow.constant(array, dtype=each.dtype)
            for each, array in zip(self.inputs, arrays, strict=True)
        }
        outputs = self._compute_signature(**tensors)
        return [_to_array(outputs[name]) for name in sorted(outputs)]


def _make_input(name: str, spec: Any) -> NetworkInput:
    if not spec.shape.rank:
        raise ValueError(f"the input {name!r} has no rows")
    rows, *shape = spec.shape
    if rows is not None:
        raise ValueError(f"the SavedModel is exported for {rows} rows only; export it for None")
    return NetworkInput(name, tuple(shape), spec.dtype.name)


def _to_array(output: Any) -> np.ndarray:
    array: np.ndarray = output.numpy()
    # Strings are bytes in UTF-8.
    return np.char.decode(array.astype("S"), "utf-8") if array.dtype.kind == "O" else array


def decode_saved_model(data: bytes) -> SavedModelPredictor:
    """Return the model in an archive of a SavedModel; it can read and write files."""
    tensorflow = need("tensorflow", "tensorflow")
    folder = tempfile.mkdtemp(prefix="hyperplane-saved-model-")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(folder)
        predictor = SavedModelPredictor(tensorflow.saved_model.load(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # The model may read its assets later.
    weakref.finalize(predictor, remove_folder, folder, os.getpid())
    return predictor
