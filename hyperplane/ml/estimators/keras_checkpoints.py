"""Checkpoints of a Keras model: after epochs and steps, with the optimizer and the callbacks."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hyperplane.core.optional import need
from hyperplane.ml.estimators.keras_epoch_steps import RankVariables, skip_steps
from hyperplane.ml.estimators.keras_model import load_weights, save_weights
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: Names in the history, for each epoch: the steps so far, the learning rate, the time at its end,
#: and whether there are values of a validation.
STEP, RATE, TIME, VALIDATED = "_step", "_rate", "_time", "_validated"
_NAME = re.compile(r"epoch-(\d{5,})(?:-step-(\d{5,}))?\.weights\.h5")
#: Text, group and array in the HDF5 file that are not weights. An attribute of HDF5 is too short
#: for the history of many epochs.
_TEXT, _GROUP, _RANKS = "hyperplane_training", "hyperplane_callbacks", "hyperplane_ranks"
#: Number of checkpoints that are kept, if not all are.
_KEPT = 2
#: Where a checkpoint was written: after an epoch, and after steps of the next one.
Position = tuple[int, int]


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

    def find_positions(self) -> list[Position]:
        """Return after which epochs and steps there are checkpoints, in order."""
        names = map(_NAME.fullmatch, self._files.list_files(self._path))
        return sorted((int(name[1]), int(name[2] or 0)) for name in names if name)

    def find_newest_fit(self) -> str | None:
        """Return the name of the newest folder of a call of ``fit`` in this folder."""
        names = [name.rpartition("/") for name in self._files.list_files(self._path)]
        folders = [folder for folder, _, name in names if folder and _NAME.fullmatch(name)]
        return max(folders, default=None)

    def write(self, position: Position, data: bytes) -> None:
        """Write a checkpoint, completely or not at all."""
        self._files.put(f"{self._path}/{_make_name(position)}", data)

    def read(self, position: Position) -> bytes | None:
        """Return a checkpoint; None if there is none."""
        return self._files.get(f"{self._path}/{_make_name(position)}")

    def read_newest(self) -> bytes:
        """Return the newest checkpoint that is not damaged; empty if there is none.

        Damaged files are reported on standard error.
        """
        for position in reversed(self.find_positions()):
            data = self.read(position)
            try:
                read_progress(data or b"")
            except (OSError, KeyError, ValueError) as error:
                name = f"{self._path}/{_make_name(position)}"
                text = f"the checkpoint {name} is damaged ({error}); the one before is used"
                sys.stderr.write(f"{text}, or training begins again\n")
                continue
            return data or b""
        return b""

    def remove(self, positions: Sequence[Position]) -> None:
        """Remove checkpoints."""
        self._files.remove([f"{self._path}/{_make_name(each)}" for each in positions])


def _make_name(position: Position) -> str:
    epoch, step = position
    return f"epoch-{epoch:05d}{f'-step-{step:05d}' if step else ''}.weights.h5"


@dataclass
class FitProgress:
    """How far a call of ``fit`` has come, in one rank.

    Parameters
    ----------
    is_writer : bool
        Whether this rank writes the checkpoints.
    keeps_all : bool
        Whether to keep all checkpoints.
    interval : int
        Steps after which there are checkpoints within an epoch; 0 for none.
    checkpoint : bytes, optional
        Where to continue.
    history : dict
        Values of each epoch by name.
    """

    is_writer: bool
    keeps_all: bool
    interval: int = 0
    checkpoint: bytes | None = None
    history: dict[str, list[float]] = field(default_factory=dict)
    #: Epochs that are finished, steps of the next one, and steps of all epochs.
    epoch: int = 0
    step: int = 0
    steps: int = 0

    def resume(self, checkpoint: bytes) -> bool:
        """Continue from a checkpoint; return whether its training was stopped."""
        state = read_progress(checkpoint)
        self.checkpoint, self.history, self.epoch = checkpoint, state["history"], state["epoch"]
        self.step, self.steps = state.get("step", 0), state.get("steps", 0)
        return bool(state["stopped"])


def read_progress(data: bytes) -> dict[str, Any]:
    """Return epoch, step, history and whether training was stopped, from a checkpoint."""
    h5py: Any = need("h5py", "tensorflow")
    with h5py.File(io.BytesIO(data)) as file:
        state: dict[str, Any] = json.loads(file[_TEXT][()])
        return state


def encode_state(
    model: Any,
    callbacks: Sequence[Any],
    progress: FitProgress,
    ranks: np.ndarray | None = None,
    logs: Sequence[str] = (),
) -> bytes:
    """Return a checkpoint: weights, optimizer, history and the attributes of callbacks.

    Within an epoch, ``ranks`` are the rows of :class:`RankVariables`, which end with values of the
    names ``logs``.
    """
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
        text = {
            "epoch": progress.epoch,
            "step": progress.step,
            "steps": progress.steps,
            "history": progress.history,
            "callbacks": states,
            "stopped": bool(model.stop_training),
            "logs": list(logs),
        }
        if ranks is not None:
            file[_RANKS] = ranks
        file[_TEXT] = json.dumps(text)
    return buffer.getvalue()


def restore_rank(variables: RankVariables, data: bytes) -> dict[str, float]:
    """Set what ranks do not share from a checkpoint within an epoch; return the last values."""
    h5py: Any = need("h5py", "tensorflow")
    with h5py.File(io.BytesIO(data)) as file:
        return variables.restore(file[_RANKS][()], read_progress(data)["logs"])


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
    folder: CheckpointFolder,
    callbacks: Sequence[Any],
    progress: FitProgress,
    variables: RankVariables,
) -> Any:
    """Return the callback that restores the state of the others, and writes checkpoints.

    It must be the last one: the others change their attributes at the same events.
    """
    keras: Any = need("keras", "tensorflow")

    class Checkpoints(keras.callbacks.Callback):  # type: ignore[misc]
        _logs: dict[str, float] = {}  # noqa: RUF012 - replaced, never changed
        _before = progress.step

        def on_train_begin(self, logs: Any = None) -> None:
            if progress.checkpoint is None:
                return
            # The others have reset their attributes.
            restore_state(self.model, progress.checkpoint, callbacks)
            if progress.step:
                skip_steps(self.model, progress.step, lambda: self._logs)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if self._before and progress.checkpoint is not None:
                # Within an epoch the others have begun it before, and Keras resets the metrics.
                restore_state(self.model, progress.checkpoint, callbacks)
                self._logs = restore_rank(variables, progress.checkpoint)
                self._before = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            taken = batch + 1 - progress.step  # several with steps_per_execution
            before, progress.step = progress.steps, batch + 1
            progress.steps += taken
            every = progress.interval
            if not every or before // every == progress.steps // every or self.model.stop_training:
                return
            values = {
                name: float(each) for name, each in (logs or {}).items() if np.ndim(each) == 0
            }
            self._write(variables.gather(values), list(values))  # all ranks gather

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
            progress.epoch, progress.step = epoch + 1, 0
            self._write()

        def _write(self, rows: Any = None, names: Sequence[str] = ()) -> None:
            if not progress.is_writer:
                return
            data = encode_state(self.model, callbacks, progress, rows, names)
            folder.write((progress.epoch, progress.step), data)
            if not progress.keeps_all:
                folder.remove(folder.find_positions()[:-_KEPT])

    return Checkpoints()
