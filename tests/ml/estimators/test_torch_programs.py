"""Programs of users: losses, several outputs, batches, samplers, types of data, and errors."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import cloudpickle
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.delayed import delayed

from hyperplane.errors import DataError, GangFailed, RequestError
from hyperplane.ml import Estimator, XShards
from hyperplane.orca.learn.pytorch.callbacks import Callback

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.usefixtures("local_ranks")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(50, 3)).astype(np.float32)
Y = (X @ np.array([[0.5], [1.0], [-2.0]]) - 0.2).astype(np.float32)
CLASSES = (np.arange(50) // 20).astype(np.int64)


class Two(nn.Module):
    """A model with two outputs."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 1), nn.Linear(3, 2)

    def forward(self, x):
        return self.first(x), self.second(x)


def make_model(outputs=1):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs))


def make_optimizer(model, config):
    kind = torch.optim.Adam if config.get("adam") else torch.optim.SGD
    return kind(model.parameters(), lr=0.05)


def create(model=None, **options):
    model = model or make_model
    return Estimator.from_torch(
        **{
            "model": lambda config: model(),
            "optimizer": make_optimizer,
            "loss": nn.MSELoss(),
            "backend": "ray",
            "ranks": 2,
            "log_to_driver": False,
            **options,
        }
    )


def train_alone(model, loss, labels, epochs=2, batch=16, config=None):
    """Train in this process with the rows of two ranks; return the losses of steps."""
    optimizer, losses = make_optimizer(model, config or {}), []
    for _ in range(epochs):
        for start in range(0, 25, batch):
            half = np.arange(start, min(25, start + batch))
            rows = np.concatenate([half, half + 25])
            optimizer.zero_grad()
            value = loss(model(torch.tensor(X[rows])), *[torch.tensor(y[rows]) for y in labels])
            value.backward()
            optimizer.step()
            losses.append(value.item())
    return losses


def get_losses(estimator):
    return [value for _, value, _ in estimator.get_train_summary("Loss")]


def ignore_some(labels):
    changed = labels.copy()
    changed[[0, 1, 2, 30]] = -100
    return changed


@pytest.mark.parametrize("adam", [False, True])
def test_two_ranks_take_the_steps_of_one_process(adam):
    estimator = create(config={"adam": adam})
    estimator.fit((X, Y), epochs=3, batch_size=16)
    expected = train_alone(make_model(), functional.mse_loss, [Y], 3, config={"adam": adam})
    np.testing.assert_allclose(get_losses(estimator), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2])), CLASSES),
        (nn.CrossEntropyLoss(), ignore_some(CLASSES)),
        (nn.CrossEntropyLoss(weight=torch.tensor([2.0, 0.5, 1.0]), label_smoothing=0.1), CLASSES),
        (nn.CrossEntropyLoss(reduction="sum"), CLASSES),
        (nn.CrossEntropyLoss(), np.eye(3, dtype=np.float32)[CLASSES]),
    ],
    ids=["weights", "ignored", "smoothing", "sum", "probabilities"],
)
def test_losses_with_weights_of_labels_equal_those_of_one_process(loss, labels):
    estimator = create(lambda: make_model(3), loss=loss)
    history = estimator.fit((X, labels), epochs=2, batch_size=16, validation_data=(X, labels))
    model = make_model(3)
    expected = train_alone(model, loss, [labels])
    np.testing.assert_allclose(get_losses(estimator), expected, rtol=1e-4)
    whole = loss(model(torch.tensor(X)), torch.tensor(labels)).item()
    rows = 50 if loss.reduction == "sum" else 1
    assert history[-1]["val_loss"] == pytest.approx(whole / rows, rel=1e-4)


