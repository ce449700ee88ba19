"""Asynchronous updates: convergence, staleness, and the loss of workers and of the server."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from distributed import get_worker

import hyperplane.ml
from hyperplane.errors import RequestError, TrainingFailed

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.torch]

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(200, 4))
Y = X @ _RNG.normal(size=(4, 1)) + 0.5 + _RNG.normal(scale=0.01, size=(200, 1))
#: Least squares in closed form: four weights and the intercept.
CLOSED_FORM = np.linalg.lstsq(np.column_stack([X, np.ones(200)]), Y)[0][:, 0]
#: Batches of an epoch: two parts of 100 rows.
BATCHES = 10


class SlowLinear(torch.nn.Module):
    """A linear model whose batches take some milliseconds, so that workers overlap."""

    def __init__(self, event=None):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.event = torch.nn.Linear(4, 1), event

    def forward(self, x):
        time.sleep(0.005)
        if self.event is not None:
            self.event()
        return self.linear(x)


class KillOnce:
    """Kills a worker process once, after some batches: that of the server, or another one."""

    def __init__(self, folder, has_server, after, staleness):
        self.folder, self.has_server, self.after, self.calls = folder, has_server, after, 0
        self.staleness = staleness

    def __call__(self):
        self.calls += 1
        file = Path(self.folder, "killed")
        # Servers of earlier tests can remain for a while.
        servers = get_worker().state.actors.values()
        is_server = any(server._max_staleness == self.staleness for server in servers)
        if is_server == self.has_server and self.calls > self.after and not file.exists():
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def train(client, model=None, **options):
    given = {"loss": torch.nn.MSELoss(), "epochs": 20, "batch_size": 20, "max_staleness": 2}
    given["optimizer"] = functools.partial(torch.optim.SGD, lr=0.05)
    return hyperplane.ml.train_with_parameter_server(
        client, model or SlowLinear(), (X, Y), **(given | options)
    )


def assert_converged(result, epochs=20):
    linear = result.model.linear
    found = [*linear.weight.detach().numpy()[0], *linear.bias.detach().numpy()]
    assert found == pytest.approx(CLOSED_FORM, abs=0.01)
    # Each batch is applied once.
    assert sum(result.staleness.values()) == epochs * BATCHES
    assert [entry["num_samples"] for entry in result.history] == [200] * epochs
    assert [entry["epoch"] for entry in result.history] == list(range(1, epochs + 1))
    assert result.history[-1]["train_loss"] < 0.001 < result.history[0]["train_loss"]


def test_it_converges_to_the_closed_form(client):
    result = train(client)
    assert_converged(result)
    assert max(result.staleness) <= 2
    assert sum(number for stale, number in result.staleness.items() if stale > 0) > 20
    assert result.restarts == 0


def test_without_staleness(client):
    """Gradients of parameters that were changed meanwhile are rejected and computed again."""
    result = train(client, max_staleness=0)
    assert_converged(result)
    assert set(result.staleness) == {0}
    assert result.rejected > 20


def test_a_killed_worker_costs_its_running_batches(client, tmp_path):
    result = train(
        client,
        SlowLinear(KillOnce(tmp_path, has_server=False, after=3, staleness=3)),
        max_staleness=3,
    )
    assert (tmp_path / "killed").exists()
    assert_converged(result)
    assert result.restarts == 0


def test_a_lost_server_restarts_from_its_last_checkpoint(client, tmp_path):
    result = train(
        client,
        SlowLinear(KillOnce(tmp_path, has_server=True, after=3, staleness=1)),
        checkpoint_interval=0.05,
        max_staleness=1,
    )
    assert (tmp_path / "killed").exists()
    assert_converged(result)
    assert result.restarts == 1


def test_a_folder_of_checkpoints_continues(client, tmp_path):
    first = train(client, epochs=2, checkpoints=tmp_path / "new")
    result = train(client, checkpoints=tmp_path / "new")
    assert_converged(result)
    assert list(result.history[:2]) == list(first.history)


def test_a_damaged_checkpoint_costs_one_epoch(client, tmp_path):
    first = train(client, epochs=2, checkpoints=tmp_path)
    newest = tmp_path / "parameter-server.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.warns(UserWarning, match=r"parameter-server\.pt is not complete; the one before"):
        result = train(client, epochs=2, checkpoints=tmp_path)
    assert list(result.history[:1]) == list(first.history[:1])
    assert len(result.history) == 2
    for file in tmp_path.iterdir():
        file.write_bytes(b"")
    with pytest.warns(UserWarning, match="is not complete; training begins again"):
        result = train(client, epochs=1, checkpoints=tmp_path)
    assert len(result.history) == 1


def test_errors_of_batches_and_arguments(client):
    def fail(outputs, labels):
        raise ValueError("no such loss")

    with pytest.raises(TrainingFailed, match="ValueError: no such loss"):
        train(client, loss=fail)
    with pytest.raises(RequestError) as error:
        train(client, epochs=0, max_staleness=-1, checkpoint_interval=0, optimizer="sgd")
    for where in ("epochs", "max_staleness", "checkpoint_interval", "optimizer"):
        assert f" {where}" in str(error.value)
