"""Public function that trains a network with asynchronous updates of its parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.training.network_arguments import (
    TrainingSettings,
    find_model_faults,
    find_seconds_faults,
)
from hyperplane.ml.training.training_result import AsynchronousTrainingResult

if TYPE_CHECKING:
    from distributed import Client


@check_call(outcome="no training was started")
def train_with_parameter_server(
    client: Client,
    model: Any,
    data: Any,
    *,
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any],
    max_staleness: int = 4,
    epochs: int = 1,
    batch_size: int = 32,
    feature_cols: str | Sequence[str] | None = None,
    label_cols: str | Sequence[str] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    checkpoints: str | os.PathLike[str] | None = None,
    checkpoint_interval: float = 10.0,
    max_retries: int = 3,
) -> AsynchronousTrainingResult:
    """Train a network with a parameter server: each worker updates the parameters when it can.

    The server, an actor of Dask on one of the workers, has the parameters and the optimizer. A task
    for each partition fetches the parameters, computes the gradient of a batch and sends it. No
    worker waits for another one within an epoch, so that slow workers do not delay the others, and
    workers can join and leave.

    The staleness of a gradient is the number of updates between the fetch of its parameters and
    its arrival. The server rejects a gradient whose staleness is above ``max_staleness``, and the
    worker computes it again with the newest parameters, so that each batch is applied once.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    model : torch.nn.Module
        Network, which fits into the memory of each worker.
    data : XShards, Dask or NumPy arrays, or Dask or pandas dataframe
        Features and labels. Arrays as ``(x, y)`` or ``{"x": x, "y": y}``. Workers get one part for
        each thread of the cluster.
    loss : callable
        ``loss(outputs, labels)``, the mean over the rows, such as ``torch.nn.MSELoss()``.
    optimizer : callable
        Function of the parameters that creates the optimizer of the server, such as
        ``functools.partial(torch.optim.SGD, lr=0.1)``.
    max_staleness : int
        Maximum staleness of an update. With 0 the updates are those of one worker.
    epochs : int
        Number of passes over the data. All tasks of an epoch end before the next one.
    batch_size : int
        Rows of a batch, within a part.
    feature_cols, label_cols : str or sequence of str, optional
        Columns of dataframes: each feature column is one input of the model.
    shuffle : bool
        Whether the order of rows within a part is drawn for each epoch.
    seed : int
        Seed of the order of rows.
    checkpoints : str or path, optional
        Folder of this process for checkpoints. Another call with the same folder continues there.
    checkpoint_interval : float
        Seconds between two checkpoints, which this process always has in memory. There is another
        one after each epoch.
    max_retries : int
        Maximum number of restarts of the server, from the last checkpoint, after the loss of its
        worker. The loss of another worker costs the batches that it was computing.

    Returns
    -------
    AsynchronousTrainingResult
        ``history`` has ``epoch``, ``train_loss`` and ``num_samples`` of each epoch; ``staleness``
        is the number of updates by their staleness.

    Raises
    ------
    RequestError
        If an argument is invalid.
    TrainingFailed
        If a batch raised an error, or the server was lost and no restarts are left.
    """
    settings = TrainingSettings(
        loss, optimizer, epochs, batch_size, shuffle, seed, checkpoints, max_retries
    )
    faults = settings.find_faults(client)
    faults += find_model_faults("model", model, optimizer)
    if not faults and not any(True for _ in model.parameters()):
        faults.append(Fault("model", "no parameters", "a module with parameters"))
    faults += find_count_faults("max_staleness", max_staleness, 0)
    faults += find_seconds_faults("checkpoint_interval", checkpoint_interval)
    from hyperplane.ml.estimators.training_data import (
        find_training_data_faults,
        prepare_training_data,
    )

    faults += find_training_data_faults(data, feature_cols, label_cols)
    check(faults)
    # Imported here because it loads distributed.
    from hyperplane.ml.training.gang_training import find_label_faults, load_model
    from hyperplane.ml.training.parameter_server_run import ParameterServerRun

    threads = sum(client.nthreads().values())
    prepared = prepare_training_data(client, data, max(1, threads), feature_cols, label_cols)
    check(find_label_faults(client, prepared.partitions))
    run = ParameterServerRun(
        client,
        model,
        prepared.partitions,
        settings,
        int(max_staleness),
        float(checkpoint_interval),
    )
    state, restarts = run.run()
    return AsynchronousTrainingResult(
        load_model(model, state["model"]),
        state["history"],
        dict(sorted(state["staleness"].items())),
        state["rejected"],
        restarts,
    )
