"""Public function that trains the layers of a network in several workers, one stage in each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import describe_value, find_count_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.training.network_arguments import (
    TrainingSettings,
    find_model_faults,
    find_shared_parameters,
)
from hyperplane.ml.training.training_result import TrainingResult

if TYPE_CHECKING:
    from distributed import Client

#: Most stages, and most micro-batches of a batch.
_MOST = 10_000


@check_call(outcome="no process was started")
def train_pipeline(
    client: Client,
    stages: Sequence[Any],
    data: Any,
    *,
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any],
    epochs: int = 1,
    batch_size: int = 32,
    micro_batches: int = 4,
    feature_cols: str | Sequence[str] | None = None,
    label_cols: str | Sequence[str] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    checkpoints: str | os.PathLike[str] | None = None,
    max_retries: int = 3,
    timeout: float | None = None,
    logs: bool | str | os.PathLike[str] = True,
) -> TrainingResult:
    """Train the layers of a network as pipeline stages, each in a separate process.

    Each process holds the layers of one stage, so that no worker has to hold the whole network.
    Batches are divided into micro-batches, which pass through the stages one after the other
    (GPipe of ``torch.distributed.pipelining``). The gradients are those of the undivided network,
    except for layers whose outputs depend on the other rows of a batch, such as BatchNorm.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster, which has at least one thread for each stage.
    stages : sequence of torch.nn.Module
        Consecutive parts of the network, at least two, such as ``[network[:4], network[4:]]`` of
        ``torch.nn.Sequential``. Each returns one tensor, the input of the next.
    data : XShards, Dask or NumPy arrays, or Dask or pandas dataframe
        Features, which only the worker of the first stage gets, and labels, which only that of the
        last stage gets. Arrays as ``(x, y)`` or ``{"x": x, "y": y}``.
    loss : callable
        ``loss(outputs, labels)``, the mean over the rows, such as ``torch.nn.MSELoss()``.
    optimizer : callable
        Function that creates an optimizer of the parameters of one stage, such as
        ``functools.partial(torch.optim.SGD, lr=0.1)``.
    epochs : int
        Number of passes over the data.
    batch_size : int
        Rows of a batch. The last batch of an epoch can be smaller.
    micro_batches : int
        Micro-batches of a batch; fewer if the rows of a batch cannot be divided equally.
    feature_cols, label_cols : str or sequence of str, optional
        Columns of dataframes: each feature column is one input of the first stage.
    shuffle : bool
        Whether the order of rows is drawn for each epoch.
    seed : int
        Seed of the order of rows, and of the random numbers of layers such as Dropout.
    checkpoints : str or path, optional
        Folder, which all workers can use, for a checkpoint after each epoch. A restart, or another
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
        ``model`` is a ``torch.nn.Sequential`` of the trained stages; ``history`` has ``epoch``,
        ``train_loss`` and ``num_samples`` of each epoch.

    Raises
    ------
    RequestError
        If an argument is invalid, or the cluster has fewer threads than stages.
    GangFailed
        If a process failed and no restarts are left.
    """
    settings = TrainingSettings(
        loss, optimizer, epochs, batch_size, shuffle, seed, checkpoints, max_retries, timeout, logs
    )
    faults = settings.find_faults(client)
    faults += find_count_faults("micro_batches", micro_batches, 1, _MOST)
    faults += _find_stage_faults(stages, optimizer)
    from hyperplane.ml.estimators.training_data import (
        find_training_data_faults,
        prepare_training_data,
    )

    faults += find_training_data_faults(data, feature_cols, label_cols)
    check(faults)
    # Imported here because it loads distributed.
    from hyperplane.ml.training.gang_training import (
        find_label_faults,
        get_torch,
        load_model,
        run_training,
        select_features,
        select_labels,
        select_nothing,
        send_parts,
    )
    from hyperplane.ml.training.pipeline_rank import train_stage

    stages = list(stages)
    partitions = prepare_training_data(client, data, 1, feature_cols, label_cols).partitions
    check(find_label_faults(client, partitions))
    selections = [select_features, *[select_nothing] * (len(stages) - 2), select_labels]
    answers = run_training(
        client,
        train_stage,
        len(stages),
        (settings, int(micro_batches)),
        send_parts(client, stages, partitions, selections),
        settings,
        "len(stages)",
    )
    trained = [
        load_model(stage, answer["model"]) for stage, answer in zip(stages, answers, strict=True)
    ]
    return TrainingResult(get_torch().nn.Sequential(*trained), answers[-1]["history"])


def _find_stage_faults(stages: Any, optimizer: Any) -> list[Fault]:
    if not isinstance(stages, list | tuple) or not 2 <= len(stages) <= _MOST:
        advice = "for example [network[:4], network[4:]]"
        return [Fault("stages", describe_value(stages), "a list of at least two modules", advice)]
    faults = []
    for number, stage in enumerate(stages):
        faults += find_model_faults(f"stages[{number}]", stage, optimizer)
    return faults or find_shared_parameters("stages", stages)
