"""Process of one rank that trains on its own rows, and averages its weights with the others."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import Any

from hyperplane.core.optional import need
from hyperplane.ml.training.network_arguments import TrainingSettings
from hyperplane.ml.training.rank_checkpoints import RankCheckpoints
from hyperplane.ml.training.rank_process_group import (
    convert,
    copy_state,
    get_random_state,
    join_process_group,
    move_loss,
    set_random_state,
)


def train_rounds(
    pieces: list[Any], model: bytes, settings: TrainingSettings, local_epochs: int
) -> dict[str, Any]:
    """Train all rounds; return the average weights and the history. ``epochs`` are rounds."""
    from hyperplane.ml.estimators.training_data import iterate_batches, join_pieces, order_rows

    torch = need("torch", extra="torch")
    rank = int(os.environ["RANK"])
    with join_process_group(settings.seed + rank, can_share_gpus=True) as device:
        module = pickle.loads(model).to(device).train()  # noqa: S301 - from the client
        optimizer = settings.optimizer(list(module.parameters()))
        loss_function = move_loss(settings.loss, device)
        features, all_labels = join_pieces(pieces)
        inputs = [convert(each, module, device) for each in features]
        labels = convert(all_labels[0], module, device)  # type: ignore[index]
        rows = len(labels)
        size = settings.batch_size or rows
        checkpoints = RankCheckpoints("averaged weights")
        begin, state = checkpoints.load()
        history = state.get("history", [])
        if state:
            module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            set_random_state(state["rng"], device)
        for number in range(begin, settings.epochs):
            loss = 0.0
            for epoch in range(number * local_epochs, (number + 1) * local_epochs):
                loss = 0.0
                order = order_rows(rows, settings.shuffle, settings.seed, epoch, rank)
                for batch in iterate_batches(order, size, -(-rows // size)):
                    picked = torch.from_numpy(batch).to(device)
                    optimizer.zero_grad()
                    value = loss_function(module(*(x[picked] for x in inputs)), labels[picked])
                    value.backward()
                    optimizer.step()
                    loss += float(value.detach()) * len(batch)
            distance = average_weights(module, rows)
            total_loss, total_rows = _sum_over_ranks([loss, rows], device)
            entry = {
                "round": number + 1,
                "train_loss": total_loss / total_rows,
                "num_samples": int(total_rows) * local_epochs,
                "distance": distance,
            }
            history = [*history, entry]
            checkpoints.save(
                number + 1,
                {
                    "model": module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "rng": get_random_state(device),
                    "history": history,
                },
            )
        return {"model": copy_state(module), "history": history}


def average_weights(model: Any, rows: int) -> float:
    """Replace parameters and buffers by their averages over the ranks, weighted by rows.

    Buffers of whole numbers, such as the number of batches, are those of rank 0. Returns the
    distance between the weights of the ranks and their average: the square root of the mean of the
    squared norms of the differences.
    """
    torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
    tensors = [*model.parameters(), *model.buffers()]
    weight = rows / _sum_over_ranks([rows], tensors[0].device)[0]
    distance = 0.0
    parameters = len(list(model.parameters()))
    with torch.no_grad():
        for number, tensor in enumerate(tensors):
            if not tensor.is_floating_point():
                dist.broadcast(tensor, 0)
                continue
            # In double precision, so that equal weights remain equal.
            average = tensor.double() * weight
            dist.all_reduce(average)
            if number < parameters:
                distance += weight * float((tensor.double() - average).square().sum())
            tensor.copy_(average)
    return float(_sum_over_ranks([distance], tensors[0].device)[0] ** 0.5)


def _sum_over_ranks(values: Sequence[float], device: Any) -> list[float]:
    torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor)
    total: list[float] = tensor.tolist()
    return total