def test_a_rank_whose_labels_are_all_ignored_adds_nothing():
    labels = CLASSES.copy()
    labels[:25] = -100
    estimator = create(lambda: make_model(3), loss=nn.CrossEntropyLoss())
    estimator.fit((X, labels), batch_size=16)
    expected = train_alone(make_model(3), nn.CrossEntropyLoss(), [labels], epochs=1)
    np.testing.assert_allclose(get_losses(estimator), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "loss",
    [
        lambda first, second, y, z: functional.mse_loss(first, y) + functional.l1_loss(second, z),
        lambda pair, y, z: functional.mse_loss(pair[0], y) + functional.l1_loss(pair[1], z),
    ],
    ids=["arguments", "tuple"],
)
def test_several_outputs_are_arguments_of_the_loss_or_a_tuple(loss):
    labels = (Y, X[:, :2])
    estimator = create(Two, loss=loss, metrics=["mse", lambda pair, labels: len(labels)])
    estimator.fit((X, labels), batch_size=16)
    torch.manual_seed(0)
    model = Two()

    def expected_loss(pair, y, z):
        return functional.mse_loss(pair[0], y) + functional.l1_loss(pair[1], z)

    expected = train_alone(model, expected_loss, labels, epochs=1)
    np.testing.assert_allclose(get_losses(estimator), expected, rtol=1e-4)
    result = estimator.evaluate((X, labels))
    known = np.square(model(torch.tensor(X))[0].detach().numpy() - Y).mean()
    assert result["MSE"] == pytest.approx(known, rel=1e-3)
    assert result["<lambda>"] == 2


def test_several_outputs_are_predicted_in_the_form_of_the_data():
    estimator = create(Two)
    first, second = estimator.predict(X)
    lazy = estimator.predict(da.from_array(X, chunks=(20, 3)))
    np.testing.assert_allclose(lazy[1].compute(), second, atol=1e-6)
    shards = XShards([delayed({"x": X[:30]}), delayed({"x": X[:0]}), delayed({"x": X[30:]})])
    found = estimator.predict(shards).collect()
    np.testing.assert_allclose(np.concatenate([s["output_0"] for s in found]), first, atol=1e-6)
    assert [each["output_1"].shape for each in found] == [(30, 2), (0, 2), (20, 2)]
    lists = pd.array(X.tolist(), dtype=pd.ArrowDtype(pa.list_(pa.float64())))
    frame = pd.DataFrame({"x": lists})
    table = dd.from_pandas(frame, npartitions=3)
    named = estimator.predict(table, feature_cols="x", output_cols=["a", "b"])
    assert named.columns.tolist() == ["x", "a", "b"]
    computed = named.compute()
    np.testing.assert_allclose(computed["a"], first[:, 0], atol=1e-6)
    np.testing.assert_allclose(np.stack(computed["b"].to_list()), second, atol=1e-6)
    parts = estimator.predict(XShards([delayed(frame)]), feature_cols=["x"]).collect()
    assert parts[0].columns.tolist() == ["x", "output_0", "output_1"]
    with pytest.raises(RequestError, match="2 names: the model has 2 outputs"):
        estimator.predict(frame, feature_cols="x", output_cols="a")
    with pytest.raises(RequestError, match="only predictions of tables"):
        estimator.predict(X, output_cols=["a", "b"])


def test_parameters_without_gradients_do_not_prevent_training():
    estimator = create(Two, loss=lambda pair, y: functional.mse_loss(pair[0], y))
    estimator.fit((X, Y), epochs=2, batch_size=16)
    torch.manual_seed(0)
    model = Two()
    expected = train_alone(model, lambda pair, y: functional.mse_loss(pair[0], y), [Y])
    np.testing.assert_allclose(get_losses(estimator), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_floats_get_the_type_of_the_weights(kind):
    estimator = create(lambda: make_model().to(kind), metrics="mse")
    for data in ((X, Y), (X.astype(np.float16), Y.astype(float))):
        history = estimator.fit(data, batch_size=16, validation_data=data)
        assert history[0]["val_mse"] < 10
    assert estimator.predict(X).shape == (50, 1)


def test_images_with_batch_normalization_and_a_rank_without_rows():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.2))
            self.last = nn.Linear(2 * 4, 3)
            self.register_buffer("mask", torch.ones(4).bool())

        def forward(self, x):
            return self.last((self.layers(x) * self.mask[:2]).view(x.size(0), -1))

    images = RANDOM.normal(size=(9, 1, 4, 4)).astype(np.float32) + 3
    estimator = create(Net, loss=nn.CrossEntropyLoss(), metrics=["accuracy"])
    data = {"x": da.from_array(images, chunks=(4, 1, 4, 4)), "y": da.from_array(CLASSES[:9], 4)}
    history = estimator.fit(data, batch_size=2, validation_data=data)
    state = estimator.get_state_dict()["model"]
    # Rank 0 has 4 rows, so two steps; a third one, in which it has none, changes no statistics.
    assert state["layers.1.num_batches_tracked"] == 2
    assert estimator.evaluate(data)["val_loss"] == pytest.approx(history[0]["val_loss"])
    shards = XShards([delayed({"x": images[:0]}), delayed({"x": images})])
    found = estimator.predict(shards).collect()
    assert [len(each["prediction"]) for each in found] == [0, 9]


