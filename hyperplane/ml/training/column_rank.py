"""Process of one part of a network that is divided by columns.

Each rank computes the output of its part and sends it to the others. All compute the same loss of
the combined output, and each the gradient of the own part, so that no gradients are sent.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import Any

from hyperplane.core.optional import need
from hyperplane.ml.training.column_model import COMBINATIONS, combine_outputs
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


def select_columns(part: Any, columns: Any) -> tuple[Any, Any]:
    """Return some columns of the features of a partition, and its labels."""
    import numpy as np

    inputs, labels = part
    features = inputs[0]
    if len(inputs) > 1:  # one input for each column of a dataframe
        features = np.column_stack(inputs)
    elif features.ndim == 1:
        features = features[:, None]
    return np.ascontiguousarray(features[:, columns]), labels[0]


def train_part(
    share: list[Any], settings: TrainingSettings, combine: Any, separate_losses: bool
) -> dict[str, Any]:
    """Train one part; return its state, that of the module that combines, and the history.

    ``share`` is the pickled part, and the columns and labels of each partition.
    """
    import numpy as np

    torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
    with join_process_group(settings.seed + int(os.environ["RANK"])) as device:
        part = pickle.loads(share[0]).to(device).train()  # noqa: S301 - from the client
        features, labels = (np.concatenate(each) for each in zip(*share[1:], strict=True))
        x, y = convert(features, part, device), convert(labels, part, device)
        step = _ColumnStep(part, combine, settings, separate_losses, device)
        checkpoints = RankCheckpoints("columns")
        begin, state = checkpoints.load()
        history = state.get("history", [])
        if state:
            step.modules.load_state_dict(state["model"])
            step.optimizer.load_state_dict(state["optimizer"])
            set_random_state(state["rng"], device)
        for epoch in range(begin, settings.epochs):
            total = torch.zeros(1, dtype=torch.float64)
            seed = settings.seed + epoch
            for number, batch in enumerate(
                draw_batches(len(x), settings.batch_size, settings.shuffle, seed)
            ):
                picked = batch.to(device)
                value = step.train(x[picked], y[picked], (seed << 32) + number)
                total += len(batch) * value
            if separate_losses:
                total = total.to(device)
                dist.all_reduce(total)
            loss = float(total) / max(len(x), 1)
            entry = {"epoch": epoch + 1, "train_loss": loss, "num_samples": len(x)}
            history = [*history, entry]
            checkpoints.save(
                epoch + 1,
                {
                    "model": step.modules.state_dict(),
                    "optimizer": step.optimizer.state_dict(),
                    "rng": get_random_state(device),
                    "history": history,
                },
            )
        head = None if step.head is None else copy_state(step.head)
        return {"model": copy_state(part), "combine": head, "history": history}


class _ColumnStep:
    def __init__(
        self, part: Any, combine: Any, settings: TrainingSettings, separate: bool, device: Any
    ) -> None:
        torch = need("torch", extra="torch")
        self._rank, self._size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._part, self._separate = part, separate
        self._loss = move_loss(settings.loss, device)
        self._device = device
        self.head = None if combine in COMBINATIONS else combine.to(device).train()
        self._combine = combine if self.head is None else self.head
        self.modules = torch.nn.ModuleList([part] if self.head is None else [part, self.head])
        self.optimizer = settings.optimizer(list(self.modules.parameters()))
        self._shapes: list[Any] = []

    def train(self, x: Any, y: Any, seed: int) -> float:
        """Take one step; return the loss."""
        torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
        self.optimizer.zero_grad()
        output = self._part(x)
        if self._separate:
            loss = self._loss(output, y)
        elif self.head is None:
            loss = self._loss(combine_outputs(self._exchange(output), self._combine), y)
        else:
            outputs = self._exchange(output)
            # The same random numbers in all ranks, so that their modules remain equal.
            with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
                torch.manual_seed(seed)
                loss = self._loss(combine_outputs(outputs, self._combine), y)
        loss.backward()
        if self.head is not None:
            for parameter in self.head.parameters():
                if parameter.grad is not None:
                    dist.broadcast(parameter.grad, 0)
        self.optimizer.step()
        return float(loss.detach())

    def _exchange(self, output: Any) -> Sequence[Any]:
        """Return the outputs of all ranks; only the own one has a gradient."""
        torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
        if not self._shapes:
            self._shapes = [None] * self._size
            dist.all_gather_object(self._shapes, tuple(output.shape[1:]))
        outputs = []
        for rank, shape in enumerate(self._shapes):
            if rank == self._rank:
                sent = output.detach().contiguous()
            else:
                sent = torch.empty((len(output), *shape), dtype=output.dtype, device=self._device)
            dist.broadcast(sent, rank)
            outputs.append(output if rank == self._rank else sent)
        return outputs
