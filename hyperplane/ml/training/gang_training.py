"""Start of training in a gang: the data of each rank, and the gang itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from hyperplane.clusters.dask.gang.gang_run import GangRequest, run_gang
from hyperplane.core.errors import Fault

if TYPE_CHECKING:
    from hyperplane.ml.training.network_arguments import TrainingSettings

#: Part of a partition that a rank uses: a function of ``(features, labels)``.
Selection = Callable[[Any], Any]


def run_training(
    client: Any,
    function: Callable[..., Any],
    n: int,
    args: Sequence[Any],
    data: Sequence[Any],
    settings: TrainingSettings,
    count_argument: str = "n",
) -> list[Any]:
    """Run a function in n ranks; ``data`` are futures, an equal number for each rank.

    ``count_argument`` is what determines n in the call of the user, for messages.
    """
    return run_gang(
        client,
        GangRequest(
            function=function,
            n=n,
            args=args,
            data=list(data),
            checkpoints=settings.folder,
            max_retries=int(settings.max_retries),
            timeout=None if settings.timeout is None else float(settings.timeout),
            logs=settings.logs if isinstance(settings.logs, bool) else Path(settings.logs),
            count_argument=count_argument,
        ),
    )


def send_parts(
    client: Any, modules: Sequence[Any], partitions: Sequence[Any], selections: Sequence[Selection]
) -> list[Any]:
    """Return the data of each rank: its pickled module, and its selection of each partition.

    Each module is sent to one rank only. It can be sent again after the loss of a worker.
    """
    futures = []
    for module, selection in zip(modules, selections, strict=True):
        futures.append(client.submit(_pass, cloudpickle.dumps(module), pure=False))
        futures += [client.submit(selection, part, pure=False) for part in partitions]
    return futures


def select_features(part: Any) -> Any:
    """Return the features of a partition."""
    return part[0]


def select_labels(part: Any) -> Any:
    """Return the labels of a partition."""
    return part[1][0]


def select_nothing(part: Any) -> None:
    """Return nothing, for a rank that reads no data."""


def find_label_faults(client: Any, partitions: Sequence[Any]) -> list[Fault]:
    """Return the fault of data with more than one array of labels."""
    count = client.submit(_count_labels, partitions[0], pure=False).result()
    if count == 1:
        return []
    return [Fault("data", f"{count} arrays of labels", "one array of labels, or one label column")]


def get_feature_shapes(client: Any, partitions: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the shape of a row of each input."""
    shapes: list[tuple[int, ...]] = client.submit(_list_shapes, partitions[0], pure=False).result()
    return shapes


def load_model(module: Any, state: Any) -> Any:
    """Return a copy of a module with other parameters, in the mode for training."""
    copied = cloudpickle.loads(cloudpickle.dumps(module))
    copied.load_state_dict(state)
    return copied


def get_torch() -> Any:
    """Return PyTorch, which a caller that has created a module has imported."""
    return sys.modules["torch"]


def _pass(value: Any) -> Any:
    return value


def _count_labels(part: Any) -> int:
    return len(part[1] or ())


def _list_shapes(part: Any) -> list[tuple[int, ...]]:
    return [array.shape[1:] for array in part[0]]
