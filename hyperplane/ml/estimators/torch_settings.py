"""Checked settings of an estimator of PyTorch, and its files."""

from __future__ import annotations

import inspect
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hyperplane.core.argument_checks import (
    describe_value,
    find_count_faults,
    find_flag_faults,
    is_one_of,
)
from hyperplane.core.errors import Fault, MissingPackage, check
from hyperplane.core.optional import need
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import warn_caller
from hyperplane.ml.estimators.network_metrics import find_metric_faults
from hyperplane.ml.estimators.torch_batches import (
    find_loader_faults,
    is_loader,
    warn_loader_options,
)
from hyperplane.ml.estimators.torch_losses import takes
from hyperplane.ml.estimators.torch_optimizers import Optimizer, Plateau
from hyperplane.ml.estimators.training_data import find_training_data_faults
from hyperplane.ml.shards.xshards import XShards
from hyperplane.ml.training.rank_checkpoints import save_state

#: Backends of Orca -> whether ``batch_size`` is that of all ranks together.
_BACKENDS = {
    "bigdl": True,
    "spark": True,
    "ray": False,
    "torch_distributed": False,
    "horovod": False,
}


@dataclass(frozen=True)
class TorchSettings:
    """Checked arguments of ``Estimator.from_torch``."""

    model: Any
    optimizer: Any
    loss: Any
    metrics: Any
    scheduler: Any
    config: Mapping[str, Any]
    is_global: bool
    step_freq: str
    model_dir: str | None
    seed: int
    max_retries: int
    logs: bool
    initialize: Callable[[], Any] | None
    state: dict[str, Any] = field(default_factory=dict)


def read_settings(arguments: Mapping[str, Any]) -> TorchSettings:
    """Return the settings of the arguments of ``from_torch``, or raise RequestError."""
    faults = _find_faults(**arguments)
    try:
        torch = need("torch", extra="torch")
    except MissingPackage:
        check(faults)
        raise
    model, optimizer = arguments["model"], arguments["optimizer"]
    is_module = isinstance(model, torch.nn.Module)
    is_optimizer = isinstance(optimizer, torch.optim.Optimizer)
    if is_optimizer and not is_module:
        allowed = "a function (model, config), because model is a function"
        faults.append(Fault("optimizer", type(optimizer).__name__, allowed))
    elif is_optimizer and not _shares_parameters(model, optimizer):
        allowed = "an optimizer of the parameters of model"
        faults.append(Fault("optimizer", type(optimizer).__name__, allowed))
    if isinstance(optimizer, torch.optim.LBFGS):
        faults.append(Fault("optimizer", "LBFGS", "an optimizer that computes the loss once"))
    if getattr(arguments["loss"], "reduction", "mean") not in ("mean", "sum"):
        given = f"reduction={arguments['loss'].reduction!r}"
        faults.append(Fault("loss", given, "a loss with reduction='mean' or 'sum'"))
    check(faults)
    _warn_of_unused(model, arguments["config"] or {})
    scheduler, step_freq = arguments["scheduler_creator"], arguments["scheduler_step_freq"]
    if isinstance(optimizer, Optimizer) and optimizer.schedule is not None:
        if scheduler is not None:
            allowed = "None, because the optimizer has a schedule"
            check([Fault("scheduler_creator", type(scheduler).__name__, allowed)])
        scheduler = optimizer.create_scheduler
        step_freq = "epoch" if isinstance(optimizer.schedule, Plateau) else "batch"
    backend = arguments["backend"]
    model_dir = arguments["model_dir"]
    return TorchSettings(
        model=model,
        optimizer=optimizer,
        loss=arguments["loss"],
        metrics=arguments["metrics"],
        scheduler=scheduler,
        config=dict(arguments["config"] or {}),
        is_global=is_module if backend is None else _BACKENDS[backend],
        step_freq=step_freq,
        model_dir=None if model_dir is None else os.fspath(model_dir),
        seed=arguments["seed"],
        max_retries=arguments["max_retries"],
        logs=arguments["log_to_driver"],
        initialize=arguments["initialization_hook"],
    )


def _shares_parameters(model: Any, optimizer: Any) -> bool:
    own = {id(each) for each in model.parameters()}
    groups = optimizer.param_groups
    return all(id(each) in own for group in groups for each in group["params"])


def _find_faults(**arguments: Any) -> list[Fault]:
    """Return every fault of the arguments of ``from_torch`` that needs no PyTorch."""
    faults = list(find_metric_faults(arguments["metrics"]))
    for name in ("model", "optimizer", "loss", "scheduler_creator", "initialization_hook"):
        value = arguments[name]
        is_optional = value is None and name != "model"
        is_optimizer = name == "optimizer" and hasattr(value, "param_groups")
        if not (is_optional or callable(value) or is_optimizer):
            allowed = "an object of PyTorch or a function that creates it"
            faults.append(Fault(name, describe_value(value), allowed))
        elif value is not None:
            faults += find_pickle_faults(name, value)
    config = arguments["config"]
    if config is not None and not isinstance(config, Mapping):
        faults.append(Fault("config", describe_value(config), "a mapping of names to values"))
    elif config is not None and "batch_size" in config:
        faults.append(Fault("config['batch_size']", "", "give batch_size to fit instead"))
    choices = (("scheduler_step_freq", ("epoch", "batch")), ("backend", (*_BACKENDS, None)))
    for name, allowed_values in choices:
        if not is_one_of(arguments[name], allowed_values):
            shown = ", ".join(map(str, filter(None, allowed_values)))
            faults.append(Fault(name, describe_value(arguments[name]), f"one of {shown}"))
    for name in ("ranks", "workers_per_node"):
        if arguments[name] is not None:
            faults += find_count_faults(name, arguments[name])
    faults += find_count_faults("seed", arguments["seed"], 0)
    faults += find_count_faults("max_retries", arguments["max_retries"], 0)
    if arguments["model_dir"] is not None:
        faults += find_path_faults("model_dir", arguments["model_dir"])
    return faults + find_flag_faults(log_to_driver=arguments["log_to_driver"])


