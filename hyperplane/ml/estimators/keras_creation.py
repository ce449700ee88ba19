"""``from_keras``: an estimator of a compiled Keras model, or of functions that create one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hyperplane.core.argument_checks import describe_value, find_count_faults, is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.optional import need
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.ml.estimators import keras_files
from hyperplane.ml.estimators.keras_estimator import KerasEstimator
from hyperplane.ml.estimators.keras_model import KerasModel, list_type_faults, pack_model

_BACKENDS = ("bigdl", "tf2", "ray", "spark", "horovod")


@check_call(outcome="no estimator was created")
def from_keras(
    keras_model: Any = None,
    metrics: Any = None,
    model_dir: str | os.PathLike[str] | None = None,
    optimizer: Any = None,
    backend: str | None = None,
    *,
    model_creator: Callable[..., Any] | None = None,
    config: Mapping[str, Any] | None = None,
    compile_args_creator: Callable[..., Any] | None = None,
    workers_per_node: int | None = None,
    verbose: bool = False,
    cpu_binding: bool = False,
    log_to_driver: bool = True,
    ranks: int | None = None,
    max_retries: int = 3,
) -> KerasEstimator:
    """Return an estimator of a compiled Keras model, or of a function that creates one.

    Parameters
    ----------
    keras_model : keras.Model, optional
        A compiled model; training changes its weights.
    metrics : list, optional
        Metrics in place of those that it was compiled with.
    model_dir : str or path, optional
        Folder or URL for a folder of checkpoints of each call of ``fit``; all workers must be able
        to write to it.
    optimizer : str or keras.optimizers.Optimizer, optional
        Optimizer in place of that which it was compiled with.
    backend : str, optional
        Any backend of Orca; no effect.
    model_creator : callable, optional
        Function ``f(config)`` that returns a compiled model, called by each process.
    config : mapping, optional
        Argument of the creators. ``intra_op_parallelism`` (1) is the number of threads of an
        operation of TensorFlow in a process, ``inter_op_parallelism`` (2) of operations at a time.
    compile_args_creator : callable, optional
        Function ``f(config)`` that returns the arguments of ``compile``.
    workers_per_node : int, optional
        Processes that train on each host; by default one for each worker process.
    verbose : bool
        Whether to print the output of the processes.
    cpu_binding, log_to_driver
        No effect.
    ranks : int, optional
        Number of processes that train, in place of ``workers_per_node``.
    max_retries : int
        Restarts of ``fit`` from the last checkpoint after the loss of a process.

    Returns
    -------
    KerasEstimator

    Raises
    ------
    RequestError
        With every fault, such as a model that is not compiled.
    MissingPackage
        If ``keras_model`` is given and TensorFlow is not installed.
    """
    faults = [
        *find_count_faults("max_retries", max_retries, 0),
        *_find_rank_faults(ranks, workers_per_node),
        *([] if model_dir is None else keras_files.find_path_faults("model_dir", model_dir)),
        *_find_creator_faults(model_creator, compile_args_creator, config),
    ]
    if not is_one_of(backend, (*_BACKENDS, None)):
        allowed = f"one of {', '.join(_BACKENDS)}"
        faults.append(Fault("backend", describe_value(backend), allowed))
    if keras_model is not None:
        if model_creator is not None:
            allowed = "one of keras_model and model_creator"
            faults.append(Fault("model_creator", "both", allowed))
        faults += _find_model_faults(keras_model, optimizer)
    elif metrics is not None or optimizer is not None:
        allowed = "arguments beside keras_model; compile the model in the creator"
        faults.append(Fault("metrics, optimizer", "given with model_creator", allowed))
    check(faults)
    if cpu_binding:
        warn_caller("no effect: cpu_binding; set the threads of workers when you start the cluster")
    settings: dict[str, Any] = {
        "ranks": ranks,
        "workers_per_node": workers_per_node,
        "model_dir": model_dir,
        "max_retries": max_retries,
        "verbose": verbose,
    }
    if keras_model is None:
        definition = KerasModel(model_creator, compile_args_creator, dict(config or {}))
        return KerasEstimator(definition, **settings)
    if metrics is not None or optimizer is not None:
        _compile_again(keras_model, metrics, optimizer)
    definition = replace(pack_model(keras_model), config=dict(config or {}))
    return KerasEstimator(definition, keras_model, **settings)


def load_keras_model(path: str | os.PathLike[str], **settings: Any) -> KerasEstimator:
    """Return an estimator of a compiled model in a file of Keras.

    Parameters
    ----------
    path : str or path
        Path or URL of a whole model, ``.keras`` or ``.h5``.
    **settings
        Arguments of :func:`from_keras`, such as ``ranks``.
    """
    check(keras_files.find_path_faults("path", path))
    model = keras_files.decode_model(keras_files.read_file(path), os.fspath(path))
    if model is None:
        allowed = "a file of a whole model"
        raise RequestError([Fault("path", f"{os.fspath(path)!r} with weights alone", allowed)])
    return from_keras(model, **settings)


def from_graph(*args: Any, **kwargs: Any) -> Any:
    """Raise RequestError: TensorFlow 2 has no graphs of sessions to train."""
    advice = "define the model with Keras, and use Estimator.from_keras"
    raise RequestError([Fault("from_graph", "a graph of TensorFlow 1", "a Keras model", advice)])


def _find_rank_faults(ranks: Any, workers_per_node: Any) -> list[Fault]:
    values = {"ranks": ranks, "workers_per_node": workers_per_node}
    return [
        fault
        for name, value in values.items()
        if value is not None
        for fault in find_count_faults(name, value)
    ]


def _find_creator_faults(creator: Any, compile_arguments: Any, config: Any) -> list[Fault]:
    faults = []
    for name, value in (("model_creator", creator), ("compile_args_creator", compile_arguments)):
        if value is None:
            continue
        if not callable(value) or hasattr(value, "layers"):
            allowed = "a function of config"
            advice = "pass a model as keras_model" if hasattr(value, "layers") else ""
            faults.append(Fault(name, describe_value(value), allowed, advice))
        else:
            faults += find_pickle_faults(name, value, ())
    if compile_arguments is not None and creator is None:
        allowed = "an argument beside model_creator"
        faults.append(Fault("compile_args_creator", "given without a creator", allowed))
    if config is not None and not isinstance(config, Mapping):
        faults.append(Fault("config", describe_value(config), "a mapping"))
    elif config and "batch_size" in config:
        advice = "pass it to fit and evaluate"
        faults.append(Fault("config['batch_size']", repr(config["batch_size"]), "absent", advice))
    return faults


def _find_model_faults(model: Any, optimizer: Any) -> list[Fault]:
    if wrong := list_type_faults(model):
        return [Fault("keras_model", *each) for each in wrong]
    keras: Any = need("keras", "tensorflow")
    need("tensorflow", "tensorflow")
    if keras.backend.backend() != "tensorflow":
        given = f"a model of Keras with the backend {keras.backend.backend()}"
        advice = "set KERAS_BACKEND=tensorflow before importing keras"
        return [Fault("keras_model", given, "the backend tensorflow", advice)]
    faults = []
    if not getattr(model, "compiled", False) or (model.optimizer is None and optimizer is None):
        advice = "call model.compile(optimizer=..., loss=...)"
        faults.append(Fault("keras_model", "a model that is not compiled", "compiled", advice))
    if not model.built:
        advice = "add an Input layer, or pass model_creator"
        faults.append(Fault("keras_model", "a model without shapes", "a built model", advice))
    return faults


def _compile_again(model: Any, metrics: Any, optimizer: Any) -> None:
    """Compile a model with another optimizer or other metrics, and its own loss."""
    model.compile(
        optimizer=model.optimizer if optimizer is None else optimizer,
        loss=model.loss,
        metrics=metrics,
    )
