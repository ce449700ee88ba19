"""Estimator of a PyTorch model, in the client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import cloudpickle

from hyperplane.core.argument_checks import find_count_faults, find_flag_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call
from hyperplane.ml.estimators.checkpoint_folders import temporary_checkpoints
from hyperplane.ml.estimators.network_estimator import (
    NetworkEstimator,
    accept_checkpoint,
    divide_batch_size,
)
from hyperplane.ml.estimators.network_metrics import create_metrics
from hyperplane.ml.estimators.partition_reader import find_name_faults
from hyperplane.ml.estimators.spark_data import (
    is_spark_frame,
    read_spark_frame,
    write_spark_frame,
)
from hyperplane.ml.estimators.torch_batches import is_loader
from hyperplane.ml.estimators.torch_callbacks import find_callback_faults
from hyperplane.ml.estimators.torch_network import (
    TorchProgram,
    create_network,
    find_checkpoint_file,
)
from hyperplane.ml.estimators.torch_prediction import predict_data
from hyperplane.ml.estimators.torch_program import (
    run_evaluation,
    run_loader_evaluation,
    run_loader_training,
    run_training,
)
from hyperplane.ml.estimators.torch_settings import (
    TorchSettings,
    find_data_faults,
    find_option_faults,
    find_output_faults,
    find_path_faults,
    is_checkpoint,
    make_checkpoint_folder,
    read_weights,
    warn_unused,
    warn_unused_options,
    write_object,
)
from hyperplane.ml.estimators.training_data import (
    find_training_data_faults,
    join_shares,
    prepare_training_data,
)
from hyperplane.ml.estimators.triggers import find_trigger_faults


@check_call
class TorchEstimator(NetworkEstimator):
    """A PyTorch model; :meth:`Estimator.from_torch` creates it."""

    def __init__(
        self, settings: Any, ranks: int | None = None, workers_per_node: int | None = None
    ) -> None:
        if not isinstance(settings, TorchSettings):
            given = f"an object of type {type(settings).__name__}"
            check([Fault("settings", given, "call Estimator.from_torch")])
        super().__init__(ranks, workers_per_node)
        self._settings = settings
        self._state = settings.state

    @check_call
    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        profile: bool = False,
        reduce_results: bool = True,
        info: Any = None,
        feature_cols: str | Sequence[str] | None = None,
        label_cols: str | Sequence[str] | None = None,
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        callbacks: Any = None,
        max_steps: int | None = None,
        shuffle: bool = False,
    ) -> list[dict[str, Any]]:
        """Train the model; a further call continues with the same optimizer and scheduler.

        Each rank trains on its rows, and gradients are averaged over the rows of all ranks. After
        the loss of a rank, all start again from the checkpoint of the last epoch.

        Parameters
        ----------
        data : object
            XShards of ``{'x': ..., 'y': ...}`` or of DataFrames, a dataframe of Dask, pandas or
            Spark, arrays of Dask or NumPy, or a Dataset or DataLoader of PyTorch or a function
            ``data(config, batch_size)`` that creates one.
        epochs : int
            Number of epochs.
        batch_size : int
            Rows of a step, of all ranks together or of each rank: see ``backend`` of
            :meth:`Estimator.from_torch`.
        feature_cols, label_cols : str or list of str, optional
            Columns of tables; each is one input or label.
        validation_data : object, optional
            As ``data``; evaluated after each epoch.
        checkpoint_trigger : EveryEpoch or SeveralIteration, optional
            ``SeveralIteration(n)`` adds a checkpoint every n steps to those after each epoch.
        max_steps : int, optional
            Number of steps instead of ``epochs``.
        shuffle : bool
            Whether the rows of each rank are permuted for each epoch.
        callbacks : list, optional
            Callbacks of ``hyperplane.orca.learn.pytorch.callbacks``.
        profile, reduce_results, info
            Accepted for compatibility, with a warning if they are set.

        Returns
        -------
        list of dict
            ``epoch``, ``num_samples``, ``train_loss``, ``val_loss`` and metrics of each epoch.

        Raises
        ------
        RequestError
            With every fault of the arguments; nothing was started.
        GangFailed
            If a rank failed, and no restart is left or the error would occur again.
        """
        client, ranks, client_faults = self._find_client()
        faults = [
            *client_faults,
            *find_count_faults("epochs", epochs),
            *find_count_faults("batch_size", batch_size),
            *find_flag_faults(shuffle=shuffle),
            *find_data_faults("data", data, feature_cols, label_cols),
            *find_option_faults(profile, reduce_results, info),
        ]
        if max_steps is not None:
            faults += find_count_faults("max_steps", max_steps)
        if validation_data is not None:
            more = find_data_faults("validation_data", validation_data, feature_cols, label_cols)
            faults += [fault for fault in more if fault not in faults]  # of columns
        faults += find_trigger_faults(checkpoint_trigger)
        for name in ("optimizer", "loss"):
            if getattr(self._settings, name) is None:
                faults.append(Fault(name, "nothing", "a value for fit; give it to from_torch"))
        check(faults + find_callback_faults(callbacks))
        warn_unused_options(profile, reduce_results, info, data, validation_data)
        columns = (feature_cols, label_cols)
        program, partitions = self._prepare(client, ranks, data, batch_size, *columns)
        program = replace(
            program,
            epochs=int(epochs),
            shuffle=shuffle,
            clipping=self._clipping,
            max_steps=max_steps,
            interval=getattr(checkpoint_trigger, "interval", 0),
            callbacks=tuple(callbacks or ()),
        )
        if validation_data is not None:
            other, more = self._prepare(
                client, ranks, validation_data, batch_size, *columns, "validation_data"
            )
            if (other.loader is None) != (program.loader is None):
                check([Fault("validation_data", "", "arrays or a table if data is one")])
            program = replace(program, validation_rows=other.rows, validation_loader=other.loader)
            partitions = join_shares(partitions, more, ranks)
        function = run_loader_training if program.loader is not None else run_training
        parent = self._settings.model_dir
        lasting = None if parent is None else nullcontext(make_checkpoint_folder(parent))
        with lasting or temporary_checkpoints(client) as folder:
            results = self._run_gang(
                client, function, ranks, program, data=partitions or None, checkpoints=folder,
                max_retries=self._settings.max_retries, logs=self._settings.logs,
            )  # fmt: skip
        result = results[0]
        history, steps = result.pop("history"), result.pop("steps")
        self._state = result
        self._record(steps, history)
        self._check_losses([epoch["train_loss"] for epoch in history])
        return list(history)

    @check_call
    def evaluate(
        self,
        data: Any,
        batch_size: int = 32,
        num_steps: int | None = None,
        profile: bool = False,
        reduce_results: bool = True,
        info: Any = None,
        feature_cols: str | Sequence[str] | None = None,
        label_cols: str | Sequence[str] | None = None,
        callbacks: Any = None,
    ) -> dict[str, Any]:
        """Return ``num_samples``, ``val_loss`` and the metrics over the rows of all ranks.

        ``batch_size`` is the number of rows of a step of each rank, ``num_steps`` the number of
        steps of each rank; the other arguments are those of :meth:`fit`. ``val_loss`` is left out
        if the estimator has no loss.
        """
        client, ranks, client_faults = self._find_client()
        faults = [
            *client_faults,
            *find_count_faults("batch_size", batch_size),
            *find_data_faults("data", data, feature_cols, label_cols),
            *find_option_faults(profile, reduce_results, info),
            *find_callback_faults(callbacks),
        ]
        if num_steps is not None:
            faults += find_count_faults("num_steps", num_steps)
        check(faults)
        warn_unused_options(profile, reduce_results, info, data)
        program, partitions = self._prepare(
            client, ranks, data, batch_size, feature_cols, label_cols, is_global=False
        )
        program = replace(program, num_steps=num_steps, callbacks=tuple(callbacks or ()))
        function = run_evaluation if program.loader is None else run_loader_evaluation
        results = self._run_gang(
            client, function, ranks, program, data=partitions or None,
            max_retries=self._settings.max_retries, logs=self._settings.logs,
        )  # fmt: skip
        found: dict[str, Any] = results[0]
        if self._settings.loss is None:
            del found["val_loss"]
        return found

    @check_call
    def predict(
        self,
        data: Any,
        batch_size: int = 32,
        feature_cols: str | Sequence[str] | None = None,
        output_cols: Any = None,
        profile: bool = False,
        callbacks: Any = None,
    ) -> Any:
        """Predict each partition on the worker that has it.

        Parameters
        ----------
        data : object
            XShards, a Dask dataframe, Dask arrays, NumPy arrays, a pandas DataFrame, or a dataframe
            of Spark.
        batch_size : int
            Rows of a call of the model.
        feature_cols : str or list of str, optional
            Columns of tables; each is one input.
        output_cols : str or list of str, optional
            Names of the outputs of the model, in XShards and in columns of tables.

        Returns
        -------
        XShards, Dask dataframe, Dask array, NumPy array, pandas DataFrame or Spark dataframe
            Lazy for the first three: XShards of ``{'prediction': array}``; a dataframe with the
            column ``prediction``, the same partitions and index. Several outputs are
            ``output_0``, ``output_1`` and so on, and tuples of arrays.
        """
        check(
            [
                *find_count_faults("batch_size", batch_size),
                *find_training_data_faults(data, feature_cols, needs_labels=False),
                *find_name_faults("output_cols", output_cols),
                *find_output_faults(data, output_cols),
                *find_option_faults(profile),
            ]
        )
        has_none = callbacks is None or (isinstance(callbacks, list | tuple) and not callbacks)
        warn_unused({"profile": profile is not False, "callbacks": not has_none})
        model, rows = self.get_model(), read_spark_frame(data)
        found = predict_data(model, rows, int(batch_size), feature_cols, output_cols)
        return write_spark_frame(found) if is_spark_frame(data) else found

    def get_model(self) -> Any:
        """Return the model with the trained weights, on the CPU."""
        settings = self._settings
        parts = {"model": settings.model, "optimizer": None, "loss": None, "scheduler": None}
        network = cloudpickle.dumps(parts)
        model = create_network(network, settings.config, settings.seed)[0].to("cpu")
        if self._state.get("model"):
            model.load_state_dict(self._state["model"])
        return model

    def get_state_dict(self) -> dict[str, Any]:
        """Return the states of model, optimizer and scheduler, and the epochs and steps."""
        start = {"model": self.get_model().state_dict(), "epoch": 0, "step": 0}
        return {**start, **self._state}

    @accept_checkpoint("model_path")
    def save(self, model_path: str | os.PathLike[str], entire: bool = False) -> str:
        """Write the weights, or the ``entire`` model; return the path.

        ``torch.load`` reads both; :meth:`load` reads weights.
        """
        check([*find_path_faults("model_path", model_path), *find_flag_faults(entire=entire)])
        model = self.get_model()
        return write_object(model if entire else model.state_dict(), model_path)

    @accept_checkpoint("model_path")
    def load(self, model_path: str | os.PathLike[str]) -> None:
        """Read weights that :meth:`save` has written, or those of a checkpoint."""
        state = read_weights("model_path", model_path)
        state = state["model"] if is_checkpoint(state) else state
        self._check_weights("model_path", state)
        self._state = {**self._state, "model": state}

    def save_checkpoint(self, model_path: str | os.PathLike[str]) -> str:
        """Write the state of :meth:`get_state_dict`; return the path."""
        check(find_path_faults("model_path", model_path))
        return write_object(self.get_state_dict(), model_path)

    def load_checkpoint(self, model_path: str | os.PathLike[str]) -> None:
        """Read a checkpoint; :meth:`fit` continues from it."""
        state = read_weights("model_path", model_path)
        if not is_checkpoint(state):
            allowed = "a checkpoint of save_checkpoint or fit; use load for weights"
            check([Fault("model_path", str(model_path), allowed)])
        self._check_weights("model_path", state["model"])
        self._state = {key: state[key] for key in state if key not in ("history", "steps")}

    def load_orca_checkpoint(
        self, path: str | os.PathLike[str], version: int | None = None, prefix: Any = None
    ) -> None:
        """Read a checkpoint that :meth:`fit` has written to ``model_dir``.

        Parameters
        ----------
        path : str or path
            ``model_dir``, or the folder of one call of ``fit`` in it.
        version : int, optional
            Number of steps of the checkpoint; by default the last one of the last call.
        prefix : object, optional
            Accepted for compatibility, with a warning if it is set.
        """
        faults = find_path_faults("path", path)
        if version is not None:
            faults += find_count_faults("version", version)
        check(faults)
        warn_unused({"prefix": prefix is not None})
        file = find_checkpoint_file(path, version)
        if file is None:
            wanted = "checkpoints" if version is None else f"a checkpoint of step {version}"
            check([Fault("path", str(path), f"a folder with {wanted}")])
        self.load_checkpoint(str(file))

    def _check_weights(self, where: str, state: Any) -> None:
        try:
            self.get_model().load_state_dict(state)
        except (RuntimeError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:300]
            check([Fault(where, type(state).__name__, f"weights of the model: {reason}")])

    def _prepare(
        self,
        client: Any,
        ranks: int,
        data: Any,
        batch_size: int,
        feature_cols: Any,
        label_cols: Any,
        where: str = "data",
        is_global: bool | None = None,
    ) -> tuple[TorchProgram, list[Any]]:
        """Return the program of ranks and their partitions, which a loader does not have."""
        settings = self._settings
        torch = need("torch", extra="torch")
        size: Any = batch_size
        if isinstance(data, torch.utils.data.DataLoader):
            size = data.batch_size
        shared = settings.is_global if is_global is None else is_global
        names = ("model", "optimizer", "loss", "scheduler")
        network = {name: getattr(settings, name) for name in names}
        program = TorchProgram(
            network=cloudpickle.dumps(network),
            config=settings.config,
            metrics=create_metrics(settings.metrics),
            state=self._state,
            batch_size=divide_batch_size(size, ranks, shared),
            seed=settings.seed,
            step_freq=settings.step_freq,
            initialize=settings.initialize,
        )
        if is_loader(data):
            return replace(program, loader=data), []
        prepared = prepare_training_data(client, data, ranks, feature_cols, label_cols, where=where)
        pieces = len(prepared.partitions) // ranks
        return replace(program, rows=prepared.rows, pieces=pieces), prepared.partitions
