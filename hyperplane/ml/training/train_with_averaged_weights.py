"""Public function that trains a network in several workers and averages their weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.training.network_arguments import TrainingSettings, find_model_faults
from hyperplane.ml.training.training_result import TrainingResult

if TYPE_CHECKING:
    from distributed import Client

#: Most ranks, and most epochs of a round.
_MOST = 10_000


@check_call(outcome="no process was started")
def train_with_averaged_weights(
    client: Client,
    model: Any,
    data: Any,
    *,
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any],
    n: int | None = None,
    rounds: int = 1,
    local_epochs: int = 1,
    batch_size: int | None = 32,
    feature_cols: str | Sequence[str] | None = None,
    label_cols: str | Sequence[str] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    checkpoints: str | os.PathLike[str] | None = None,
    max_retries: int = 3,
    timeout: float | None = None,
    logs: bool | str | os.PathLike[str] = True,
) -> TrainingResult:
    """Train a network in n processes, each on its own rows, and average the weights every round.

    In a round each process trains ``local_epochs`` on its rows without communication. Then all
    weights are replaced by their average over the processes, weighted by rows (federated averaging,
    local SGD). Optimizers keep their state, such as momentum, which is not averaged.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    model : torch.nn.Module
        Network, which fits into the memory of each process.
    data : XShards, Dask or NumPy arrays, or Dask or pandas dataframe
        Features and labels. Arrays as ``(x, y)`` or ``{"x": x, "y": y}``. The rows are divided
        evenly among the processes, in order.
    loss : callable
        ``loss(outputs, labels)``, the mean over the rows, such as ``torch.nn.MSELoss()``.
    optimizer : callable
        Function of the parameters that creates the optimizer of a process, such as
        ``functools.partial(torch.optim.SGD, lr=0.1)``.
    n : int, optional
        Number of processes; by default one for each thread of the cluster.
    rounds : int
        Number of averages.
    local_epochs : int
        Passes over the rows of a process in each round.
    batch_size : int or None
        Rows of a batch in each process; None for all rows of the process.
    feature_cols, label_cols : str or sequence of str, optional
        Columns of dataframes: each feature column is one input of the model.
    shuffle : bool
        Whether the order of rows within a process is drawn for each epoch.
    seed : int
        Seed of the order of rows, and of the random numbers of layers such as Dropout.
    checkpoints : str or path, optional
        Folder, which all workers can use, for a checkpoint after each round. A restart, or another
        call with the same folder, continues there. Without it a restart begins again.
    max_retries : int
        Maximum number of restarts after the loss of a process or worker.
    timeout : float, optional
        Seconds in which all processes must have started.
    logs : bool, str or path
        Output of the processes, as in :func:`gang`.

    Returns
    -------
    TrainingResult
        ``history`` has ``round``, ``train_loss`` of its last local epoch, ``num_samples``, and
        ``distance`` of the weights of the processes from their average.

    Raises
    ------
    RequestError
        If an argument is invalid, or the cluster has fewer than n threads.
    GangFailed
        If a process failed and no restarts are left.
    """
    settings = TrainingSettings(
        loss, optimizer, 1, batch_size, shuffle, seed, checkpoints, max_retries, timeout, logs
    )
    faults = settings.find_faults(client, needs_batch_size=False)
    faults += find_model_faults("model", model, optimizer)
    if not faults and not any(True for _ in model.parameters()):
        faults.append(Fault("model", "no parameters", "a module with parameters"))
    faults += [] if n is None else find_count_faults("n", n, 1, _MOST)
    faults += find_count_faults("rounds", rounds, 1, 2**31 - 1)
    faults += find_count_faults("local_epochs", local_epochs, 1, _MOST)
    from hyperplane.ml.estimators.training_data import (
        find_training_data_faults,
        prepare_training_data,
    )

    faults += find_training_data_faults(data, feature_cols, label_cols)
    check(faults)
    # Imported here because they load cloudpickle and distributed.
    from dataclasses import replace

    import cloudpickle

    from hyperplane.ml.training.averaging_rank import train_rounds
    from hyperplane.ml.training.gang_training import (
        find_label_faults,
        load_model,
        run_training,
    )

    n = max(1, sum(client.nthreads().values())) if n is None else int(n)
    prepared = prepare_training_data(client, data, n, feature_cols, label_cols)
    check(find_label_faults(client, prepared.partitions))
    settings = replace(settings, epochs=int(rounds))
    arguments = (cloudpickle.dumps(model), settings, int(local_epochs))
    answers = run_training(client, train_rounds, n, arguments, prepared.partitions, settings)
    return TrainingResult(load_model(model, answers[0]["model"]), answers[0]["history"])
