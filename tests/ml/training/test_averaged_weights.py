"""Averages of weights after local epochs, weighted by rows."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import pytest

import hyperplane.ml
from hyperplane.errors import RequestError

torch = pytest.importorskip("torch")

from plain_training import SGD, X, Y, assert_equal_parameters, train  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.torch]
PLAIN_SGD = functools.partial(torch.optim.SGD, lr=0.1)
#: An odd number of rows: 42 and 43.
ROWS = 85


def make_model():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))


def average(client, model=None, **options):
    given = {"loss": torch.nn.MSELoss(), "optimizer": PLAIN_SGD, "logs": False}
    return hyperplane.ml.train_with_averaged_weights(
        client, model or make_model(), (X[:ROWS], Y[:ROWS]), **(given | options)
    )


def test_one_local_step_equals_synchronous_sgd(client, monkeypatch):
    """With all rows in a batch, the average of weights is a step with the average gradient."""
    result = average(client, rounds=10, batch_size=None)
    monkeypatch.setattr("plain_training.X", X[:ROWS])
    monkeypatch.setattr("plain_training.Y", Y[:ROWS])
    plain = make_model()
    losses = train(plain, PLAIN_SGD, 10, ROWS)
    assert [entry["train_loss"] for entry in result.history] == pytest.approx(losses, rel=1e-5)
    assert_equal_parameters(result.model, plain)
    assert [entry["round"] for entry in result.history] == list(range(1, 11))
    assert {entry["num_samples"] for entry in result.history} == {ROWS}
    assert all(entry["distance"] > 0 for entry in result.history)


def test_local_epochs_equal_an_average_in_one_process(client):
    """Two rounds of three epochs, compared with two models that are averaged by hand."""
    result = average(client, rounds=2, local_epochs=3, batch_size=10, shuffle=False, optimizer=SGD)
    models, x, y = [make_model(), make_model()], *(torch.tensor(each).float() for each in (X, Y))
    optimizers = [SGD(model.parameters()) for model in models]
    for _ in range(2):
        for model, optimizer, rows in zip(
            models, optimizers, (torch.arange(42), torch.arange(42, 85)), strict=True
        ):
            for _ in range(3):
                for batch in rows.split(10):
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(model(x[batch]), y[batch]).backward()
                    optimizer.step()
        with torch.no_grad():
            for one, two in zip(*(model.parameters() for model in models), strict=True):
                mean = (42 * one + 43 * two) / 85
                one.copy_(mean)
                two.copy_(mean)
    assert_equal_parameters(result.model, models[0])
    assert [entry["num_samples"] for entry in result.history] == [3 * ROWS] * 2
    assert result.history[1]["train_loss"] < result.history[0]["train_loss"]


class KillOnce(torch.nn.Module):
    """Kills its process once, in the third round."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.calls = folder, 0

    def forward(self, x):
        self.calls += 1
        file = Path(self.folder, "killed")
        if self.calls == 12 and os.environ["RANK"] == "1" and not file.exists():
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x


@pytest.mark.slow
def test_a_killed_rank_continues_from_the_last_round(client, tmp_path):
    """Buffers are averaged: BatchNorm has equal statistics in the result."""
    layers = [torch.nn.BatchNorm1d(6), *make_model()]
    options = {"rounds": 4, "batch_size": 10, "optimizer": SGD}
    result = average(
        client, torch.nn.Sequential(*layers, KillOnce(tmp_path)),
        checkpoints=tmp_path / "checkpoints", **options,
    )  # fmt: skip
    assert (tmp_path / "killed").exists()
    expected = average(
        client, torch.nn.Sequential(torch.nn.BatchNorm1d(6), *make_model()), **options
    )
    assert result.history == expected.history
    state, other = result.model.state_dict(), expected.model.state_dict()
    assert all(torch.equal(state[name], other[name]) for name in other)
    assert state["0.num_batches_tracked"] == 4 * 5


def test_all_faults_at_once(client):
    with pytest.raises(RequestError) as error:
        average(client, "model", rounds=0, local_epochs=0, n=0, seed=-1, max_retries=1.5)
    for where in ("model", "rounds", "local_epochs", "n", "seed", "max_retries"):
        assert f" {where} = " in str(error.value), str(error.value)
