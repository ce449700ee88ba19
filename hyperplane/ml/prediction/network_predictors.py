"""Models of Keras and exported programs of PyTorch as predictors."""

from __future__ import annotations

import io
import json
import tempfile
import threading
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need

#: Modules whose classes and functions a ``.keras`` file may name.
_KERAS_MODULES = ("builtins", "keras", "numpy")


@dataclass(frozen=True)
class NetworkInput:
    """An input of a network.

    Parameters
    ----------
    name : str
        Its name, which is that of its column if the network has several inputs.
    shape : tuple of int or None
        Sizes of one row; None where any size is allowed.
    dtype : str
        Its type.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def convert(self, values: Any) -> np.ndarray:
        """Return values of rows with the type and the number of axes of this input.

        Raises
        ------
        ValueError
            If a value is missing or the shape is another one.
        """
        array = np.asarray(values)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]  # its values may be lists
        if array.dtype == object and len(array) and isinstance(array[0], list | np.ndarray):
            array = np.stack([np.asarray(value) for value in array])  # a column of lists
        if self.dtype != "string":
            if pd.isna(array).any():
                raise ValueError(f"a value of the input {self.name!r} is missing (NaN)")
            array = self._convert_type(array)
        if array.ndim == 1 and len(self.shape) == 1:
            array = array[:, None]
        fits = len(array.shape) == len(self.shape) + 1 and all(
            want in (None, size) for want, size in zip(self.shape, array.shape[1:], strict=True)
        )
        if not fits:
            raise ValueError(
                f"a row has the shape {array.shape[1:]}; the input {self.name!r} needs {self.shape}"
            )
        return array

    def _convert_type(self, array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(self.dtype)
        if converted.dtype.kind in "iub" and (converted != array).any():
            raise ValueError(f"a value of the input {self.name!r} is not of type {self.dtype}")
        if converted.dtype.kind == "f" and np.isinf(converted).any():
            is_infinite = np.isinf(array.astype("float64"))
            if (np.isinf(converted) & ~is_infinite).any():
                raise ValueError(f"a value of the input {self.name!r} exceeds {self.dtype}")
        return converted


class NetworkPredictor(ABC):
    """A network; a subclass computes its outputs.

    A network with one input gets all values of a row; one with several inputs gets the column with
    the name of each input. Several outputs are joined, and an output of one value is a number.

    Parameters
    ----------
    inputs : sequence of NetworkInput
        Inputs of the network, in their order.
    """

    def __init__(self, inputs: Sequence[NetworkInput]) -> None:
        self.inputs = inputs
        self.columns = [each.name for each in inputs] if len(inputs) > 1 else None

    def predict(self, rows: Any) -> np.ndarray:
        """See :class:`~hyperplane.ml.prediction.predictors.Predictor`."""
        if self.columns is None:
            arrays = [self.inputs[0].convert(rows)]
        elif isinstance(rows, pd.DataFrame) and rows.shape[1] == len(self.inputs):
            columns = [rows.iloc[:, number] for number in range(rows.shape[1])]
            arrays = [
                each.convert(column) for each, column in zip(self.inputs, columns, strict=True)
            ]
        else:
            raise ValueError(f"a row needs a value for each input: {', '.join(self.columns)}")
        return self._join(arrays)

    def empty(self) -> np.ndarray | None:
        """See :class:`~hyperplane.ml.prediction.predictors.Predictor`."""
        if any(None in each.shape for each in self.inputs):
            return None
        rows = [
            np.zeros((1, *filter(None, each.shape)), "U1" if each.dtype == "string" else each.dtype)
            for each in self.inputs
        ]
        return self._join(rows)[:0]

    def _join(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the outputs of the network as one array."""
        count = len(arrays[0])
        outputs = [np.asarray(output) for output in self._compute(arrays)]
        for output in outputs:
            if output.ndim == 0 or len(output) != count:
                raise ValueError(f"an output has the shape {output.shape} for {count} rows")
        if len(outputs) > 1:
            outputs = [np.concatenate([each.reshape(count, -1) for each in outputs], axis=1)]
        (joined,) = outputs
        return joined[:, 0] if joined.ndim == 2 and joined.shape[1] == 1 else joined

    @abstractmethod
    def _compute(self, arrays: list[np.ndarray]) -> list[Any]:
        """Return the outputs of the network."""


