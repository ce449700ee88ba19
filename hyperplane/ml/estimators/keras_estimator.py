"""``KerasEstimator``: a Keras model that the workers of a cluster train together."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import cloudpickle
from dask.base import is_dask_collection

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import is_installed, need
from hyperplane.core.public_calls import check_call
from hyperplane.ml.estimators.checkpoint_folders import find_folder_faults, temporary_checkpoints
from hyperplane.ml.estimators.keras_model import KerasModel, find_loss_fault
from hyperplane.ml.estimators.keras_prediction import KerasPartitionPredictor, predict_data
from hyperplane.ml.estimators.keras_ranks import (
    ENVIRONMENT,
    EvaluateTask,
    FitOutcome,
    FitTask,
    evaluate_rank,
    fit_rank,
)
from hyperplane.ml.estimators.keras_requests import (
    find_batch_faults,
    find_config_faults,
    find_data_faults,
    find_fit_faults,
    find_verbose_faults,
    prepare_source,
    warn_unused,
)
from hyperplane.ml.estimators.keras_trained_model import TrainedKerasModel
from hyperplane.ml.estimators.partition_reader import FeatureReader, find_name_faults
from hyperplane.ml.estimators.training_data import join_shares
from hyperplane.ml.shards.xshards import XShards


@check_call
class KerasEstimator(TrainedKerasModel):
    """A Keras model that is trained on the workers of a cluster.

    Create it with :meth:`Estimator.from_keras`.

    Parameters
    ----------
    definition : KerasModel
        How to build the model.
    model : keras.Model, optional
        The model of the user; training changes its weights.
    ranks : int, optional
        Number of processes that train; by default one for each worker process.
    workers_per_node : int, optional
        Number of them on each host.
    model_dir : str or path, optional
        Folder or URL of checkpoints that all workers can use.
    max_retries : int
        Restarts after the loss of a process.
    verbose : bool
        Whether to print the output of the processes.
    """

    def __init__(
        self,
        definition: Any,
        model: Any = None,
        *,
        ranks: int | None = None,
        workers_per_node: int | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        max_retries: int = 3,
        verbose: bool = False,
    ) -> None:
        if not isinstance(definition, KerasModel):
            given = f"an object of type {type(definition).__name__}"
            check([Fault("definition", given, "call Estimator.from_keras")])
        super().__init__(definition, model, ranks, workers_per_node)
        self._model_dir, self._max_retries, self._verbose = model_dir, max_retries, verbose

    @check_call
    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        *,
        verbose: int | str = 1,
        callbacks: Sequence[Any] | None = None,
        validation_data: Any = None,
        class_weight: Mapping[int, float] | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_freq: int | Sequence[int] = 1,
        data_config: Mapping[str, Any] | None = None,
        feature_cols: str | Sequence[str] | None = None,
        label_cols: str | Sequence[str] | None = None,
        session_config: Any = None,
        checkpoint_trigger: Any = None,
        auto_shard_files: bool | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> dict[str, list[float]]:
        """Train the model on all ranks.

        Parameters
        ----------
        data : XShards, Dask collection, arrays, DataFrame, tf.data.Dataset or function
            Rows with labels; a function ``f(config, batch_size)`` returns batches of a
            ``tf.data.Dataset``.
        epochs, initial_epoch : int
            As in Keras.
        batch_size : int
            Rows of a step on all ranks together.
        verbose, class_weight, steps_per_epoch, validation_steps, validation_freq
            As in Keras.
        callbacks : list of keras.callbacks.Callback, optional
            All ranks call them, except those of Keras that write files: only rank 0 calls these.
        validation_data : object, optional
            As ``data``.
        data_config : mapping, optional
            First argument of a function ``data``; by default the ``config`` of the estimator.
        feature_cols, label_cols : str or list of str, optional
            Columns of tables. Several columns are the inputs of the model, or, if it has a single
            input, its columns.
        session_config, auto_shard_files
            No effect.
        checkpoint_trigger : EveryEpoch or SeveralIteration, optional
            ``SeveralIteration(n)`` adds a checkpoint every n steps to those after each epoch.
        shuffle : bool
            Whether to permute the rows of each rank in each epoch; not for datasets.
        seed : int
            Seed of permutations, of creators and of layers such as dropout.

        Returns
        -------
        dict
            Values of each epoch by name, such as ``loss`` and ``val_loss``.

        Raises
        ------
        RequestError
            With every fault; nothing was started.
        GangFailed
            If a rank failed and no restarts are left.
        """
        client, ranks, client_faults = self._find_client()
        faults = [
            *client_faults,
            *find_fit_faults(
                ranks,
                epochs=epochs,
                initial_epoch=initial_epoch,
                batch_size=batch_size,
                verbose=verbose,
                callbacks=callbacks,
                class_weight=class_weight,
                steps_per_epoch=steps_per_epoch,
                validation_steps=validation_steps,
                validation_freq=validation_freq,
                data_config=data_config,
                checkpoint_trigger=checkpoint_trigger,
                shuffle=shuffle,
                seed=seed,
            ),
            *self._find_loss_faults(ranks),
        ]
        columns = (feature_cols, label_cols)
        faults += find_data_faults("data", data, *columns)
        if validation_data is not None:
            faults += find_data_faults("validation_data", validation_data, *columns)
        check(faults)
        definition = self._refresh().with_columns(feature_cols, label_cols)
        warn_unused(session_config=session_config, auto_shard_files=auto_shard_files)
        config = definition.config if data_config is None else data_config
        source, pieces = prepare_source(client, "data", data, ranks, columns, config)
        validation, more = None, list[Any]()
        if validation_data is not None:
            validation, more = prepare_source(
                client, "validation_data", validation_data, ranks, columns, config
            )
        task = FitTask(
            model=definition,
            data=source,
            validation=validation,
            epochs=epochs,
            initial_epoch=initial_epoch,
            batch_size=batch_size,
            verbose=2 if verbose else 0,
            callbacks=self._add_tensorboard(callbacks),
            class_weight=class_weight,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
            shuffle=shuffle,
            seed=seed,
            interval=getattr(checkpoint_trigger, "interval", 0),
            keeps_all=self._model_dir is not None,
        )
        outcome = self._run_fit(client, ranks, task, join_shares(pieces, more, ranks))
        self._set_weights(outcome.weights, outcome.inputs)
        self._record_epochs(outcome.history)
        self._check_losses(outcome.history.get("loss", []))
        return {
            name: list(values)
            for name, values in outcome.history.items()
            if not name.startswith("_")
        }

    @check_call
    def evaluate(
        self,
        data: Any,
        batch_size: int = 32,
        *,
        num_steps: int | None = None,
        verbose: int | str = 1,
        sample_weight: Any = None,
        callbacks: Sequence[Any] | None = None,
        data_config: Mapping[str, Any] | None = None,
        feature_cols: str | Sequence[str] | None = None,
        label_cols: str | Sequence[str] | None = None,
        auto_shard_files: bool | None = None,
    ) -> dict[str, float]:
        """Return loss and metrics of data, computed from the rows of all ranks.

        Parameters
        ----------
        data, batch_size, data_config, feature_cols, label_cols
            As for :meth:`fit`.
        num_steps : int, optional
            Steps after which to stop.
        verbose : int or str
            Whether to print progress; 0 does not.
        sample_weight, callbacks, auto_shard_files
            No effect.

        Returns
        -------
        dict
            Values by name, such as ``loss``.
        """
        client, ranks, client_faults = self._find_client()
        columns = (feature_cols, label_cols)
        check(
            [
                *client_faults,
                *find_batch_faults(batch_size, ranks),
                *find_verbose_faults(verbose),
                *find_config_faults(data_config),
                *find_data_faults("data", data, *columns),
                *([] if num_steps is None else find_count_faults("num_steps", num_steps)),
            ]
        )
        warn_unused(
            sample_weight=sample_weight, callbacks=callbacks, auto_shard_files=auto_shard_files
        )
        definition = self._refresh().with_columns(feature_cols, label_cols)
        config = definition.config if data_config is None else data_config
        source, pieces = prepare_source(client, "data", data, ranks, columns, config)
        task = EvaluateTask(definition, source, batch_size, num_steps, 2 if verbose else 0)
        results: list[dict[str, float]] = self._run(
            client, evaluate_rank, ranks, task, pieces or None
        )
        return results[0]

    @check_call
    def predict(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        verbose: int | str = 0,
        steps: int | None = None,
        callbacks: Sequence[Any] | None = None,
        data_config: Mapping[str, Any] | None = None,
        feature_cols: str | Sequence[str] | None = None,
        output_cols: str | Sequence[str] | None = None,
        auto_shard_files: bool | None = None,
    ) -> Any:
        """Predict rows on the workers; each worker process builds the model once.

        Parameters
        ----------
        data : XShards, dataframe of Dask, pandas or Spark, Dask array, array or tf.data.Dataset
            The rows; several inputs of a model are ``{'x': (first, second)}``.
        batch_size : int, optional
            Rows of a step, 32 by default.
        feature_cols : str or list of str, optional
            Columns of tables.
        output_cols : str or list of str, optional
            Names of the columns of predictions of tables, one for each output of the model.
        verbose, steps, callbacks, data_config, auto_shard_files
            No effect.

        Returns
        -------
        object
            For XShards, lazy shards ``{"prediction": array}``. For tables, the table with a column
            ``prediction``, lazy if it is one of Dask or Spark. For Dask arrays a lazy array,
            otherwise an array. Several outputs are a tuple of arrays, or tuples in the column.
        """
        client, _, client_faults = self._find_client()
        size = 32 if batch_size is None else batch_size
        faults = [
            *client_faults,
            *find_count_faults("batch_size", size),
            *find_verbose_faults(verbose),
            *find_name_faults("output_cols", output_cols),
        ]
        if callable(data) and not is_dask_collection(data):
            advice = "pass what the function returns"
            faults.append(Fault("data", "a function", "rows", advice))
        else:
            faults += find_data_faults("data", data, feature_cols, None, needs_labels=False)
        is_table = hasattr(data, "columns") and not isinstance(data, XShards)
        if output_cols is not None and not is_table:
            faults.append(Fault("output_cols", "", "only predictions of tables have columns"))
        check(faults)
        warn_unused(steps=steps, callbacks=callbacks, auto_shard_files=auto_shard_files)
        definition = self._refresh().with_columns(feature_cols)
        features = definition.features or None
        names = [output_cols] if isinstance(output_cols, str) else output_cols
        predictor = KerasPartitionPredictor(
            cloudpickle.dumps(definition),
            int(size),
            FeatureReader(features, None, needs_labels=False),
            tuple(names or ()),
        )
        return predict_data(client, predictor, data)

    def _find_loss_faults(self, ranks: int) -> list[Fault]:
        loss = "" if ranks == 1 or self._model is None else find_loss_fault(self._model)
        allowed = "a mean over rows: ranks average their gradients by rows"
        return [Fault("keras_model", f"the loss {loss}", allowed)] if loss else []

    def _run_fit(self, client: Any, ranks: int, task: FitTask, pieces: list[Any]) -> FitOutcome:
        lasting = None
        if self._model_dir is not None:
            url = _name_folder(self._model_dir)
            check(find_folder_faults(client, url))
            lasting = nullcontext(url)
        with lasting or temporary_checkpoints(client) as folder:
            results = self._run(
                client, fit_rank, ranks, task, pieces or None,
                checkpoints=folder, max_retries=self._max_retries,
            )  # fmt: skip
        outcome: FitOutcome = results[0]
        return outcome

    def _run(
        self,
        client: Any,
        function: Callable[..., Any],
        ranks: int,
        task: Any,
        data: Any,
        **more: Any,
    ) -> list[Any]:
        arguments = (task,) if data is not None else (None, task)
        logs = self._verbose
        return self._run_gang(
            client, function, ranks, *arguments, data=data, env=ENVIRONMENT, logs=logs, **more
        )

    def _add_tensorboard(self, callbacks: Sequence[Any] | None) -> list[Any]:
        """Return the callbacks, with that of TensorBoard, which writes on rank 0."""
        callbacks = list(callbacks or ())
        if self._log is None or not is_installed("tensorboard"):
            return callbacks
        keras: Any = need("keras", "tensorflow")
        return [*callbacks, keras.callbacks.TensorBoard("/".join(self._log))]


def _name_folder(parent: str | os.PathLike[str]) -> str:
    """Return the URL of a new folder for the checkpoints of a call of ``fit``."""
    moment = time.strftime("%Y-%m-%d_%H-%M-%S")
    return f"{os.fspath(parent).rstrip('/')}/{moment}-{secrets.token_hex(4)}"