class Samples(torch.utils.data.Dataset):
    """Rows in a given form."""

    def __init__(self, form):
        self.form = form

    def __len__(self):
        return 50

    def __getitem__(self, number):
        return self.form(torch.tensor(X[number]), torch.tensor(Y[number]))


class Named(nn.Module):
    """A model of a dictionary."""

    def __init__(self):
        super().__init__()
        self.layers = make_model()

    def forward(self, inputs):
        return self.layers(inputs["x"])


def test_batches_of_dictionaries_and_of_several_labels():
    expected = create()
    expected.fit(Samples(lambda x, y: (x, y)), batch_size=16)
    for form, options in (
        (lambda x, y: ({"x": x}, y), {"model": Named}),
        (
            lambda x, y: (x, (y, y)),
            {"loss": lambda o, a, b: (functional.mse_loss(o, a) + functional.mse_loss(o, b)) / 2},
        ),
        (lambda x, y: ((x.double(),), [y]), {}),
    ):
        estimator = create(**options)
        estimator.fit(Samples(form), batch_size=16)
        np.testing.assert_allclose(get_losses(estimator), get_losses(expected), rtol=1e-5)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Samples(lambda x, y: {"x": x, "y": y}), "dict with the keys"),
        (Samples(lambda x, y: x), "a batch is a Tensor"),
        (lambda config, batch_size: [(X, Y)], "the function has returned a list"),
    ],
)
def test_batches_of_another_form_are_an_error_without_restarts(data, words):
    with pytest.raises(GangFailed, match=words) as caught:
        create().fit(data, batch_size=8)
    assert "after 0 restarts" in str(caught.value)


@pytest.mark.parametrize("count", [3, 0])
def test_data_without_a_batch_is_an_error_without_restarts(count):
    dataset = torch.utils.data.TensorDataset(torch.tensor(X[:count]), torch.tensor(Y[:count]))

    def make_loader(config, batch_size):
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size, drop_last=True)

    with pytest.raises(GangFailed, match=f"no batch: the data has {count} samples") as caught:
        create().fit(make_loader, batch_size=8, max_steps=2)
    assert "after 0 restarts" in str(caught.value)


def test_samplers_of_the_user_choose_the_samples():
    dataset = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    subset = torch.utils.data.SubsetRandomSampler(range(9))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=subset)
    estimator = create()
    history = estimator.fit(loader, epochs=2)
    assert [stats["num_samples"] for stats in history] == [10, 10]
    assert estimator.evaluate(loader)["num_samples"] == 9

    def make_loader(config, batch_size):
        weights = torch.zeros(50)
        weights[7] = 1
        sampler = torch.utils.data.WeightedRandomSampler(weights, 12)
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=sampler)

    estimator = create()
    history = estimator.fit(make_loader, batch_size=6)
    only = functional.mse_loss(make_model()(torch.tensor(X[7:8])), torch.tensor(Y[7:8])).item()
    assert history[0]["num_samples"] == 12
    assert history[0]["train_loss"] == pytest.approx(only, rel=1e-4)


def test_a_scheduler_of_plateaus_gets_the_loss():
    estimator = create(
        scheduler_creator=lambda optimizer, config: torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, patience=0, factor=0.1, threshold=0.99
        )
    )
    estimator.fit((X, Y), epochs=3, batch_size=25, validation_data=(X, Y))
    rates = [value for _, value, _ in estimator.get_train_summary("LearningRate")]
    np.testing.assert_allclose(rates, [0.05, 0.05, 0.005])


