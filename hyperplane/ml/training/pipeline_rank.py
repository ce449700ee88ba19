"""Process of one pipeline stage: it trains its layers on activations of the stage before.

The schedule is GPipe of ``torch.distributed.pipelining``: all micro-batches of a batch forward,
then all backward, then one step of the optimizers.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

from hyperplane.core.optional import need
from hyperplane.ml.training.network_arguments import TrainingSettings
from hyperplane.ml.training.rank_checkpoints import RankCheckpoints
from hyperplane.ml.training.rank_process_group import (
    convert,
    copy_state,
    draw_batches,
    get_random_state,
    join_process_group,
    move_loss,
    set_random_state,
)


def train_stage(share: list[Any], settings: TrainingSettings, micro_batches: int) -> dict[str, Any]:
    """Train one stage; return its state and, for the last stage, the history.

    ``share`` is the pickled module and, for the first stage, the features of each partition, or
    for the last stage, their labels.
    """
    import numpy as np

    torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with join_process_group(settings.seed + rank) as device:
        model = pickle.loads(share[0]).to(device).train()  # noqa: S301 - from the client
        parameters = list(model.parameters())
        optimizer = settings.optimizer(parameters) if parameters else None
        inputs, labels = [], None
        if rank == 0:
            columns = zip(*share[1:], strict=True)
            inputs = [convert(np.concatenate(each), model, device) for each in columns]
        elif rank == size - 1:
            labels = convert(np.concatenate(share[1:]), model, device)
        rows = torch.tensor([len(inputs[0]) if inputs else 0], device=device)
        dist.broadcast(rows, 0)
        pipeline = _Pipeline(model, move_loss(settings.loss, device), micro_batches, device)
        checkpoints = RankCheckpoints("pipeline")
        begin, state = checkpoints.load()
        history = state.get("history", [])
        if state:
            model.load_state_dict(state["model"])
            if optimizer is not None:
                optimizer.load_state_dict(state["optimizer"])
            set_random_state(state["rng"], device)
        for epoch in range(begin, settings.epochs):
            total = 0.0
            seed = settings.seed + epoch
            for batch in draw_batches(int(rows), settings.batch_size, settings.shuffle, seed):
                model.zero_grad()
                picked = batch.to(device)
                total += len(batch) * pipeline.step(
                    [each[picked] for each in inputs],
                    None if labels is None else labels[picked],
                    len(batch),
                )
                if optimizer is not None:
                    optimizer.step()
            loss = total / max(int(rows), 1)
            entry = {"epoch": epoch + 1, "train_loss": loss, "num_samples": int(rows)}
            history = [*history, entry]
            checkpoints.save(
                epoch + 1,
                {
                    "model": model.state_dict(),
                    "optimizer": {} if optimizer is None else optimizer.state_dict(),
                    "rng": get_random_state(device),
                    "history": history,
                },
            )
        return {"model": copy_state(model), "history": history}


class _Pipeline:
    """Schedules of a stage, one for each number of rows, because a schedule has fixed shapes."""

    def __init__(self, model: Any, loss: Any, micro_batches: int, device: Any) -> None:
        self._model, self._loss, self._device = model, loss, device
        self._micro_batches = micro_batches
        self._rank, self._size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._schedules: dict[int, Any] = {}

    def step(self, inputs: list[Any], labels: Any, rows: int) -> float:
        """Compute the gradients of a batch; return the loss in the last stage, else 0."""
        schedule = self._schedules.get(rows)
        if schedule is None:
            schedule = self._schedules[rows] = self._create_schedule(rows)
        if labels is None:
            schedule.step(*inputs)
            return 0.0
        losses: list[Any] = []
        schedule.step(target=labels, losses=losses)
        return sum(float(loss.detach()) for loss in losses) / len(losses)

    def _create_schedule(self, rows: int) -> Any:
        pipelining = need("torch.distributed.pipelining", extra="torch")
        stage = pipelining.PipelineStage(self._model, self._rank, self._size, self._device)
        # Micro-batches of equal size, so that the mean of their losses is that of the batch.
        number = max(
            each for each in range(1, min(self._micro_batches, rows) + 1) if rows % each == 0
        )
        return pipelining.ScheduleGPipe(stage, n_microbatches=number, loss_fn=self._loss)
