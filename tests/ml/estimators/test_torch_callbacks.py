"""Callbacks of the estimator of PyTorch, Orca's optimizers, and files for TensorBoard."""

from __future__ import annotations

import os
import signal
import sys

import cloudpickle
import numpy as np
import pytest

from hyperplane.errors import RequestError
from hyperplane.ml import Estimator
from hyperplane.orca.learn import optimizers
from hyperplane.orca.learn.optimizers import schedule
from hyperplane.orca.learn.pytorch.callbacks import Callback, MainCallback
from hyperplane.orca.learn.pytorch.callbacks.model_checkpoint import ModelCheckpoint
from hyperplane.orca.learn.pytorch.callbacks.tensorboard import TensorBoardCallback

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.usefixtures("local_ranks")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(32, 2)).astype(np.float32)
Y = (X @ np.array([[1.0], [-1.0]])).astype(np.float32)


def make_model(config=None):
    torch.manual_seed(2)
    return torch.nn.Linear(2, 1)


def create(**options):
    return Estimator.from_torch(
        **{
            "model": make_model,
            "optimizer": lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
            "loss": torch.nn.MSELoss(),
            "backend": "ray",
            "ranks": 2,
            "log_to_driver": False,
            **options,
        }
    )


def get_losses(estimator):
    return [value for _, value, _ in estimator.get_train_summary("Loss")]


class Recorder(Callback):
    """Writes the names of the methods that a rank calls."""

    def __init__(self, folder):
        self.folder = folder

    def _write(self, runner, name):
        with (self.folder / f"{runner.rank}").open("a") as file:
            file.write(f"{name} {runner.epochs} {runner.global_step}\n")

    def before_run(self, runner):
        runner.put("count", 0)
        self._write(runner, "run")

    def after_run(self, runner):
        self._write(runner, f"end {runner.get('count')}")

    def before_epoch(self, runner):
        self._write(runner, "epoch")

    def after_train_epoch(self, runner):
        assert set(runner.epoch_stats) == {"epoch", "num_samples", "train_loss", "val_loss"}
        self._write(runner, "trained")

    def after_train_iter(self, runner):
        assert runner.metrics_stats["num_samples"] == 8
        assert len(runner.batch) == 2
        assert runner.output.shape == runner.target.shape == (8, 1)
        runner.update("count", runner.get("count") + 1)

    def after_val_epoch(self, runner):
        self._write(runner, "validated")


class StopInSecondRank(Callback):
    """Ends the training in a step or an epoch; by default before the first."""

    def before_train_iter(self, runner):
        if runner.rank == 1 and self.epoch == self.step:
            runner.stop = True

    def __init__(self, epoch=None, step=None):
        self.epoch, self.step = epoch, step

    def after_train_epoch(self, runner):
        if runner.rank == 1 and runner.epochs == self.epoch:
            runner.stop = True

    def after_train_iter(self, runner):
        if runner.rank == 1 and runner.global_step == self.step:
            runner.stop = True


def test_all_ranks_call_the_methods_in_order(tmp_path):
    create().fit(
        (X, Y), epochs=2, batch_size=8, validation_data=(X, Y), callbacks=[Recorder(tmp_path)]
    )
    expected = [
        "run 0 0",
        *("epoch 0 0", "epoch 0 2", "validated 0 2", "trained 1 2"),
        *("epoch 1 2", "epoch 1 4", "validated 1 4", "trained 2 4"),
        "end 4 2 4",
    ]
    for rank in "01":
        assert (tmp_path / rank).read_text().splitlines() == expected
    create().evaluate((X, Y), batch_size=8, callbacks=[Recorder(tmp_path)])
    assert (tmp_path / "1").read_text().splitlines()[-2:] == ["epoch 0 0", "validated 0 0"]


def test_one_rank_stops_all():
    history = create().fit((X, Y), epochs=5, batch_size=8, callbacks=[StopInSecondRank(epoch=2)])
    assert [stats["epoch"] for stats in history] == [1, 2]
    estimator = create()
    estimator.fit((X, Y), epochs=5, batch_size=8, callbacks=[StopInSecondRank(step=3)])
    assert len(get_losses(estimator)) == 3
    estimator = create()
    estimator.fit((X, Y), batch_size=4, callbacks=[StopInSecondRank()])
    assert len(get_losses(estimator)) == 1