def test_errors_of_programs_are_not_repeated_and_unsupported_objects_are_refused(tmp_path):
    with pytest.raises(GangFailed, match="mat1 and mat2") as caught:
        create().fit((X[:, :2], Y), batch_size=8)
    assert "after 0 restarts" in str(caught.value)
    for broken, words in (
        (lambda output, label: (output - label) ** 2, r"tensor of the shape \(8, 1\)"),
        (lambda output, label: functional.binary_cross_entropy(output, label), "between 0 and 1"),
    ):
        with pytest.raises(GangFailed, match=words) as caught:
            create(loss=broken).fit((X, Y), batch_size=8)
        assert "after 0 restarts" in str(caught.value)
    with pytest.raises(GangFailed, match="division by zero") as caught:
        create(metrics=lambda output, label: 1 / 0).fit((X, Y), validation_data=(X, Y))
    assert "after 0 restarts" in str(caught.value)
    with pytest.raises(RequestError, match="reduction='none'"):
        create(loss=nn.MSELoss(reduction="none"))
    with pytest.raises(GangFailed, match="LBFGS computes the loss several times"):
        create(optimizer=lambda model, config: torch.optim.LBFGS(model.parameters())).fit((X, Y))
    lists = pd.array([[1.0], [1.0, 2.0]], dtype=pd.ArrowDtype(pa.list_(pa.float64())))
    with pytest.raises(DataError, match="different lengths: 1, 2"):
        create().predict(pd.DataFrame({"x": lists}), feature_cols="x")
    with pytest.raises(RequestError, match="a path in an existing folder"):
        create().save(tmp_path / "none" / "model.pt")
    estimator = create(Two)
    estimator.save(tmp_path / "entire.pt", entire=True)
    with pytest.raises(RequestError, match="without entire=True"):
        estimator.load(tmp_path / "entire.pt")
    estimator.load(estimator.save_checkpoint(tmp_path / "state.pt"))
    with pytest.warns(UserWarning, match="no effect: prefix"), pytest.raises(RequestError):
        estimator.load_orca_checkpoint(tmp_path, version=4, prefix="optimMethod")


def test_num_steps_limits_an_evaluation_and_a_class_is_a_model():
    estimator = Estimator.from_torch(
        model=Two,
        loss=lambda pair, y: functional.mse_loss(pair[0], y),
        ranks=2,
        log_to_driver=False,
    )
    assert estimator.evaluate((X, Y), batch_size=5, num_steps=2)["num_samples"] == 20


def test_weights_of_other_models_and_files_with_code_are_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
    with pytest.raises(RequestError, match="weights of the model"):
        create().load(tmp_path / "other.pt")
    torch.save(Path, tmp_path / "code.pt")
    with pytest.raises(RequestError, match="a file with weights only"):
        create().load(tmp_path / "code.pt")
    with pytest.raises(RequestError, match="an existing file"):
        create().load(tmp_path / "none.pt")


class EndOnce(Callback):
    """Kill rank 1 after the second epoch, unless it was restarted."""

    def after_train_epoch(self, runner):
        is_restart = os.environ["HYPERPLANE_RESTART_COUNT"] != "0"
        if runner.rank == 1 and runner.epochs == 2 and not is_restart:
            os.kill(os.getpid(), signal.SIGKILL)


def test_ranks_on_other_hosts_continue_from_the_checkpoint_of_rank_0():
    def use_own_folder():  # as on hosts without a shared one
        os.environ["HYPERPLANE_CHECKPOINTS"] += f"/host-{os.environ['RANK']}"

    options = {"initialization_hook": use_own_folder, "config": {"adam": True}}
    expected = create(**options)
    expected.fit((X, Y), epochs=3, batch_size=8)
    estimator = create(**options, max_retries=1)
    history = estimator.fit((X, Y), epochs=3, batch_size=8, callbacks=[EndOnce()])
    assert [stats["epoch"] for stats in history] == [1, 2, 3]
    np.testing.assert_allclose(get_losses(estimator), get_losses(expected), rtol=1e-6)
