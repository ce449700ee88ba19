"""Ranks of a network that are killed at random moments: the result does not change.

Each kill costs at most the epoch in which it happened. Processes are also killed while they import
PyTorch, connect, or write a checkpoint.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import cloudpickle
import numpy as np
import psutil
import pytest
from scale import FULL, scaled

from hyperplane.ml import Estimator, gang

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.torch]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

KILLS = scaled(2, 20)
#: Steps of an epoch: 64 rows, two ranks, batches of 8 rows.
STEPS = 4
EPOCHS = 2 * KILLS + 3
#: Limit for a step of a rank that starts. Importing PyTorch takes both ranks 10 s of CPU time, and
#: beside many other programs they got a tenth of a core.
SECONDS = 600.0
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(64, 5)).astype(np.float32)
Y = (X @ _RNG.normal(size=(5, 1)) + 1).astype(np.float32)


def record_step(folder):
    """Record a step of this rank; near the end wait until all kills have happened."""
    with Path(folder, f"steps-{os.environ['RANK']}").open("a") as file:
        file.write(".")
        steps = file.tell()
    done = Path(folder, "done")
    if not done.exists():
        time.sleep(0.02)
    while steps >= (EPOCHS - 1) * STEPS and not done.exists():
        time.sleep(0.02)


def count_steps(folder, rank):
    """Return how many steps a rank has begun, in all attempts."""
    with suppress(FileNotFoundError):
        return Path(folder, f"steps-{rank}").stat().st_size
    return 0


class KillThread(threading.Thread):
    """Thread that kills a random rank of a gang some times, at random moments."""

    def __init__(self, client, folder, seed):
        super().__init__()
        self._client, self._folder, self._random = client, folder, random.Random(seed)
        self.kills, self.early = 0, 0

    def run(self):
        workers = [psutil.Process(pid) for pid in self._client.run(os.getpid).values()]
        try:
            while self.kills < KILLS:
                self._kill(workers)
        finally:
            Path(self._folder, "done").touch()

    def _kill(self, workers):
        rank = self._random.randrange(2)
        process = self._wait_for(lambda: find_rank(workers, rank))
        is_early = self._random.random() < 0.25
        if is_early:
            time.sleep(self._random.uniform(0, 4))
        else:
            before = count_steps(self._folder, rank)
            self._wait_for(
                lambda: count_steps(self._folder, rank) > before or not process.is_running()
            )
            time.sleep(self._random.uniform(0, 2 * STEPS * 0.03))
        with suppress(psutil.NoSuchProcess):
            process.kill()
            self.kills += 1
            self.early += is_early
        self._wait_for(lambda: find_rank(workers, rank) != process)

    def _wait_for(self, condition):
        deadline = time.monotonic() + SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return found


def find_rank(workers, rank):
    """Return the process of a rank; None if it does not run."""
    for worker in workers:
        for child in worker.children():
            with suppress(psutil.Error):
                command = " ".join(child.cmdline())
                if "rank_process.py" in command and child.environ().get("RANK") == str(rank):
                    return child
    return None


def make_model(config=None):
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    )


def make_optimizer(model, config=None):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def fit_estimator(client, folder, retries):
    """Train with Estimator.from_torch; return the losses of epochs, and the weights."""

    def loss(output, label):
        if torch.is_grad_enabled():
            record_step(folder)
        return torch.nn.functional.mse_loss(output, label)

    estimator = Estimator.from_torch(
        model=make_model, optimizer=make_optimizer, loss=loss, config={},
        model_dir=str(folder / "model"), max_retries=retries, log_to_driver=False,
        backend="torch_distributed",
    )  # fmt: skip
    history = estimator.fit((X, Y), epochs=EPOCHS, batch_size=8)
    losses = [entry["train_loss"] for entry in history]
    return losses, estimator.get_model().state_dict()


def train_rank(folder):
    """Train with DistributedDataParallel, and a checkpoint of rank 0 after each epoch."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = make_model()
    wrapped, optimizer = torch.nn.parallel.DistributedDataParallel(model), make_optimizer(model)
    file = Path(os.environ["HYPERPLANE_CHECKPOINTS"], "state.pt")
    losses, begin = [], torch.zeros(1, dtype=torch.int64)
    if rank == 0 and file.exists():
        begin[0] = 1
    dist.broadcast(begin, 0)
    if int(begin):
        state = torch.load(file)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        losses = state["losses"]
    x, y = torch.tensor(X[rank::2]), torch.tensor(Y[rank::2])
    for epoch in range(len(losses), EPOCHS):
        torch.manual_seed(1000 * epoch + rank)
        for rows in torch.arange(32).split(8):
            record_step(folder)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(wrapped(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        losses.append(float(mean))
        if rank == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**states, "losses": losses}, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
        dist.barrier()  # no rank is an epoch ahead of the checkpoint
    return losses, model.state_dict()


def run_gang(client, folder, retries):
    """Train in a gang; return the losses of epochs, and the weights."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    results = gang(
        client, train_rank, 2, str(folder), checkpoints=checkpoints, max_retries=retries, logs=False
    )
    return results[0]


@pytest.mark.parametrize(
    "run",
    [
        run_gang,
        pytest.param(
            fit_estimator, marks=pytest.mark.skipif(not FULL, reason="estimator: at full scale")
        ),
    ],
)
@pytest.mark.timeout(3 * SECONDS + 240 * KILLS)
def test_killed_ranks_change_nothing_and_repeat_one_epoch(client, tmp_path, run):
    seed = random.randrange(2**32) if FULL else 0
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    plain.mkdir()
    killed.mkdir()
    (plain / "done").touch()
    expected, weights = run(client, plain, 0)
    thread = KillThread(client, killed, seed)
    thread.start()
    losses, state = run(client, killed, 2 * KILLS)
    thread.join(SECONDS)
    assert thread.kills == KILLS
    assert losses == expected, seed
    assert all(torch.equal(state[name], weights[name]) for name in weights), seed
    repeated = [count_steps(killed, rank) - EPOCHS * STEPS for rank in range(2)]
    assert max(repeated) <= KILLS * STEPS, (repeated, seed)
    print(f"{KILLS} kills, {thread.early} before training, repeated steps {repeated}")  # noqa: T201
