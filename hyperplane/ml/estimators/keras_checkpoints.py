"""Checkpoints of a Keras model: after each epoch, with the optimizer and the callbacks."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.ml.estimators.keras_model import load_weights, save_weights
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: Names in the history, for each epoch: the steps so far, the learning rate, the time at its end,
#: and whether there are values of a validation.
STEP, RATE, TIME, VALIDATED = "_step", "_rate", "_time", "_validated"
_NAME = re.compile(r"epoch-(\d{5,})\.weights\.h5")
#: Text in the HDF5 file, and group of its arrays, that are not weights. An attribute of HDF5 is too
#: short for the history of many epochs.
_TEXT, _GROUP = "hyperplane_training", "hyperplane_callbacks"


class CheckpointFolder:
    """Checkpoints in a folder or URL: files of HDF5 that ``Model.load_weights`` reads.

    Parameters
    ----------
    url : str
        Folder that all workers can use.
    """

    def __init__(self, url: str) -> None:
        target = resolve_target(url, None)
        self._files, self._path = StoreFiles(target.store), target.path

    def find_epochs(self) -> list[int]:
        """Return the numbers of epochs after which there is a checkpoint, in order."""
        names = map(_NAME.fullmatch, self._files.list_files(self._path))
        return sorted(int(name[1]) for name in names if name)

    def find_newest_fit(self) -> str | None:
        """Return the name of the newest folder of a call of ``fit`` in this folder."""
        names = [name.rpartition("/") for name in self._files.list_files(self._path)]
        folders = [folder for folder, _, name in names if folder and _NAME.fullmatch(name)]
        return max(folders, default=None)

    def write(self, epoch: int, data: bytes) -> None:
        """Write the checkpoint after an epoch, completely or not at all."""
        self._files.put(f"{self._path}/{_make_name(epoch)}", data)

    def read(self, epoch: int) -> bytes | None:
        """Return the checkpoint after an epoch; None if there is none."""
        return self._files.get(f"{self._path}/{_make_name(epoch)}")

    def remove(self, epochs: Sequence[int]) -> None:
        """Remove checkpoints."""
        self._files.remove([f"{self._path}/{_make_name(epoch)}" for epoch in epochs])


def _make_name(epoch: int) -> str:
    return f"epoch-{epoch:05d}.weights.h5"


@dataclass
class FitProgress:
    """How far a call of ``fit`` has come, in one rank.

    Parameters
    ----------
    is_writer : bool
        Whether this rank writes the checkpoints.
    keeps_all : bool
        Whether to keep those of earlier epochs.
    checkpoint : bytes, optional
        Where to continue.
    history : dict
        Values of each epoch by name.
    """

    is_writer: bool
    keeps_all: bool
    checkpoint: bytes | None = None
    history: dict[str, list[float]] = field(default_factory=dict)


def read_progress(data: bytes) -> dict[str, Any]:
    """Return epoch, history and whether training was stopped, from a checkpoint."""
    h5py: Any = need("h5py", "tensorflow")
    with h5py.File(io.BytesIO(data)) as file:
        state: dict[str, Any] = json.loads(file[_TEXT][()])
        return state


def encode_state(model: Any, epoch: int, callbacks: Sequence[Any], history: Any) -> bytes:
    """Return a checkpoint: weights, optimizer, history and the attributes of callbacks."""
    h5py: Any = need("h5py", "tensorflow")
    buffer = io.BytesIO(save_weights(model))
    with h5py.File(buffer, "r+") as file:
        states = []
        for number, callback in enumerate(callbacks):
            plain, arrays = _divide_attributes(callback)
            states.append({"class": type(callback).__name__, "attributes": plain})
            for name, values in arrays.items():
                for place, value in enumerate(values):
                    file[f"{_GROUP}/{number}/{name}/{place}"] = value
        stopped = bool(model.stop_training)
        text = {"epoch": epoch, "history": history, "callbacks": states, "stopped": stopped}
        file[_TEXT] = json.dumps(text)
    return buffer.getvalue()


def restore_state(model: Any, data: bytes, callbacks: Sequence[Any]) -> None:
    """Set weights, optimizer and callbacks from a checkpoint."""
    h5py: Any = need("h5py", "tensorflow")
    load_weights(model, data)
    state = read_progress(data)
    with h5py.File(io.BytesIO(data)) as file:
        for number, (callback, saved) in enumerate(
            zip(callbacks, state["callbacks"], strict=False)
        ):
            if saved["class"] != type(callback).__name__:
                continue
            callback.__dict__.update(saved["attributes"])
            for name, group in file.get(f"{_GROUP}/{number}", {}).items():
                values = [group[str(place)][()] for place in range(len(group))]
                setattr(callback, name, values)


def _divide_attributes(callback: Any) -> tuple[dict[str, Any], dict[str, list[np.ndarray]]]:
    """Return the attributes of a callback that change in training: plain values, and weights."""
    plain, arrays = {}, {}
    for name, value in vars(callback).items():
        if value is None or isinstance(value, bool | int | float | str):
            plain[name] = value
        elif isinstance(value, np.bool_ | np.integer | np.floating):
            plain[name] = value.item()
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(each, np.ndarray) and each.dtype.kind in "iufb" for each in value)
        ):
            arrays[name] = value
    return plain, arrays


def make_checkpoint_callback(
    folder: CheckpointFolder, callbacks: Sequence[Any], progress: FitProgress, every: int
) -> Any:
    """Return the callback that restores the state of the others, and writes checkpoints.

    It must be the last one: the others change their attributes at the same events.
    """
    keras: Any = need("keras", "tensorflow")

    class Checkpoints(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            if progress.checkpoint is not None:  # the others have reset their attributes
                restore_state(self.model, progress.checkpoint, callbacks)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            step = int(self.model.optimizer.iterations.numpy())
            rate = float(self.model.optimizer.learning_rate)
            has_validation = any(name.startswith("val_") for name in logs or {})
            values = {
                **(logs or {}), STEP: step, RATE: rate, TIME: time.time(),
                VALIDATED: has_validation,
            }  # fmt: skip
            for name, value in values.items():
                progress.history.setdefault(name, []).append(float(value))
            is_last = self.model.stop_training or epoch + 1 == self.params["epochs"]
            if progress.is_writer and ((epoch + 1) % every == 0 or is_last):
                data = encode_state(self.model, epoch + 1, callbacks, progress.history)
                folder.write(epoch + 1, data)
                if not progress.keeps_all:
                    folder.remove([each for each in folder.find_epochs() if each < epoch])

    return Checkpoints()
