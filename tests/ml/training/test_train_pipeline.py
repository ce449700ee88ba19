"""Pipeline stages: equal to the undivided network, also after a process was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import hyperplane.ml
from hyperplane.errors import GangFailed, RequestError

torch = pytest.importorskip("torch")

from plain_training import ADAM, SGD, X, Y, assert_equal_parameters, draw_order, train  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.torch]


def make_stages():
    torch.manual_seed(1)
    return [
        torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh()),
        torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)),
    ]


def train_pipeline(client, stages=None, **options):
    given = {"loss": torch.nn.MSELoss(), "optimizer": SGD, "epochs": 2, "batch_size": 20}
    given |= {"micro_batches": 4, "logs": False, **options}
    stages = make_stages() if stages is None else stages
    return hyperplane.ml.train_pipeline(client, stages, (X, Y), **given)


@pytest.mark.parametrize(
    ("optimizer", "order"), [(SGD, None), (ADAM, draw_order)], ids=["in order", "shuffled"]
)
def test_stages_equal_the_undivided_network(client, optimizer, order):
    """Ten steps in two epochs: four batches of 20 rows, and one of 6."""
    stages = make_stages()
    before = [value.clone() for stage in stages for value in stage.parameters()]
    result = train_pipeline(client, stages, optimizer=optimizer, shuffle=order is not None)
    undivided = torch.nn.Sequential(*make_stages())
    losses = train(undivided, optimizer, 2, 20, order=order)
    assert [entry["train_loss"] for entry in result.history] == pytest.approx(losses, rel=1e-5)
    assert [entry["epoch"] for entry in result.history] == [1, 2]
    assert {entry["num_samples"] for entry in result.history} == {86}
    assert_equal_parameters(result.model, undivided)
    after = [value for stage in stages for value in stage.parameters()]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


class KilledOnce(torch.nn.Module):
    """Kills its process in the third epoch, the first time."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.calls = folder, 0

    def forward(self, x):
        self.calls += 1
        file = Path(self.folder, "killed")
        if self.calls > 2 * (4 * 4 + 3) + 5 and not file.exists():
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x


def test_a_killed_stage_continues_from_the_last_epoch(client, tmp_path):
    # In double precision: 25 steps with single precision can differ by 5e-6, by rounding alone.
    stages = [stage.double() for stage in make_stages()]
    stages[1].append(KilledOnce(tmp_path))
    checkpoints = tmp_path / "checkpoints"
    result = train_pipeline(client, stages, epochs=4, checkpoints=checkpoints)
    assert (tmp_path / "killed").exists()
    undivided = torch.nn.Sequential(*make_stages()).double()
    losses = pytest.approx(train(undivided, SGD, 5, 20, order=draw_order), rel=1e-5)
    names = {file.name for file in checkpoints.iterdir()}
    assert names == {f"rank-{rank}-epoch-{epoch}.pt" for rank in range(2) for epoch in (3, 4)}
    # The same folder again: the rest of the epochs, without the newest file of one process.
    damaged = checkpoints / "rank-1-epoch-4.pt"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    (checkpoints / "rank-1-epoch-best.pt").touch()
    same = [stage.double() for stage in make_stages()]
    more = train_pipeline(client, same, epochs=5, checkpoints=checkpoints)
    assert more.history[:4] == result.history
    assert [entry["train_loss"] for entry in more.history] == losses
    assert_equal_parameters(more.model, undivided)
    with pytest.raises(GangFailed, match="of another training"):
        hyperplane.ml.train_column_parts(
            client, [torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)], [slice(0, 3), slice(3, 6)],
            (X, Y), loss=torch.nn.MSELoss(), optimizer=SGD, checkpoints=checkpoints, logs=False,
            max_retries=0,
        )  # fmt: skip


def test_all_faults_at_once(client):
    shared = torch.nn.Linear(6, 6)
    with pytest.raises(RequestError) as error:
        hyperplane.ml.train_pipeline(
            client, [shared, shared], X, loss="mse", optimizer=SGD, epochs=0, micro_batches=-1,
            checkpoints="gs://bucket/x",
        )  # fmt: skip
    text = str(error.value)
    for where in ("loss", "epochs", "micro_batches", "checkpoints", "stages[1]", "data"):
        assert f" {where}" in text, text
    with pytest.raises(RequestError, match="optimizer"):
        train_pipeline(client, optimizer=lambda parameters: list(parameters))
    with pytest.raises(RequestError, match=r"stages\[0\]"):
        train_pipeline(client, ["first", torch.nn.Linear(1, 1)])
    with pytest.raises(RequestError, match=r"len\(stages\) = 3: .* threads"):
        train_pipeline(client, [torch.nn.Linear(6, 6) for _ in range(3)])