def make_checkpoint_folder(parent: str) -> str:
    """Return a new folder for the checkpoints of a call of ``fit``."""
    folder = Path(parent) / datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S.%f")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        allowed = f"a folder in which files can be written ({error.strerror})"
        check([Fault("model_dir", repr(str(parent)), allowed)])
    return str(folder.resolve())


def _warn_of_unused(model: Any, config: Mapping[str, Any]) -> None:
    """Warn of items of ``config`` for parameters of a class that is created without it."""
    if not isinstance(model, type) or takes(model, 1):
        return
    try:
        known = inspect.signature(model).parameters
    except (TypeError, ValueError):  # classes of C++ have no signature
        return
    if unused := [name for name in config if name in known]:
        call = ", ".join(f"{name}=config[{name!r}]" for name in unused)
        warn_caller(
            f"{model.__name__} is created without config, so that it does not get "
            f"{', '.join(unused)}; pass model=lambda config: {model.__name__}({call})"
        )


def find_data_faults(where: str, data: Any, feature_cols: Any, label_cols: Any) -> list[Fault]:
    """Return the faults of data that are known before it is computed."""
    if not is_loader(data):
        return find_training_data_faults(data, feature_cols, label_cols, where)
    return [*find_loader_faults(where, data), *find_pickle_faults(where, data)]


def find_path_faults(where: str, path: Any) -> list[Fault]:
    """Return the fault of a value that is not a path."""
    if isinstance(path, str | os.PathLike) and isinstance(os.fspath(path), str) and str(path):
        return []
    return [Fault(where, describe_value(path), "a path")]


def warn_unused(unused: Mapping[str, bool]) -> None:
    """Warn about arguments that are set and have no effect."""
    names = [name for name, is_set in unused.items() if is_set]
    if names:
        warn_caller(f"no effect: {', '.join(names)}")


def find_output_faults(data: Any, output_cols: Any) -> list[Fault]:
    """Return the fault of ``output_cols`` for data whose predictions have no names."""
    if output_cols is None or isinstance(data, XShards) or hasattr(data, "columns"):
        return []
    return [Fault("output_cols", "", "only predictions of tables and XShards have names")]


def is_checkpoint(state: Any) -> bool:
    """Return whether the content of a file is a checkpoint of a training."""
    return isinstance(state, dict) and isinstance(state.get("model"), dict) and "epoch" in state


def find_option_faults(
    profile: Any = False, reduce_results: Any = True, info: Any = None
) -> list[Fault]:
    """Return the faults of options without an effect.

    Other values are arguments that were passed by position, in the order of another version.
    """
    advice = "pass the arguments after batch_size by name: versions of Orca have other orders"
    faults = [
        Fault(name, describe_value(value), "True or False", advice)
        for name, value in (("profile", profile), ("reduce_results", reduce_results))
        if not isinstance(value, bool)
    ]
    if not (info is None or isinstance(info, Mapping)):
        faults.append(Fault("info", describe_value(info), "a mapping", advice))
    return faults


def warn_unused_options(profile: Any, reduce_results: Any, info: Any, *data: Any) -> None:
    """Warn about options of fit, evaluate and DataLoaders that are set and have no effect."""
    warn_loader_options(*data)
    warn_unused(
        {
            "profile": profile is not False,
            "reduce_results": reduce_results is not True,
            "info": info is not None,
        }
    )


def write_object(content: Any, path: str | os.PathLike[str]) -> str:
    """Write an object of PyTorch to a path of the user, and return the path."""
    file = Path(path)
    if not os.path.isdir(file.parent):  # noqa: PTH112 - Path raises if it is too long
        check([Fault("model_path", str(path), "a path in an existing folder")])
    save_state(file, content)
    return str(path)


def read_weights(where: str, path: Any) -> Any:
    """Read tensors and plain values; never run code of the file."""
    check(find_path_faults(where, path))
    if not os.path.isfile(path):  # noqa: PTH113 - Path raises if it is too long
        check([Fault(where, str(path), "an existing file")])
    torch = need("torch", extra="torch")
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except OSError as error:
        check([Fault(where, str(path), f"a file that can be read ({error.strerror})")])
    except Exception as error:  # noqa: BLE001 - of any content of a file
        # The text of PyTorch proposes to run the code in the file.
        is_archive = zipfile.is_zipfile(path)
        found = "it has other objects" if is_archive else f"it is damaged: {type(error).__name__}"
        allowed = f"a file with weights only, as save writes it without entire=True; {found}"
        check([Fault(where, str(path), allowed)])
    return None
