"""Arguments of estimators of Keras that are refused, without a cluster; their files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from keras_models import make_model, make_rows

from hyperplane.core.permanent_errors import is_permanent, mark_permanent_errors
from hyperplane.errors import ReadError, RequestError
from hyperplane.ml.estimators.keras_batches import begin_at, find_start
from hyperplane.ml.estimators.keras_checkpoints import (
    RATE,
    STEP,
    TIME,
    VALIDATED,
    CheckpointFolder,
    FitProgress,
    encode_state,
    read_progress,
)
from hyperplane.ml.estimators.keras_graphs import pack_checked
from hyperplane.ml.estimators.keras_model import (
    KerasModel,
    find_loss_fault,
    load_archive,
    pack_model,
)
from hyperplane.ml.estimators.keras_prediction import add_columns
from hyperplane.ml.estimators.keras_rank_callbacks import choose_callbacks
from hyperplane.ml.estimators.keras_requests import find_fit_faults
from hyperplane.ml.estimators.triggers import SeveralIteration
from hyperplane.orca.learn.tf2 import Estimator

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def test_all_faults_at_once() -> None:
    """Every wrong argument is named."""
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(RequestError) as caught:
        Estimator.from_keras(
            model, model_creator=model, backend="mxnet", ranks=0, config={"batch_size": 3}
        )
    names = [fault.where for fault in caught.value.faults]
    expected = ["ranks", "model_creator", "config['batch_size']", "backend", "model_creator"]
    assert names == [*expected, "keras_model", "keras_model"]
    with pytest.raises(RequestError, match=r"Estimator\.from_keras"):
        Estimator.from_graph(inputs=1)
    with pytest.raises(RequestError, match=r"call load\(path\) first"):
        Estimator.from_keras().get_model()


def test_model_that_cannot_be_saved() -> None:
    """A layer with an argument that its configuration lacks needs a creator."""

    class Scale(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, factor: float, **options: Any) -> None:
            super().__init__(**options)
            self.factor = factor

        def call(self, inputs: Any) -> Any:
            return self.factor * inputs

        def get_config(self) -> Any:
            return super().get_config()

    model = make_model("sgd", Scale(2.0))
    with pytest.raises(RequestError, match="model_creator"):
        Estimator.from_keras(model)


class Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule of the user."""

    def __init__(self, top: float) -> None:
        self.top = top

    def __call__(self, step: Any) -> Any:
        return self.top / (1 + tf.cast(step, tf.float32))

    def get_config(self) -> Any:
        return {"top": self.top}


def double(values: Any) -> Any:
    return 2 * values


def test_objects_of_the_user_anywhere_in_a_model() -> None:
    """Schedules, activations and regularizers need no registration, and losses may be mixed."""
    layers = [keras.layers.Input((3,)), keras.layers.Dense(4, activation=double)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(Warmup(0.1)), "mse")
    packed = pack_model(model)
    assert {"Warmup", "double"} <= packed.objects.keys()
    built = load_archive(packed.archive or b"", packed.objects)
    assert float(built.optimizer.learning_rate) == pytest.approx(0.1)
    assert find_loss_fault(model) == ""
    summed = keras.losses.MeanSquaredError(reduction="sum")
    output = {"a": keras.layers.Dense(1, name="a")(keras.layers.Input((3,)))}
    model = keras.Model(output["a"]._keras_history.operation.input, output)
    model.compile("sgd", {"a": summed})
    assert find_loss_fault(model) == "MeanSquaredError(reduction='sum')"


def test_changes_of_a_model_between_calls() -> None:
    """A model that was passed is used as it is at each call."""
    model = make_model("adam")
    estimator = Estimator.from_keras(model)
    before = estimator._refresh()
    assert estimator._refresh() is before, "nothing changed"
    model.set_weights([np.ones_like(each) for each in model.get_weights()])
    built = estimator._refresh().build()
    np.testing.assert_array_equal(built.get_weights()[0], 1)
    model.layers[0].trainable = False
    model.compile("sgd", "mae")
    built = estimator._refresh().build()
    assert len(built.trainable_variables) == 2
    assert built.loss == "mae"
    estimator.set_l2_norm_gradient_clipping(0.5)
    assert estimator._refresh().build().optimizer.global_clipnorm == 0.5


def test_models_of_tf_keras() -> None:
    """They have other methods; an instance and the result of a creator are refused."""
    legacy = type("Model", (), {"__module__": "tf_keras.src.engine.training", "fit": None})
    with pytest.raises(RequestError, match="MultiWorkerMirroredStrategy"):
        Estimator.from_keras(legacy())
    with pytest.raises(RequestError, match="a model of tf_keras"):
        KerasModel(creator=lambda _: legacy()).build()
    with pytest.raises(RequestError, match="object of type int"):
        KerasModel(creator=lambda _: 3).build()


