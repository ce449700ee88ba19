"""One rank of ``training.py``: train a small network of images with DistributedDataParallel."""

from __future__ import annotations

import json
import os
import sys
import time

import cpu_group


def train(
    batch_size: int, steps: int, is_averaged: bool = True, layers: int = 0
) -> dict[str, float]:
    """Train with one thread; return seconds of the steps, CPU seconds, and a loss.

    The loss is the mean of the last ten. Without ``is_averaged`` the ranks do not communicate
    between the first and the last step. ``layers`` more convolutions make a deeper network: each
    needs 1.7 times the multiplications of the network without them, and 0.15 times its gradients.
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)  # the same network in all ranks
    dist.init_process_group("gloo")
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        *(torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(layers)),
        torch.nn.Conv2d(32, 64, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 8 * 8, 10),
    )
    if is_averaged:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dice = torch.Generator().manual_seed(dist.get_rank())
    images = torch.randn(8 * batch_size, 3, 32, 32, generator=dice)
    labels = (images.mean(dim=(1, 2, 3)) * 50).long().clamp(-5, 4) + 5
    losses, began, own, group = [], 0.0, 0.0, 0.0
    for step in range(-5, steps):
        if step == 0:
            dist.barrier()
            began, own, group = time.perf_counter(), time.process_time(), cpu_group.read_usage()
        start = step % 8 * batch_size
        loss = torch.nn.functional.cross_entropy(
            model(images[start : start + batch_size]), labels[start : start + batch_size]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    own = time.process_time() - own
    dist.barrier()
    seconds, group = time.perf_counter() - began, cpu_group.read_usage() - group
    ranks = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(ranks)
    figures = {"steps": seconds, "CPU of the ranks in the steps": float(ranks)}
    if group:
        figures["CPU of other processes in the steps"] = group - float(ranks)
    return {**figures, "loss": sum(losses[-10:]) / 10}


if __name__ == "__main__":
    figures = train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4]))
    if os.environ["RANK"] == "0":
        print(json.dumps(figures))
    # Without it, threads of gloo that still run abort the process at its end now and then.
    import torch.distributed

    torch.distributed.destroy_process_group()