class KerasPredictor(NetworkPredictor):
    """A model of Keras."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._lock = threading.Lock()  # the first call builds the function of the model
        inputs = model.inputs
        if not inputs:
            raise ValueError("the model has no inputs; call it once, then save it again")
        super().__init__(
            [NetworkInput(each.name, tuple(each.shape[1:]), each.dtype) for each in inputs]
        )

    def _compute(self, arrays: list[np.ndarray]) -> list[Any]:
        given = arrays[0] if self.columns is None else arrays
        with self._lock:
            return list(_flatten(self.model.predict_on_batch(given)))


class TorchPredictor(NetworkPredictor):
    """An exported program of PyTorch, which is computed on the processor."""

    def __init__(self, program: Any) -> None:
        self.torch = need("torch", "torch")
        self.module = program.module()
        names = set(program.graph_signature.user_inputs)
        nodes = [node for node in program.graph.nodes if node.name in names]
        examples = [(node.name, node.meta["val"]) for node in nodes]
        if not all(isinstance(each, self.torch.Tensor) and each.dim() for _, each in examples):
            raise ValueError("an input of the program is not a tensor with rows")
        static = [each.shape[0] for _, each in examples if isinstance(each.shape[0], int)]
        if static:
            raise ValueError(
                f"the program is exported for {static[0]} rows only; export it with "
                "dynamic_shapes, such as ({0: torch.export.Dim.DYNAMIC},)"
            )
        self._dtypes = [each.dtype for _, each in examples]
        super().__init__([_torch_input(name, each) for name, each in examples])

    def _compute(self, arrays: list[np.ndarray]) -> list[Any]:
        tensors = [
            self.torch.from_numpy(np.array(array)).to(dtype)
            for array, dtype in zip(arrays, self._dtypes, strict=True)
        ]
        with self.torch.inference_mode():
            outputs = list(_flatten(self.module(*tensors)))
        # NumPy has no type bfloat16.
        return [
            (each.float() if each.dtype is self.torch.bfloat16 else each).numpy()
            for each in outputs
        ]


def _torch_input(name: str, example: Any) -> NetworkInput:
    shape = tuple(size if isinstance(size, int) else None for size in example.shape[1:])
    dtype = str(example.dtype).removeprefix("torch.")
    return NetworkInput(name, shape, "float32" if dtype == "bfloat16" else dtype)


def _flatten(outputs: Any) -> Iterator[Any]:
    """Yield the arrays in an output: in tuples, lists and dicts."""
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, list | tuple):
        for output in outputs:
            yield from _flatten(output)
    else:
        yield outputs


def decode_keras(data: bytes, *, trusted: bool) -> KerasPredictor:
    """Return the model in a ``.keras`` file.

    Raises
    ------
    RequestError
        If it names custom classes or functions, or runs code in a layer ``Lambda`` and ``trusted``
        is false.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        config = json.loads(archive.read("config.json"))
    custom = sorted(set(_find_custom_names(config)))
    if custom:
        shown = ", ".join(custom[:3]) + ", ..." * (len(custom) > 3)
        allowed = "a model of classes and functions of Keras, which all workers have"
        raise RequestError([Fault("model", f"a file with {shown}", allowed)])
    if not trusted and any(each["class_name"] == "Lambda" for each in _find_objects(config)):
        allowed = "True if you trust the author of the file, as it runs code in a layer Lambda"
        raise RequestError([Fault("trusted", "False", allowed)])
    keras = need("keras", "tensorflow")
    with tempfile.TemporaryDirectory(prefix="hyperplane-keras-") as folder:
        path = Path(folder, "model.keras")
        path.write_bytes(data)
        return KerasPredictor(keras.saving.load_model(path, compile=False, safe_mode=not trusted))


def _find_objects(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the serialized objects in the configuration of a model."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        # The model is loaded without its optimizer and losses.
        inner = [value for key, value in config.items() if key != "compile_config"]
    else:
        inner = config if isinstance(config, list) else []
    for value in inner:
        yield from _find_objects(value)


def _find_custom_names(config: Any) -> Iterator[str]:
    """Yield the names of classes and functions that Keras does not define."""
    for each in _find_objects(config):
        module, name = each.get("module"), str(each["class_name"])
        if module == "builtins" and name == "function":
            yield str(each.get("config"))
        elif module is None and each.get("registered_name") is not None:
            yield str(each["registered_name"])
        elif module is not None and str(module).partition(".")[0] not in _KERAS_MODULES:
            yield str(each.get("registered_name") or name)


def decode_torch(data: bytes) -> TorchPredictor:
    """Return the program in a ``.pt2`` file; loading it runs code in it."""
    return TorchPredictor(need("torch.export", "torch").load(io.BytesIO(data)))


def is_program(model: Any) -> bool:
    """Return whether an object is a program of ``torch.export``."""
    return _is_of(model, "torch") and hasattr(model, "graph_signature")


def _is_of(model: Any, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(model).__mro__)


def encode_network(model: Any) -> tuple[bytes, str] | None:
    """Return file and suffix of a model of Keras or a program of PyTorch; None for others."""
    if is_program(model):
        file = io.BytesIO()
        need("torch.export", "torch").save(model, file)
        return file.getvalue(), ".pt2"
    if not (_is_of(model, "keras") and hasattr(model, "layers")):
        return None
    with tempfile.TemporaryDirectory(prefix="hyperplane-keras-") as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        return path.read_bytes(), ".keras"


def list_input_names(model: Any) -> list[str] | None:
    """Return the names of the inputs of a network that has several; None if it has one."""
    predictor = TorchPredictor(model) if is_program(model) else KerasPredictor(model)
    return predictor.columns