def test_arguments_of_fit() -> None:
    """All at once; ``BackupAndRestore`` would change the first epoch of one rank."""
    right: dict[str, Any] = {
        "epochs": 1, "initial_epoch": 0, "batch_size": 4, "verbose": "auto", "shuffle": True,
        "seed": 0, "callbacks": None, "class_weight": {0: 1, 1: 0.5}, "steps_per_epoch": None,
        "validation_steps": None, "validation_freq": [2, 4], "data_config": None,
        "checkpoint_trigger": SeveralIteration(3),
    }  # fmt: skip
    assert find_fit_faults(2, **right) == []
    wrong = {
        "epochs": 0, "initial_epoch": -1, "batch_size": 3, "verbose": "x", "shuffle": "yes",
        "seed": -1, "callbacks": make_model(), "class_weight": {"a": 1}, "steps_per_epoch": 0,
        "validation_steps": 1.5, "validation_freq": 0, "data_config": 3,
        "checkpoint_trigger": "epoch",
    }  # fmt: skip
    found = [fault.where for fault in find_fit_faults(2, **wrong)]
    assert sorted(found) == sorted(wrong)
    callbacks = [keras.callbacks.BackupAndRestore("backup"), "early"]
    found = [fault.where for fault in find_fit_faults(2, **{**right, "callbacks": callbacks})]
    assert found == ["callbacks[0]", "callbacks[1]"]


def test_summaries_by_tag() -> None:
    """A validation after every second epoch has the steps of these epochs."""
    estimator = Estimator.from_keras(make_model())
    estimator._record_epochs(
        {
            "loss": [3.0, 2.0], "mae": [1.0, 0.5], "val_loss": [4.0], STEP: [5, 10],
            RATE: [0.1, 0.2], TIME: [7.0, 8.0], VALIDATED: [0.0, 1.0],
        }
    )  # fmt: skip
    assert estimator.get_train_summary() == [(5, 3.0, 7.0), (10, 2.0, 8.0)]
    assert estimator.get_train_summary("learningrate")[1] == (10, 0.2, 8.0)
    assert estimator.get_validation_summary("Loss") == [(10, 4.0, 8.0)]
    with pytest.raises(RequestError, match="one of Loss, LearningRate, mae"):
        estimator.get_train_summary("Throughput")
    with pytest.raises(RequestError, match="-c and c"):
        estimator.set_constant_gradient_clipping(-1.0, 2.0)
    with pytest.raises(RequestError, match="clip_norm"):
        estimator.set_l2_norm_gradient_clipping(float("nan"))
    with pytest.raises(RequestError, match="app_name"):
        estimator.set_tensorboard("logs", "")


def test_columns_of_several_outputs() -> None:
    """They have names, or are tuples of one column."""
    frame = pd.DataFrame({"a": [1, 2]}, index=[5, 6])
    outputs = np.array([[1.0], [2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])
    named = add_columns(frame, outputs, ("b", "c"))
    assert named["b"].to_list() == [1.0, 2.0]
    assert named["c"][6].tolist() == [5.0, 6.0]
    joined = add_columns(frame, {"x": outputs[0], "y": outputs[1]}, ())["prediction"]
    assert joined[5][0] == 1.0
    assert joined[5][1].tolist() == [3.0, 4.0]
    with pytest.raises(RequestError, match="each of 2 outputs"):
        add_columns(frame, outputs, ("b",))


def keep(values: Any) -> Any:
    return values


def make_generator() -> Any:
    signature = tf.TensorSpec((), tf.float32)
    return tf.data.Dataset.from_generator(lambda: iter([1.0]), output_signature=signature)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_generator, "from_generator"),
        (lambda: numbers().map(lambda x: tf.py_function(keep, [x], tf.int64)), "py_function"),
        (lambda: numbers().map(lambda x: tf.numpy_function(keep, [x], tf.int64)), "py_function"),
        (lambda: numbers().shuffle(3, seed=1), "reshuffle_each_iteration=False"),
    ],
)
def test_datasets_that_other_processes_cannot_run(make: Any, words: str) -> None:
    """The fault names the operation; nothing was started."""
    with pytest.raises(RequestError, match=words):
        pack_checked(make(), "data")


def numbers() -> Any:
    return tf.data.Dataset.range(5)


