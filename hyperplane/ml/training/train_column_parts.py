"""Public function that trains parts of a network on different columns, one in each worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import (
    describe_value,
    find_count_faults,
    find_flag_faults,
    is_one_of,
)
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.ml.training.column_model import COMBINATIONS
from hyperplane.ml.training.network_arguments import (
    TrainingSettings,
    find_model_faults,
    find_shared_parameters,
    is_module,
)
from hyperplane.ml.training.training_result import TrainingResult

if TYPE_CHECKING:
    from distributed import Client

#: Most parts.
_MOST = 10_000


@check_call(outcome="no process was started")
def train_column_parts(
    client: Client,
    parts: Sequence[Any],
    columns: Sequence[Any],
    data: Any,
    *,
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any],
    combine: Any = "sum",
    separate_losses: bool = False,
    epochs: int = 1,
    batch_size: int = 32,
    feature_cols: str | Sequence[str] | None = None,
    label_cols: str | Sequence[str] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    checkpoints: str | os.PathLike[str] | None = None,
    max_retries: int = 3,
    timeout: float | None = None,
    logs: bool | str | os.PathLike[str] = True,
) -> TrainingResult:
    """Train parts of a network on different feature columns, each in a separate process.

    Each worker gets its columns and all labels. The outputs of the parts are combined, and the
    loss of the combined output trains all parts, as if they were one network in one process. With
    ``separate_losses`` each part is trained with the loss of the own output, and outputs are
    combined only in the model that is returned.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster, which has at least one thread for each part.
    parts : sequence of torch.nn.Module
        At least two modules. Each is called with its columns.
    columns : sequence
        Columns of each part: a slice, such as ``slice(0, 100)``, or a list of column numbers; with
        dataframes also a list of names. A column can be used by several parts.
    data : XShards, Dask or NumPy arrays, or Dask or pandas dataframe
        One two-dimensional array of features, or dataframes with ``feature_cols``, and labels.
    loss : callable
        ``loss(outputs, labels)``, the mean over the rows.
    optimizer : callable
        Function that creates an optimizer of the parameters of one part, such as
        ``functools.partial(torch.optim.SGD, lr=0.1)``.
    combine : "sum", "mean" or torch.nn.Module
        How the outputs are combined. A module is called with their concatenation, and trained;
        every process has a copy of it.
    separate_losses : bool
        Whether each part has a separate loss.
    epochs : int
        Number of passes over the data.
    batch_size : int
        Rows of a batch.
    feature_cols, label_cols : str or sequence of str, optional
        Columns of dataframes.
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
        ``model`` is one module of all parts, whose input are all columns; ``history`` has
        ``epoch``, ``train_loss`` (with separate losses their sum) and ``num_samples``.

    Raises
    ------
    RequestError
        If an argument is invalid, or the cluster has fewer threads than parts.
    GangFailed
        If a process failed and no restarts are left.
    """
    settings = TrainingSettings(
        loss, optimizer, epochs, batch_size, shuffle, seed, checkpoints, max_retries, timeout, logs
    )
    faults = settings.find_faults(client)
    faults += _find_part_faults(parts, optimizer)
    names = _list_names(feature_cols)
    faults += _find_column_faults(parts, columns, names)
    faults += find_flag_faults(separate_losses=separate_losses)
    faults += _find_combine_faults(combine, separate_losses, optimizer)
    from hyperplane.ml.estimators.training_data import (
        find_training_data_faults,
        prepare_training_data,
    )

    faults += find_training_data_faults(data, feature_cols, label_cols)
    check(faults)
    # Imported here because it loads distributed.
    from hyperplane.ml.training.column_rank import select_columns, train_part
    from hyperplane.ml.training.gang_training import (
        find_label_faults,
        get_feature_shapes,
        load_model,
        run_training,
        send_parts,
    )

    parts = list(parts)
    numbers = [_number_columns(each, names) for each in columns]
    partitions = prepare_training_data(client, data, 1, feature_cols, label_cols).partitions
    check(
        [
            *find_label_faults(client, partitions),
            *_find_range_faults(numbers, get_feature_shapes(client, partitions)),
        ]
    )
    selections = [partial(select_columns, columns=each) for each in numbers]
    answers = run_training(
        client,
        train_part,
        len(parts),
        (settings, combine, separate_losses),
        send_parts(client, parts, partitions, selections),
        settings,
        "len(parts)",
    )
    trained = [
        load_model(part, answer["model"]) for part, answer in zip(parts, answers, strict=True)
    ]
    if is_module(combine):
        combine = load_model(combine, answers[0]["combine"])
    from hyperplane.ml.training.column_model import ColumnModel

    return TrainingResult(ColumnModel(trained, numbers, combine), answers[0]["history"])


def _find_part_faults(parts: Any, optimizer: Any) -> list[Fault]:
    if not isinstance(parts, list | tuple) or not 2 <= len(parts) <= _MOST:
        return [Fault("parts", describe_value(parts), "a list of at least two modules")]
    faults = []
    for number, part in enumerate(parts):
        faults += find_model_faults(f"parts[{number}]", part, optimizer)
        if not faults and not any(True for _ in part.parameters()):
            faults.append(Fault(f"parts[{number}]", "no parameters", "a module with parameters"))
    return faults or find_shared_parameters("parts", parts)


def _find_column_faults(parts: Any, columns: Any, names: Sequence[str]) -> list[Fault]:
    if not isinstance(columns, list | tuple):
        allowed = "a list with the columns of each part"
        return [Fault("columns", describe_value(columns), allowed)]
    faults = []
    if isinstance(parts, list | tuple) and len(parts) != len(columns):
        allowed = f"{len(parts)} entries, one for each part"
        faults.append(Fault("len(columns)", str(len(columns)), allowed))
    allowed = "a slice of numbers, or a list of column numbers"
    allowed += f" or of names among {', '.join(names)}"[:200] if names else ""
    for number, each in enumerate(columns):
        is_list = isinstance(each, list | tuple) and len(each) > 0
        if not _is_slice(each) and not (
            is_list and all(_is_number(one) or is_one_of(one, names) for one in each)
        ):
            faults.append(Fault(f"columns[{number}]", describe_value(each), allowed))
    return faults


def _find_range_faults(numbers: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[Fault]:
    """Return the faults of columns that the data do not have."""
    if len(shapes) > 1 and any(shapes):
        return [Fault("data", "", "columns of numbers, not of arrays")]
    if len(shapes) == 1 and len(shapes[0]) > 1:
        given = f"features with {len(shapes[0]) + 1} dimensions"
        return [Fault("data", given, "one two-dimensional array of features")]
    width = len(shapes) if len(shapes) > 1 else (*shapes[0], 1)[0]
    faults = []
    for number, each in enumerate(numbers):
        is_slice = isinstance(each, slice)
        picked = range(width)[each] if is_slice else [one for one in each if one < width]
        if len(picked) < (1 if is_slice else len(each)):
            allowed = f"columns of the data, which have {width}"
            faults.append(Fault(f"columns[{number}]", describe_value(each), allowed))
    return faults


def _is_number(value: Any) -> bool:
    return not find_count_faults("", value, 0, 2**31)


def _is_slice(value: Any) -> bool:
    if not isinstance(value, slice):
        return False
    limits = (value.start, value.stop, value.step)
    return all(limit is None or _is_number(limit) for limit in limits) and value.step != 0


def _find_combine_faults(combine: Any, separate_losses: Any, optimizer: Any) -> list[Fault]:
    if is_one_of(combine, COMBINATIONS):
        return []
    if not is_module(combine):
        return [Fault("combine", describe_value(combine), "'sum', 'mean' or a torch.nn.Module")]
    faults = find_model_faults("combine", combine, optimizer)
    if separate_losses is True:
        allowed = "'sum' or 'mean' with separate_losses, which would not train a module"
        faults.append(Fault("combine", "a module", allowed))
    return faults


def _list_names(feature_cols: Any) -> list[str]:
    if isinstance(feature_cols, str):
        return [feature_cols]
    is_list = isinstance(feature_cols, list | tuple)
    return [name for name in feature_cols if isinstance(name, str)] if is_list else []


def _number_columns(columns: Any, names: Sequence[str]) -> Any:
    if isinstance(columns, slice):
        return columns
    return [names.index(one) if isinstance(one, str) else int(one) for one in columns]
