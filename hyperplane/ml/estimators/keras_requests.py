"""Checks of the arguments of an estimator of Keras, and its data as a source for ranks."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from dask.base import is_dask_collection

from hyperplane.core.argument_checks import (
    describe_value,
    find_count_faults,
    find_flag_faults,
    is_one_of,
)
from hyperplane.core.errors import Fault
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import warn_caller
from hyperplane.ml.estimators.keras_graphs import is_dataset, pack_checked, pack_dataset
from hyperplane.ml.estimators.keras_ranks import DataSource
from hyperplane.ml.estimators.training_data import (
    find_training_data_faults,
    prepare_training_data,
)
from hyperplane.ml.estimators.triggers import find_trigger_faults


def prepare_source(
    client: Any, where: str, data: Any, ranks: int, columns: Any, config: Any
) -> tuple[DataSource, list[Any]]:
    """Return the source of the rows for all ranks, and the pieces that the gang passes."""
    if is_dataset(data):
        return DataSource(graph=pack_checked(data, where)), []
    if callable(data) and not is_dask_collection(data):
        return DataSource(creator=data, config=config), []
    prepared = prepare_training_data(client, data, ranks, *columns, where=where)
    count = len(prepared.partitions) // ranks
    return DataSource(pieces=count, rows=prepared.rows), prepared.partitions


def find_batch_faults(batch_size: Any, ranks: int) -> list[Fault]:
    """Return the fault of a batch that the ranks cannot divide evenly."""
    faults = find_count_faults("batch_size", batch_size)
    if faults or batch_size % ranks == 0:
        return faults
    near = max(ranks, batch_size // ranks * ranks)
    allowed = f"a multiple of the {ranks} ranks, which divide each batch"
    return [Fault("batch_size", str(batch_size), allowed, f"for example {near}")]


def find_data_faults(
    where: str, data: Any, features: Any, labels: Any, needs_labels: bool = True
) -> list[Fault]:
    """Return the faults of rows, without those of a dataset, which are found when it is packed."""
    if is_dataset(data):
        return pack_dataset(data, where)[1]
    if callable(data) and not is_dask_collection(data):
        return []
    return find_training_data_faults(data, features, labels, where, needs_labels)


def find_fit_faults(ranks: int, **arguments: Any) -> list[Fault]:
    """Return the faults of the arguments of ``fit``, except those of the data."""
    faults = [
        *find_count_faults("epochs", arguments["epochs"]),
        *find_count_faults("initial_epoch", arguments["initial_epoch"], 0),
        *find_batch_faults(arguments["batch_size"], ranks),
        *find_verbose_faults(arguments["verbose"]),
        *find_flag_faults(shuffle=arguments["shuffle"]),
        *find_count_faults("seed", arguments["seed"], 0, 2**32 - 1),
        *_find_callback_faults(arguments["callbacks"], ranks),
        *_find_weight_faults(arguments["class_weight"]),
        *find_config_faults(arguments["data_config"]),
        *find_trigger_faults(arguments["checkpoint_trigger"]),
    ]
    for name in ("steps_per_epoch", "validation_steps"):
        faults += [] if arguments[name] is None else find_count_faults(name, arguments[name])
    often = arguments["validation_freq"]
    epochs = often if isinstance(often, list | tuple) else [often]
    wrong = [each for each in epochs if find_count_faults("validation_freq", each)]
    if wrong or not epochs:
        allowed = "a whole number, 1 or more, or a list of epochs"
        faults.append(Fault("validation_freq", describe_value(often), allowed))
    return faults


def find_verbose_faults(verbose: Any) -> list[Fault]:
    """Return the fault of a value that Keras does not accept."""
    is_number = isinstance(verbose, int) and verbose in (0, 1, 2)
    if is_number or is_one_of(verbose, ("auto",)):
        return []
    return [Fault("verbose", describe_value(verbose), "0, 1, 2 or 'auto'")]


def find_config_faults(config: Any) -> list[Fault]:
    """Return the fault of ``data_config`` that is not a mapping."""
    if config is None or isinstance(config, Mapping):
        return []
    return [Fault("data_config", describe_value(config), "a mapping")]


def _find_callback_faults(callbacks: Any, ranks: int) -> list[Fault]:
    if callbacks is None:
        return []
    if not isinstance(callbacks, list | tuple):
        return [Fault("callbacks", describe_value(callbacks), "a list of callbacks of Keras")]
    faults = []
    for number, callback in enumerate(callbacks):
        where = f"callbacks[{number}]"
        names = [base.__name__ for base in type(callback).__mro__]
        if not (hasattr(callback, "set_model") and hasattr(callback, "on_epoch_end")):
            faults.append(Fault(where, describe_value(callback), "a callback of Keras"))
        elif "BackupAndRestore" in names and ranks > 1:
            advice = (
                "fit continues by itself after the loss of a process; after an error, call "
                "load_orca_checkpoint(model_dir) and pass initial_epoch"
            )
            allowed = "callbacks that do not change the first epoch of one rank"
            faults.append(Fault(where, "BackupAndRestore", allowed, advice))
        else:
            faults += find_pickle_faults(where, callback)
    return faults


def _find_weight_faults(weights: Any) -> list[Fault]:
    if weights is None:
        return []
    if isinstance(weights, Mapping) and all(
        not find_count_faults("class", key, 0) and isinstance(value, Real)
        for key, value in weights.items()
    ):
        return []
    allowed = "a mapping of classes 0, 1, ... to numbers"
    return [Fault("class_weight", describe_value(weights), allowed)]


def warn_unused(**values: Any) -> None:
    """Warn of arguments that have no effect, unless they are None."""
    names = [name for name, value in values.items() if value is not None]
    if names:
        warn_caller(f"no effect with Keras 3: {', '.join(names)}")
