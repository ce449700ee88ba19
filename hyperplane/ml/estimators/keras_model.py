"""Definition of a Keras model that ranks and workers build: an archive or a function."""

from __future__ import annotations

import importlib
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need


@dataclass(frozen=True)
class KerasModel:
    """What is needed to build a model in another process.

    Parameters
    ----------
    creator, compile_arguments : callable, optional
        Functions of the user, called with ``config``.
    config : mapping
        Their argument.
    archive : bytes, optional
        A compiled model in Keras' format, if there is no creator.
    objects : mapping
        Classes and functions of the user by the names that the archive has for them.
    policy : str
        Types of the layers, such as ``mixed_float16``, with which the archive is loaded.
    weights : bytes, optional
        Weights and state of the optimizer, a file of HDF5; those of the archive by default.
    clipping : mapping
        Attributes of the optimizer that clip gradients.
    example : object, optional
        Inputs of one row of the training, for the shapes of a model without an input layer.
    features, labels : tuple of str
        Columns of the rows, if they are tables, for models with named inputs or outputs.
    """

    creator: Callable[..., Any] | None = None
    compile_arguments: Callable[..., Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    archive: bytes | None = None
    objects: Mapping[str, Any] = field(default_factory=dict)
    policy: str = ""
    weights: bytes | None = None
    clipping: Mapping[str, Any] = field(default_factory=dict)
    example: Any = None
    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def build(self, inputs: Any = None) -> Any:
        """Return the model with its weights.

        ``inputs`` are rows, which determine the shapes of a model without an input layer.
        """
        if self.creator is not None:
            model = self.creator(dict(self.config))
            check([Fault("model_creator", *fault) for fault in list_type_faults(model)])
            if self.compile_arguments is not None:
                model.compile(**self.compile_arguments(dict(self.config)))
        else:
            model = load_archive(self.archive or b"", self.objects, self.policy)
        if getattr(model, "optimizer", None) is None:
            raise ValueError(
                "the model is not compiled: call model.compile(optimizer=..., loss=...)"
            )
        if self.clipping:
            for name, value in self.clipping.items():
                setattr(model.optimizer, name, value)
        inputs = inputs if self.example is None else self.example
        if not model.built and inputs is not None:
            model(self.join_inputs(model, inputs))
        if model.built and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        if self.weights is not None:
            load_weights(model, self.weights)
        return model

    def with_weights(self, weights: bytes | None) -> KerasModel:
        """Return the definition with other weights."""
        return replace(self, weights=weights)

    def with_columns(self, features: Any, labels: Any = None) -> KerasModel:
        """Return the definition for rows of tables with these columns."""
        names = [
            (each,) if isinstance(each, str) else tuple(each or ()) for each in (features, labels)
        ]
        return replace(self, features=names[0], labels=names[1])

    def make_row(self, model: Any, arrays: Sequence[Any]) -> Any:
        """Return the inputs of one row in the form of arrays, which may be empty."""
        if self.example is not None:
            return self.join_inputs(model, self.example)
        inputs = getattr(model, "inputs", None) or []
        shapes = [array.shape[1:] for array in arrays]
        if len(inputs) == len(arrays):  # an empty column of vectors has no shape
            shapes = [[size or 1 for size in tensor.shape[1:]] for tensor in inputs]
        row = [
            np.zeros((1, *shape), array.dtype) for shape, array in zip(shapes, arrays, strict=True)
        ]
        return self.join_inputs(model, tuple(row))

    def join_inputs(self, model: Any, arrays: Any) -> Any:
        """Return arrays in the form of the inputs of a model.

        One array is passed as it is. Several are passed as a tuple; if the model has a single
        input, they are columns of it. A model whose number of inputs is unknown gets the tuple, and
        one whose inputs have names a dictionary.
        """
        keras: Any = need("keras", "tensorflow")
        if isinstance(arrays, dict):
            return arrays
        struct = getattr(model, "_inputs_struct", None)
        if isinstance(struct, dict):
            named = _name_arrays("input", list(struct), arrays, self.features)
            return {name: _fit_rank(each, struct[name]) for name, each in named.items()}
        inputs = getattr(model, "inputs", None)
        is_sequential = isinstance(model, keras.Sequential)
        if is_sequential or (inputs is not None and len(inputs) == 1):
            if len(arrays) == 1:
                return _fit_rank(arrays[0], inputs[0]) if inputs else _add_axis(arrays[0])
            return np.concatenate([_add_axis(array) for array in arrays], axis=-1)
        if inputs is not None and len(inputs) == len(arrays):
            return tuple(map(_fit_rank, arrays, inputs))
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def join_labels(self, model: Any, arrays: Sequence[Any]) -> Any:
        """Return one array of labels as it is, several as a tuple, or by the names of outputs."""
        struct = getattr(model, "_outputs_struct", None)
        if isinstance(struct, dict):
            return _name_arrays("output", list(struct), arrays, self.labels)
        return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _fit_rank(array: Any, tensor: Any) -> Any:
    """Return a column as a matrix, if the input is one: a model traced for both shapes fails."""
    return _add_axis(array) if len(tensor.shape) == 2 else array


def _add_axis(array: Any) -> Any:
    return array if array.ndim > 1 else array[:, None]


def _name_arrays(
    kind: str, names: Sequence[str], arrays: Sequence[Any], columns: Sequence[str]
) -> dict[str, Any]:
    """Return arrays by the names of inputs or outputs: by column, or in order without columns."""
    if len(arrays) != len(names) or (columns and set(columns) != set(names)):
        given = f"the columns {', '.join(columns)}" if columns else f"{len(arrays)} arrays"
        raise ValueError(
            f"the {kind}s of the model are named {', '.join(names)}; the data has {given}"
        )
    return dict(zip(columns or names, arrays, strict=True))


def list_type_faults(model: Any) -> list[tuple[str, str, str]]:
    """Return what is wrong with the type of a model: given, allowed and advice; or nothing."""
    modules = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "tf_keras" in modules:
        advice = (
            "build it with keras and without TF_USE_LEGACY_KERAS, or train it with "
            "hyperplane.ml.gang and tf.distribute.MultiWorkerMirroredStrategy"
        )
        return [("a model of tf_keras", "a model of Keras 3", advice)]
    if "keras" not in modules or not hasattr(model, "fit"):
        return [(f"an object of type {type(model).__name__}", "a compiled keras.Model", "")]
    return []


def find_loss_fault(model: Any) -> str:
    """Return the loss of a model that is not a mean over rows, as text; "" if there is none.

    The gradients of ranks are averaged, so that a sum would be divided by the number of ranks.
    """
    keras: Any = need("keras", "tensorflow")
    for loss in keras.tree.flatten(getattr(model, "loss", None)):
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("mean", "sum_over_batch_size"):
            return f"{type(loss).__name__}(reduction={reduction!r})"
    return ""


def pack_model(model: Any) -> KerasModel:
    """Return the definition of a compiled model, with the classes and functions that it uses.

    Raises
    ------
    RequestError
        If Keras cannot save the model, or cannot load what it saved.
    """
    keras: Any = need("keras", "tensorflow")
    advice = "pass a function that builds and compiles it: Estimator.from_keras(model_creator=...)"
    objects, policy = keras.saving.get_custom_objects().copy(), model.dtype_policy.name
    try:
        with _record_objects() as found:
            archive = save_archive(model)
        objects.update(found)
        load_archive(archive, objects, policy)
    except Exception as error:  # noqa: BLE001 - code of the user's classes runs here
        given = f"a model that cannot be saved and loaded ({type(error).__name__}: {error})"
        check([Fault("keras_model", given[:400], "a model of the Keras format", advice)])
    return KerasModel(archive=archive, objects=objects, policy=policy)


def compute_fingerprint(model: Any) -> int:
    """Return a number that changes with the layers, the settings and the weights of a model."""
    keras: Any = need("keras", "tensorflow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lambda functions
        text = repr(keras.saving.serialize_keras_object(model))
    result = zlib.crc32(text.encode())
    for variable in (*model.variables, *model.optimizer.variables):
        result = compute_checksum(variable, result)
    return result


def compute_checksum(variable: Any, start: int = 0) -> int:
    """Return a number that changes with the values of a variable."""
    data: Any = np.ascontiguousarray(variable.numpy()).view(np.uint8)
    return zlib.crc32(data, start)


def save_archive(model: Any) -> bytes:
    """Return a model in Keras' format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        return path.read_bytes()


def load_archive(archive: bytes, objects: Mapping[str, Any], policy: str = "") -> Any:
    """Return the model of an archive that this process, or the client of the gang, has written.

    Keras scales the loss if the policy of the process is ``mixed_float16``; an archive has only the
    policies of layers.
    """
    keras: Any = need("keras", "tensorflow")
    before = keras.config.dtype_policy()
    if policy.startswith("mixed_"):
        keras.config.set_dtype_policy(policy)
    try:
        return _load_archive(keras, archive, objects)
    finally:
        keras.config.set_dtype_policy(before)


def _load_archive(keras: Any, archive: bytes, objects: Mapping[str, Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        path.write_bytes(archive)
        with _hide_optimizer_warnings():
            return keras.saving.load_model(path, custom_objects=dict(objects), safe_mode=False)


def save_weights(model: Any) -> bytes:
    """Return weights and state of the optimizer as a file of HDF5."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.weights.h5")
        model.save_weights(path)
        return path.read_bytes()


def load_weights(model: Any, weights: bytes) -> None:
    """Set weights, and the state of a built optimizer, from the bytes of a file of HDF5."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.weights.h5")
        path.write_bytes(weights)
        with _hide_optimizer_warnings():
            model.load_weights(path)


@contextmanager
def _hide_optimizer_warnings() -> Iterator[None]:
    """Hide warnings of files without the state of an optimizer, which are valid."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*optimizer.*")
        yield


@contextmanager
def _record_objects() -> Iterator[dict[str, Any]]:
    """Record the classes and functions of the user by name, while a model is saved.

    They may be anywhere in it: layers, schedules of learning rates, activations, regularizers.
    """
    object_registration: Any = importlib.import_module("keras.src.saving.object_registration")
    get_name = object_registration.get_registered_name
    objects: dict[str, Any] = {}

    def record(item: Any) -> Any:
        name = get_name(item)
        if str(item.__module__).partition(".")[0] not in ("keras", "tensorflow", "builtins"):
            objects[item.__name__] = objects[name] = item
        return name

    object_registration.get_registered_name = record
    try:
        yield objects
    finally:
        object_registration.get_registered_name = get_name