class KillFirstRank(Callback):
    """Kills rank 0 after its last epoch, once."""

    def after_run(self, runner):
        if runner.rank == 0 and os.environ["HYPERPLANE_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("moment", "steps"), [({"epoch": 2}, 4), ({"step": 3}, 3)])
def test_training_that_was_stopped_does_not_continue_after_a_restart(moment, steps):
    estimator = create()
    history = estimator.fit(
        (X, Y), epochs=5, batch_size=8, callbacks=[StopInSecondRank(**moment), KillFirstRank()]
    )
    assert [stats["epoch"] for stats in history] == [1, 2]
    assert len(get_losses(estimator)) == steps
    assert [stats["epoch"] for stats in estimator.fit((X, Y), batch_size=8)] == [3]


def test_checkpoints_are_written_after_epochs_and_steps(tmp_path):
    by_epoch = ModelCheckpoint(str(tmp_path / "epochs" / "net-{epoch:02d}"))
    by_step = ModelCheckpoint(
        tmp_path / "steps" / "net-{iter}", by_epoch=False, interval=3, save_weights_only=True
    )
    estimator = create()
    estimator.fit((X, Y), epochs=2, batch_size=8, callbacks=[by_epoch, by_step])
    assert sorted(file.name for file in (tmp_path / "epochs").iterdir()) == [
        "last.ckpt", "net-epoch=01.ckpt", "net-epoch=02.ckpt",
    ]  # fmt: skip
    assert sorted(file.name for file in (tmp_path / "steps").iterdir()) == [
        "last.ckpt", "net-iter=3.ckpt",
    ]  # fmt: skip
    other = create()
    other.load_checkpoint(Estimator.latest_checkpoint(tmp_path / "epochs"))
    for name, value in estimator.get_model().state_dict().items():
        torch.testing.assert_close(other.get_model().state_dict()[name], value)
    assert other.fit((X, Y), batch_size=8)[0]["epoch"] == 3
    with pytest.raises(RequestError, match=r"a folder with last\.ckpt"):
        Estimator.latest_checkpoint(tmp_path)


class Doubled(MainCallback):
    """Trains with twice the loss, and without clipping."""

    def on_iter_forward(self, runner):
        features, runner.target = runner.batch
        runner.output = runner.model(features)
        runner.loss = 2 * runner.criterion(runner.output, runner.target)

    def on_iter_backward(self, runner):
        runner.optimizer.zero_grad()
        runner.loss.backward()
        runner.optimizer.step()


def test_a_main_callback_replaces_the_passes_of_a_step():
    estimator = create()
    estimator.fit((X, Y), epochs=2, batch_size=8, callbacks=[Doubled()])
    twice = create(loss=lambda output, label: 2 * functional.mse_loss(output, label))
    twice.fit((X, Y), epochs=2, batch_size=8)
    np.testing.assert_allclose(get_losses(estimator), get_losses(twice), rtol=1e-5)


def test_faults_of_callbacks_are_listed_at_once():
    with pytest.raises(RequestError) as caught:
        create().fit((X, Y), callbacks=[3, MainCallback(), Doubled()], epochs=0)
    assert [fault.where for fault in caught.value.faults] == [
        "epochs", "callbacks[0]", "callbacks",
    ]  # fmt: skip
    with pytest.raises(RequestError) as caught:
        ModelCheckpoint("net-{loss}", by_epoch=1, interval=0.5)
    assert {fault.where for fault in caught.value.faults} == {"by_epoch", "interval"}
    with pytest.raises(RequestError, match="no other fields"):
        ModelCheckpoint("net-{loss}")
    with pytest.raises(RequestError) as caught:
        TensorBoardCallback(3, freq="step")
    assert {fault.where for fault in caught.value.faults} == {"log_dir", "freq"}


def read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_files_for_tensorboard_have_the_values_of_steps_and_epochs(tmp_path):
    pytest.importorskip("tensorboard")
    estimator = create(metrics=["mae"])
    estimator.set_tensorboard(tmp_path, "app")
    callbacks = [TensorBoardCallback(tmp_path / "epochs"), TensorBoardCallback(tmp_path / "b", 2)]
    for number in range(2):
        history = estimator.fit(
            (X, Y), epochs=2, batch_size=8, validation_data=(X, Y), callbacks=callbacks
        )
        train = read_events(tmp_path / "app" / "train")
        assert set(train) == {"Loss", "LearningRate", "Throughput"}
        steps = range(1, 4 * number + 5)
        assert [step for step, _ in train["Loss"]] == list(steps)
        np.testing.assert_allclose([v for _, v in train["Loss"]], get_losses(estimator), rtol=1e-6)
    validation = read_events(tmp_path / "app" / "validation")
    assert [step for step, _ in validation["mae"]] == [2, 4, 6, 8]
    assert validation["Loss"][-1][1] == pytest.approx(history[-1]["val_loss"])
    epochs = read_events(tmp_path / "epochs")
    assert [step for step, _ in epochs["val_mae"]] == [1, 2, 3, 4]
    assert epochs["train_loss"][-1][1] == pytest.approx(history[-1]["train_loss"])
    assert [step for step, _ in read_events(tmp_path / "b")["train_loss"]] == [2, 4, 6, 8]


def minimize(optimizer, scheduler=None, steps=4):
    """Return the weights after some steps with all rows."""
    model = make_model()
    chosen = optimizer(model.parameters())
    planned = scheduler(chosen) if scheduler else None
    for _ in range(steps):
        chosen.zero_grad()
        functional.mse_loss(model(torch.tensor(X)), torch.tensor(Y)).backward()
        chosen.step()
        if planned:
            planned.step()
    return model.weight


@pytest.mark.parametrize(
    ("given", "expected", "rates"),
    [
        (optimizers.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1), None),
        (
            optimizers.SGD(0.1, momentum=0.9, learningrate_schedule=schedule.Poly(2, 8)),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.9),
            lambda step: (1 - step / 8) ** 2,
        ),
        (
            optimizers.Adam(0.1, learningrate_decay=0.5, beta1=0.8),
            lambda p: torch.optim.Adam(p, 0.1, betas=(0.8, 0.999)),
            lambda step: 1 / (1 + 0.5 * step),
        ),
        (
            optimizers.SGD(0.1, learningrate_schedule=schedule.MultiStep([1, 3], 0.5)),
            lambda p: torch.optim.SGD(p, 0.1),
            [1, 0.5, 0.5, 0.25, 0.25].__getitem__,
        ),
        (optimizers.Adagrad(0.1), lambda p: torch.optim.Adagrad(p, 0.1), None),
        (optimizers.Adadelta(), lambda p: torch.optim.Adadelta(p, 1.0, 0.9, 1e-10), None),
        (optimizers.Adamax(), lambda p: torch.optim.Adamax(p, eps=1e-38), None),
        (optimizers.ParallelAdam(), lambda p: torch.optim.Adam(p), None),
        (optimizers.RMSprop(), lambda p: torch.optim.RMSprop(p), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_optimizers_of_orca_take_the_steps_of_those_of_pytorch(given, expected, rates, tmp_path):
    scheduler = None
    if rates:
        scheduler = lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rates)  # noqa: E731
    model = make_model()
    estimator = create(model=model, optimizer=given, ranks=1, backend="bigdl")
    estimator.fit((X, Y), epochs=2, batch_size=32)
    other = create(model=model, optimizer=given, ranks=1, backend="bigdl")
    other.load_checkpoint(estimator.save_checkpoint(tmp_path / "state.pt"))
    other.fit((X, Y), epochs=2, batch_size=32)
    wanted = minimize(expected, scheduler)
    torch.testing.assert_close(other.get_model().weight, wanted, rtol=1e-4, atol=1e-6)


def test_schedules_of_orca_have_the_documented_rates():
    def rates(given, count=5):
        return [round(given.get_rate(step, 1.0), 4) for step in range(count)]

    assert rates(schedule.Exponential(2, 0.25, stair_case=True)) == [1, 1, 0.25, 0.25, 0.0625]
    assert rates(schedule.Exponential(2, 0.25), 3) == [1, 0.5, 0.25]
    assert rates(schedule.Step(2, 0.1), 4) == [1, 1, 0.1, 0.1]
    assert rates(schedule.Warmup(0.5), 3) == [1, 1.5, 2]
    assert rates(schedule.Poly(1, 2), 4) == [1, 0.5, 0, 0]
    plateau = schedule.Plateau("Loss", factor=0.5, patience=0, epsilon=1e9)
    estimator = create(optimizer=optimizers.SGD(0.1, learningrate_schedule=plateau))
    estimator.fit((X, Y), epochs=3, batch_size=16)
    found = [value for _, value, _ in estimator.get_train_summary("LearningRate")]
    np.testing.assert_allclose(found, [0.1, 0.1, 0.05])  # the first loss is an improvement


def test_faults_of_optimizers_are_listed_at_once():
    with pytest.raises(RequestError) as caught:
        optimizers.SGD(-1, momentum="a", learningrate_schedule=3)
    assert {fault.where for fault in caught.value.faults} == {
        "learningrate", "momentum", "learningrate_schedule",
    }  # fmt: skip
    with pytest.raises(RequestError, match="a momentum above 0"):
        optimizers.SGD(nesterov=True)
    with pytest.raises(RequestError) as caught:
        schedule.MultiStep([0, 1.5], "a")
    assert {fault.where for fault in caught.value.faults} == {
        "gamma", "step_sizes[0]", "step_sizes[1]",
    }  # fmt: skip
    with pytest.raises(RequestError, match="a schedule other than Plateau"):
        schedule.SequentialSchedule(1).add(schedule.Plateau(), 3)
    with pytest.raises(RequestError, match="the optimizer has a schedule"):
        create(
            optimizer=optimizers.Adam(learningrate_decay=0.1),
            scheduler_creator=lambda optimizer, config: None,
        )
