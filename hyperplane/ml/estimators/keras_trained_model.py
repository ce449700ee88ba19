"""Model, files, gradient clipping and summaries of an estimator of Keras."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.ml.estimators import keras_files
from hyperplane.ml.estimators.keras_checkpoints import RATE, STEP, TIME, VALIDATED, CheckpointFolder
from hyperplane.ml.estimators.keras_model import (
    KerasModel,
    compute_fingerprint,
    load_weights,
    pack_model,
    save_weights,
)
from hyperplane.ml.estimators.network_estimator import NetworkEstimator, accept_checkpoint

#: Attributes of optimizers that clip gradients, by the number of limits.
_CLIPPING = {0: {}, 1: {"global_clipnorm": 0}, 2: {"clipvalue": 1}}
_NO_CLIPPING = {"clipnorm": None, "clipvalue": None, "global_clipnorm": None}


class TrainedKerasModel(NetworkEstimator):
    """The model of an estimator in this process, and what was recorded of its training."""

    _tags = ("Loss", "LearningRate")

    def __init__(
        self, definition: KerasModel, model: Any, ranks: int | None, workers_per_node: int | None
    ) -> None:
        super().__init__(ranks, workers_per_node)
        self._definition, self._model = definition, model
        self._fingerprint = 0
        if definition.creator is None and model is not None:
            self._fingerprint = compute_fingerprint(model)

    def get_model(self) -> Any:
        """Return the trained Keras model, in this process."""
        if self._model is None:
            if self._definition.creator is None and self._definition.archive is None:
                check([Fault("model_creator", "nothing", "a model", "call load(path) first")])
            self._model = self._definition.build()
        return self._model

    @accept_checkpoint("path")
    def save(self, path: str | os.PathLike[str]) -> str:
        """Save the model with the state of its optimizer; return the path.

        The suffix ``.h5`` means the older format of Keras, without the state of the optimizer, and
        ``.weights.h5`` only the weights.
        """
        check(keras_files.find_path_faults("path", path))
        keras_files.write_file(path, keras_files.encode_model(self.get_model(), path))
        return os.fspath(path)

    @accept_checkpoint("path")
    def load(self, path: str | os.PathLike[str]) -> Self:
        """Load a file of :meth:`save`; return this object.

        Without a model and a model creator, the whole model is loaded; otherwise only the weights,
        and the state of the optimizer if the file has it.
        """
        check(keras_files.find_path_faults("path", path))
        data = keras_files.read_file(path)
        if self._definition.creator is None and self._model is None:
            model = keras_files.decode_model(data, os.fspath(path))
            if model is None or getattr(model, "optimizer", None) is None:
                given = f"{os.fspath(path)!r} without loss and optimizer"
                allowed = "a compiled model, because there is no model_creator; save it as .keras"
                check([Fault("path", given, allowed)])
            self._pack(model)
        else:
            keras_files.extract_weights(self.get_model(), data, os.fspath(path))
        self._keep_weights()
        return self

    def save_keras_model(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Save the whole model, as :meth:`save` does."""
        check(keras_files.find_path_faults("path", path))
        data = keras_files.encode_model(self.get_model(), path)
        keras_files.write_file(path, data, overwrite)

    def save_keras_weights(
        self, filepath: str | os.PathLike[str], overwrite: bool = True, save_format: Any = None
    ) -> None:
        """Save the weights as HDF5, the format of Keras 3; ``save_format`` has no effect."""
        check(keras_files.find_path_faults("filepath", filepath))
        self.get_model()
        data = save_weights(self._model)
        keras_files.write_file(filepath, data, overwrite)

    def load_keras_weights(self, filepath: str | os.PathLike[str], by_name: bool = False) -> None:
        """Load weights from a file of Keras; ``by_name`` has no effect in Keras 3."""
        check(keras_files.find_path_faults("filepath", filepath))
        data = keras_files.read_file(filepath)
        keras_files.extract_weights(self.get_model(), data, os.fspath(filepath))
        self._keep_weights()

    save_weights, load_weights = save_keras_weights, load_keras_weights

    def load_orca_checkpoint(
        self,
        path: str | os.PathLike[str],
        version: int | None = None,
        *,
        step: int | None = None,
    ) -> Self:
        """Load the checkpoint after epoch ``version``, or the newest.

        With ``step`` it is the one of ``SeveralIteration`` after as many steps of the next epoch.
        ``path`` is the ``model_dir``, or the folder in it of one call of ``fit``.
        """
        faults = list(keras_files.find_path_faults("path", path))
        for name, value in (("version", version), ("step", step)):
            faults += [] if value is None else find_count_faults(name, value, 0)
        if step is not None and version is None:
            faults.append(Fault("version", "None", "the number of finished epochs, with step"))
        check(faults)
        folder = CheckpointFolder(os.fspath(path))
        newest = None if folder.find_positions() else folder.find_newest_fit()
        if newest is not None:
            folder = CheckpointFolder(f"{os.fspath(path).rstrip('/')}/{newest}")
        found = folder.find_positions()
        wanted = found[-1] if found and version is None else (version or 0, step or 0)
        if wanted not in found:
            listed = ", ".join(f"{each} (step {n})" if n else str(each) for each, n in found)
            given = f"{os.fspath(path)!r} with checkpoints after the epochs: {listed or 'none'}"
            allowed = "a folder with the checkpoint of the version"
            check([Fault("path", given, allowed)])
        load_weights(self.get_model(), folder.read(wanted) or b"")
        self._keep_weights()
        return self

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:  # noqa: A002
        """Limit each element of the averaged gradients to -``max`` to ``max``."""
        are_numbers = all(isinstance(each, int | float) for each in (min, max))
        if are_numbers and (min != -max or max <= 0):
            allowed = "limits of the form -c and c, as Keras has them"
            check([Fault("min, max", f"{min!r}, {max!r}", allowed)])
        super().set_constant_gradient_clipping(min, max)
        self._clip()

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Limit the norm of all averaged gradients together."""
        super().set_l2_norm_gradient_clipping(clip_norm)
        self._clip()

    def clear_gradient_clipping(self) -> None:
        """Remove limits of gradients."""
        super().clear_gradient_clipping()
        self._clip()

    def _clip(self) -> None:
        chosen = _CLIPPING[len(self._clipping)]
        clipping = {
            **_NO_CLIPPING,
            **{name: self._clipping[place] for name, place in chosen.items()},
        }
        self._definition = replace(self._definition, clipping=clipping)
        if self._model is not None:
            for name, value in clipping.items():
                setattr(self._model.optimizer, name, value)

    def _record_epochs(self, history: Mapping[str, Sequence[float]]) -> None:
        """Keep the values of each epoch by tag, for the summaries."""
        epochs = list(
            zip(*(history.get(name, ()) for name in (STEP, TIME, VALIDATED)), strict=True)
        )
        for name, values in history.items():
            if name in (STEP, TIME, VALIDATED):
                continue
            is_validation = name.startswith("val_")
            summary = self._validation if is_validation else self._train
            short = name.removeprefix("val_")
            tag = {"loss": "Loss", RATE: "LearningRate"}.get(short, short)
            chosen = [each for each in epochs if each[2] or not is_validation]
            for (step, moment, _), value in zip(chosen, values, strict=False):
                summary.setdefault(tag, []).append((int(step), value, moment))

    def _refresh(self) -> KerasModel:
        """Return the definition, with the changes that the user made to a model that was passed."""
        definition = self._definition
        if definition.creator is None and definition.archive is None:
            check([Fault("model_creator", "nothing", "a model", "call load(path) first")])
        if self._fingerprint and compute_fingerprint(self._model) != self._fingerprint:
            self._pack(self._model)
        return self._definition

    def _pack(self, model: Any) -> None:
        """Use a model of this process in the next calls."""
        mine = self._definition
        self._definition = replace(pack_model(model), config=mine.config, clipping=mine.clipping)
        self._model, self._fingerprint = model, compute_fingerprint(model)

    def _set_weights(self, weights: bytes, inputs: Any) -> None:
        self._definition = replace(self._definition, weights=weights, example=inputs)
        if self._model is not None:
            optimizer = self._model.optimizer
            if not self._model.built:
                self._model = self._definition.build()
                return
            if not optimizer.built:
                optimizer.build(self._model.trainable_variables)
            load_weights(self._model, weights)
            self._update_fingerprint()

    def _keep_weights(self) -> None:
        """Use the weights of the model in this process in the next call."""
        self._definition = self._definition.with_weights(save_weights(self._model))
        self._update_fingerprint()

    def _update_fingerprint(self) -> None:
        if self._fingerprint:
            self._fingerprint = compute_fingerprint(self._model)
