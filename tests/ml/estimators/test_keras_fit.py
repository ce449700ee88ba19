"""A Keras model that two ranks train equals one that one process trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from keras_models import (
    create_wide_model,
    make_killer,
    make_model,
    make_rows,
)
from scale import FULL

from hyperplane.errors import GangFailed, RequestError
from hyperplane.ml import XShards
from hyperplane.orca.learn.tf2 import Estimator

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("keras_client"),
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def train_alone(model: Any, x: np.ndarray, y: np.ndarray, epochs: int, size: int) -> list[float]:
    """Train with the rows that two ranks have in each step; return the losses of the epochs."""
    half = len(x) // 2  # rank 0 has rows 0 to N // 2
    parts = np.arange(half), np.arange(half, len(x))
    steps = -(-max(map(len, parts)) // size)
    losses = []
    for _ in range(epochs):
        model.reset_metrics()
        for step in range(steps):
            chosen = np.concatenate([part[step * size : (step + 1) * size] for part in parts])
            model.train_step((tf.constant(x[chosen]), tf.constant(y[chosen])))
        losses.append(float(model.get_metrics_result()["loss"]))
    return losses


@pytest.mark.parametrize(
    ("optimizer", "size"),
    [
        ("SGD", 9),
        pytest.param(
            "Adam",
            4,
            marks=pytest.mark.skipif(not FULL, reason="Adam is in other tests: at full scale"),
        ),
    ],
)
def test_two_ranks_equal_one_process(optimizer: str, size: int) -> None:
    """Losses and weights are those of one process; the last step has a row on one rank only."""
    x, y = make_rows()
    make = getattr(keras.optimizers, optimizer)
    alone = make_model(make(0.05))
    losses = train_alone(alone, x, y, 2, size)
    model = make_model(make(0.05))
    estimator = Estimator.from_keras(keras_model=model)
    data = da.from_array(x, chunks=(20, 3)), da.from_array(y, chunks=(20, 1))
    history = estimator.fit(data, epochs=2, batch_size=2 * size, shuffle=False)
    assert history["loss"] == pytest.approx(losses, rel=1e-5)
    assert estimator.get_model() is model
    for mine, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(mine, expected, atol=2e-6)
    if optimizer == "SGD":
        found = estimator.evaluate((x, y), batch_size=8)
        expected = alone.evaluate(x, y, verbose=0, return_dict=True)
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_callbacks_and_validation(tmp_path: Path) -> None:
    """Callbacks act on values of all ranks; those that write files run on rank 0."""
    x, y = make_rows()
    file = tmp_path / "best.keras"
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=10.0, patience=1),
        keras.callbacks.ModelCheckpoint(file, save_best_only=True),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
    ]
    model = make_model("sgd", keras.layers.BatchNormalization())
    estimator = Estimator.from_keras(model, model_dir=tmp_path / "checkpoints")
    data = XShards.partition({"x": x, "y": y}, 3)
    history = estimator.fit(
        data, epochs=5, batch_size=18, callbacks=callbacks, validation_data=(x[:30], y[:30])
    )
    assert len(history["loss"]) == len(history["val_mae"]) == 2, "patience was 1"
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)
    found = model.evaluate(x[:30], y[:30], verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(history["val_loss"][-1], rel=1e-4)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert keras.models.load_model(file).count_params() == model.count_params()
    values = estimator.get_validation_summary("Loss")
    assert [value for _, value, _ in values] == history["val_loss"]
    assert [step for step, _, _ in values] == [5, 10], "9 rows of each rank in a step"
    again = Estimator.from_keras(make_model("sgd", keras.layers.BatchNormalization()))
    again.load_orca_checkpoint(tmp_path / "checkpoints")
    for mine, expected in zip(again.get_model().get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert int(again.get_model().optimizer.iterations) == 10


def test_lost_worker_restarts_from_the_last_checkpoint(tmp_path: Path) -> None:
    """With a creator and Adam: the losses are those of one process, and one epoch is repeated."""
    x, y = make_rows()
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
    data = dd.from_pandas(frame, npartitions=3)
    columns: dict[str, Any] = {"feature_cols": ["a", "b", "c"], "label_cols": ["y"]}
    estimator = Estimator.from_keras(model_creator=create_wide_model, config={"lr": 0.01})
    callbacks = [make_killer(str(tmp_path))]
    options: dict[str, Any] = {"batch_size": 16, "shuffle": False, "callbacks": callbacks}
    history = estimator.fit(data, epochs=3, **options, **columns)
    assert (tmp_path / "killed").exists()
    # The worker is killed after it has reported an epoch, in the next one at the latest.
    epochs = (tmp_path / "epochs").read_text().split()
    assert epochs in (["0", "1", "1", "2"], ["0", "1", "2", "2"])
    keras.utils.set_random_seed(0)  # that of ranks
    losses = train_alone(create_wide_model({"lr": 0.01}), x, y, 3, 8)
    assert history["loss"] == pytest.approx(losses, rel=1e-5)
    predicted = estimator.predict(data, feature_cols=["a", "b", "c"]).compute()
    assert list(predicted.columns) == ["a", "b", "c", "y", "prediction"]
    expected = estimator.get_model().predict(x, verbose=0).reshape(-1)
    np.testing.assert_allclose(predicted["prediction"], expected, atol=1e-5)


def test_datasets() -> None:
    """A dataset equals arrays, batch by batch."""
    x, y = make_rows()
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    estimator = Estimator.from_keras(make_model())
    losses = estimator.fit(dataset, epochs=2, batch_size=16)["loss"]
    alone = make_model()
    expected = alone.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses == pytest.approx(expected, rel=1e-5)
    inputs = dataset.map(lambda a, _: a).batch(10)
    np.testing.assert_allclose(estimator.predict(inputs), alone.predict(x, verbose=0), atol=1e-5)


def test_a_model_dir_that_cannot_be_written(tmp_path: Path) -> None:
    """Nothing was started, and there were no restarts."""
    (tmp_path / "file").touch()
    estimator = Estimator.from_keras(make_model(), model_dir=tmp_path / "file" / "models")
    with pytest.raises(RequestError, match="a parent of the path is a file") as caught:
        estimator.fit(make_rows(), batch_size=16)
    assert [fault.where for fault in caught.value.faults] == ["model_dir"]


def test_error_of_a_rank() -> None:
    """The error of a creator is that of the call, and would occur again after a restart."""
    estimator = Estimator.from_keras(model_creator=lambda config: config["missing"])
    with pytest.raises(GangFailed) as caught:
        estimator.fit(make_rows(), batch_size=16)
    assert caught.value.restarts == 0
    assert isinstance(caught.value.__cause__, KeyError)