@pytest.mark.parametrize(
    ("make", "is_batched"),
    [
        (lambda: numbers().batch(2).map(lambda x: x + 1).unbatch().prefetch(1), False),
        (lambda: numbers().batch(2).unbatch().batch(3).cache().enumerate(), True),
        (lambda: numbers().interleave(lambda _: numbers().batch(2)), True),
        (lambda: numbers().flat_map(lambda _: numbers()), False),
        (lambda: numbers().bucket_by_sequence_length(lambda _: 1, [3], [2, 2]), True),
        (lambda: tf.data.Dataset.zip((numbers().batch(2), numbers().batch(2))), True),
    ],
)
def test_datasets_of_batches(make: Any, is_batched: bool) -> None:
    """The last operation that joins or divides rows decides."""
    assert pack_checked(make(), "data").is_batched == is_batched


def test_a_dataset_survives_its_graph() -> None:
    """Elements, order and structure are the same."""
    fixed = numbers().shuffle(5, seed=1, reshuffle_each_iteration=False)
    dataset = fixed.map(lambda x: (x, 2 * x)).batch(2)
    packed = pack_checked(dataset, "data")
    assert packed.is_batched
    assert not pack_checked(numbers(), "data").is_batched
    for mine, expected in zip(packed.load(), dataset, strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_files(tmp_path: Path) -> None:
    """A saved model, and weights alone, give the same predictions and the optimizer's state."""
    x, y = make_rows()
    model = make_model("adam")
    model.fit(x, y, verbose=0)
    estimator = Estimator.from_keras(model)
    expected = model.predict(x, verbose=0)
    estimator.save(tmp_path / "a.h5")
    started = Estimator.from_keras()
    started.load(tmp_path / "a.h5")
    np.testing.assert_allclose(started.get_model().predict(x, verbose=0), expected, rtol=1e-6)
    assert type(started.get_model().optimizer).__name__ == "Adam"
    plain = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    plain.save(tmp_path / "plain.h5")
    with pytest.raises(RequestError, match="without loss and optimizer"):
        Estimator.from_keras().load(tmp_path / "plain.h5")
    other = Estimator.from_keras(make_model("adam"))
    other.load(tmp_path / "a.h5")
    np.testing.assert_allclose(other.get_model().predict(x, verbose=0), expected, rtol=1e-6)
    estimator.save(checkpoint=tmp_path / "b.keras")
    Estimator.from_keras().load(checkpoint=tmp_path / "b.keras")
    with pytest.raises(TypeError, match="by position: data, epochs, batch_size; pass others by"):
        estimator.fit(x, 1, 32, ["a"], ["b"])
    for name in ("a.keras", "a.model"):
        estimator.save(tmp_path / name)
        loaded = Estimator.from_keras()
        loaded.load(tmp_path / name)
        np.testing.assert_allclose(loaded.get_model().predict(x, verbose=0), expected, rtol=1e-6)
        assert int(loaded.get_model().optimizer.iterations) == 3
    estimator.save_keras_weights(tmp_path / "a.weights.h5")
    with pytest.raises(RequestError, match="weights alone"):
        Estimator.load_keras_model(tmp_path / "a.weights.h5")
    other = Estimator.from_keras(make_model("adam"))
    other.load_keras_weights(tmp_path / "a.weights.h5")
    np.testing.assert_allclose(other.get_model().predict(x, verbose=0), expected, rtol=1e-6)
    with pytest.raises(RequestError, match="overwrite"):
        estimator.save_keras_model(tmp_path / "a.keras", overwrite=False)


def write_checkpoint(folder: CheckpointFolder, model: Any, epoch: int, step: int = 0) -> None:
    progress = FitProgress(True, True, epoch=epoch, step=step)
    folder.write((epoch, step), encode_state(model, [], progress))


def test_checkpoints_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are loaded by epoch and step; the newest one that is not damaged continues."""
    models = [make_model(), make_model(), make_model()]
    folder = CheckpointFolder(str(tmp_path / "fit"))
    assert folder.read_newest() == b""
    for number, (model, place) in enumerate(zip(models, ((1, 0), (1, 3), (2, 0)), strict=True)):
        model.set_weights([np.full_like(each, number) for each in model.get_weights()])
        write_checkpoint(folder, model, *place)
    assert folder.find_positions() == [(1, 0), (1, 3), (2, 0)]
    estimator = Estimator.from_keras(make_model())
    for options, number in (({}, 2), ({"version": 1}, 0), ({"version": 1, "step": 3}, 1)):
        estimator.load_orca_checkpoint(tmp_path, **options)
        assert (estimator.get_model().get_weights()[0] == number).all()
    with pytest.raises(RequestError, match=r"after the epochs: 1, 1 \(step 3\), 2"):
        estimator.load_orca_checkpoint(tmp_path, version=2, step=1)
    with pytest.raises(RequestError, match="with step"):
        estimator.load_orca_checkpoint(tmp_path, step=3)
    newest = tmp_path / "fit" / "epoch-00002.weights.h5"
    newest.write_bytes(newest.read_bytes()[:1000])
    progress = read_progress(folder.read_newest())
    assert (progress["epoch"], progress["step"]) == (1, 3)
    assert f"the checkpoint {newest} is damaged" in capsys.readouterr().err


def test_where_a_dataset_continues() -> None:
    """As Keras, which begins a dataset again when it is over."""
    for dataset, expected in (
        (numbers().repeat(), [0, 2, 4, 6]),
        (numbers().repeat().filter(lambda _: True), [0, 2, 4, 6]),
        (numbers(), [0, 2, 4, 0]),
        (numbers().filter(lambda _: True), [0, 2, 4, 0]),
    ):
        assert [find_start(dataset, 2, epochs) for epochs in range(4)] == expected
    start = tf.Variable(3, dtype="int64")
    continued = begin_at(numbers(), start)
    assert [int(each) for each in continued] == [3, 4]
    start.assign(0)
    assert [int(each) for each in continued] == [0, 1, 2, 3, 4]


@keras.saving.register_keras_serializable("tests")
class Unreadable(keras.layers.Layer):  # type: ignore[misc]
    """A layer whose files need something that is missing."""

    missing: Exception | None = None

    def call(self, inputs: Any) -> Any:
        return inputs

    @classmethod
    def from_config(cls, config: Any) -> Any:
        if cls.missing is not None:
            raise cls.missing
        return super().from_config(config)


@pytest.mark.parametrize("missing", [KeyError("vocabulary"), FileNotFoundError("words.txt")])
def test_an_error_of_a_layer_is_not_one_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Exception
) -> None:
    Estimator.from_keras(make_model("sgd", Unreadable())).save(tmp_path / "a.keras")
    monkeypatch.setattr(Unreadable, "missing", missing)
    with pytest.raises(type(missing), match=str(missing)):
        Estimator.from_keras().load(tmp_path / "a.keras")


def change_archive(file: Path, changes: dict[str, bytes | None]) -> None:
    """Write an archive again with other contents, or without a file."""
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in {**contents, **changes}.items():
            if content is not None:
                archive.writestr(name, content)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", None, "There is no item named 'config.json'"),
        ("config.json", b"layers: 3", "Expecting value"),
        ("config.json", b"\xff", "codec can't decode"),
        ("model.weights.h5", None, "There is no item named 'model.weights.h5'"),
        ("model.weights.h5", b"weights", "no file of HDF5"),
    ],
)
def test_other_archives_are_not_models(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "a.keras"
    Estimator.from_keras(make_model()).save(file)
    change_archive(file, {name: content})
    with pytest.raises(ReadError, match=rf"a\.keras: is damaged, or no archive .*{reason}"):
        Estimator.from_keras().load(file)


def test_a_damaged_archive(tmp_path: Path) -> None:
    file = tmp_path / "a.keras"
    Estimator.from_keras(make_model()).save(file)
    data = bytearray(file.read_bytes())
    for place in (data.index(b"\x89HDF") + 2000, data.index(b"{") + 20):
        damaged = data[:]
        damaged[place] ^= 0xFF
        file.write_bytes(damaged)
        with pytest.raises(ReadError, match="is damaged, or no archive"):
            Estimator.from_keras().load(file)


def test_callbacks_of_keras_have_the_names_that_ranks_choose_by(tmp_path: Path) -> None:
    """A restarted rank appends to the file of a CSVLogger; other ranks have no such callback."""
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    swap = keras.callbacks.SwapEMAWeights()
    assert choose_callbacks([logger, swap], rank=0, is_restart=False) == [logger, swap]
    assert not logger.append
    assert choose_callbacks([logger, swap], rank=1, is_restart=True) == [swap]
    assert logger.append


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("InvalidArgumentError", True),
        ("UnimplementedError", True),
        ("AbortedError", False),
        ("CancelledError", False),
        ("DeadlineExceededError", False),
        ("InternalError", False),
        ("NotFoundError", False),
        ("ResourceExhaustedError", False),
        ("UnavailableError", False),
        ("UnknownError", False),
    ],
)
def test_errors_of_operations_that_a_lost_rank_may_cause_are_not_permanent(
    name: str, expected: bool
) -> None:
    with pytest.raises(tf.errors.OpError) as caught, mark_permanent_errors():
        raise getattr(tf.errors, name)(None, None, "Collective ops is aborted")
    assert is_permanent(caught.value) is expected
