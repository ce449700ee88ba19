"""Valid calls of the methods of estimators, without a cluster and without their frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from bad_values import Call

from hyperplane.ml.estimators.keras_estimator import KerasEstimator
from hyperplane.ml.estimators.keras_model import KerasModel
from hyperplane.ml.estimators.network_estimator import NetworkEstimator
from hyperplane.ml.estimators.torch_estimator import TorchEstimator
from hyperplane.ml.estimators.torch_settings import TorchSettings

ROWS = {"x": np.ones((4, 2)), "y": np.ones((4, 1))}


def torch_estimator() -> TorchEstimator:
    return TorchEstimator(
        TorchSettings(
            model=steps, optimizer=steps, loss=steps, metrics=None, scheduler=None, config={},
            is_global=True, step_freq="batch", model_dir=None, seed=0, max_retries=0, logs=False,
            initialize=None,
        )
    )  # fmt: skip


def steps(*_: Any) -> None:
    """Create nothing; a call that gets this far needs a cluster or a framework."""


def keras_estimator() -> KerasEstimator:
    return KerasEstimator(KerasModel(creator=steps))


def of_method(
    create: Callable[[], Any], name: str, good: Mapping[str, Any], of: type | None = None
) -> Call:
    """Return the call of a method of a new estimator."""

    def call(**options: Any) -> Any:
        return getattr(create(), name)(**options)

    return Call(call, good, (), (), getattr(of or type(create()), name))


ESTIMATORS: dict[str, Call] = {
    **{
        f"TorchEstimator.{name}": of_method(torch_estimator, name, {"data": ROWS})
        for name in ("fit", "evaluate", "predict")
    },
    **{
        f"TorchEstimator.{name}": of_method(torch_estimator, name, {"model_path": "missing.pt"})
        for name in ("save", "load", "save_checkpoint", "load_checkpoint")
    },
    "TorchEstimator.load_orca_checkpoint": of_method(
        torch_estimator, "load_orca_checkpoint", {"path": "missing"}
    ),
    **{
        f"KerasEstimator.{name}": of_method(keras_estimator, name, {"data": ROWS})
        for name in ("fit", "evaluate", "predict")
    },
    **{
        f"KerasEstimator.{name}": of_method(keras_estimator, name, {"path": "missing.keras"})
        for name in ("load", "load_orca_checkpoint")
    },
    "KerasEstimator.load_keras_weights": of_method(
        keras_estimator, "load_keras_weights", {"filepath": "missing.weights.h5"}
    ),
    **{
        f"{create().__class__.__name__}.{name}": of_method(create, name, good, NetworkEstimator)
        for create in (torch_estimator, keras_estimator)
        for name, good in (
            ("set_constant_gradient_clipping", {"min": -1.0, "max": 1.0}),
            ("set_l2_norm_gradient_clipping", {"clip_norm": 1.0}),
            ("set_tensorboard", {"log_dir": "log", "app_name": "app"}),
            ("get_train_summary", {"tag": "Loss"}),
            ("get_validation_summary", {"tag": "Loss"}),
        )
    },
    "TorchEstimator": Call(TorchEstimator, {"settings": torch_estimator()._settings}),
    "KerasEstimator": Call(KerasEstimator, {"definition": KerasModel(creator=steps)}),
}
