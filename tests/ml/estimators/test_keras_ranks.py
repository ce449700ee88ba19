"""Two ranks train models of many forms as one process does; one gang runs all cases."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from keras_models import create_dataset, make_classifier, make_rows
from scale import scaled

from hyperplane.core.permanent_errors import is_permanent
from hyperplane.ml import gang
from hyperplane.ml.estimators import keras_ranks
from hyperplane.ml.estimators.keras_averaging import RankGroup
from hyperplane.ml.estimators.keras_checkpoints import TIME
from hyperplane.ml.estimators.keras_graphs import pack_checked
from hyperplane.ml.estimators.keras_model import KerasModel, load_weights, pack_model
from hyperplane.ml.estimators.keras_ranks import (
    ENVIRONMENT,
    DataSource,
    EvaluateTask,
    FitTask,
    evaluate_rank,
    fit_rank,
)

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from keras_rank_models import (  # noqa: E402
    make_frozen,
    make_ignoring,
    make_masked,
    make_masked_pair,
    make_mixed,
    make_named,
    make_noisy,
    make_pair,
    make_random,
    make_small,
)

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

X, Y = make_rows()
HALF = len(X) // 2
#: Rows that rank 0 and rank 1 have.
SHARES = (slice(None, HALF), slice(HALF, None))
SIZE = 9
#: Trainings that end within an epoch and continue.
INTERRUPTED = scaled(
    ["rows", "endless"], ["rows", "endless", "ends", "batches", "endless epoch", "losses"]
)


def run_cases(cases: dict[str, Any]) -> dict[str, Any]:
    """Run the tasks in this rank, one after the other; return results or texts of errors."""
    group, rank = RankGroup(), int(os.environ["RANK"])
    keras_ranks.RankGroup = lambda *_: group  # TensorFlow can be configured only once
    results = {}
    for name, (pieces, task, folder) in cases.items():
        os.environ["HYPERPLANE_CHECKPOINTS"] = folder
        run = fit_rank if isinstance(task, FitTask) else evaluate_rank
        try:
            group.stop.assign(0.0)
            group.stops.assign(0.0)
            results[name] = run(pieces[rank] if pieces else None, task)
        except Exception as error:  # noqa: BLE001 - the test compares its text
            results[name] = traceback.format_exc()
            results[f"{name}: permanent"] = is_permanent(error)
    return results


def divide(inputs: list[Any], labels: list[Any]) -> Any:
    """Return the pieces of both ranks."""
    return [[(tuple(x[part] for x in inputs), tuple(y[part] for y in labels))] for part in SHARES]


def list_steps() -> Iterator[np.ndarray]:
    """Yield the rows of both ranks in each step."""
    numbers = [np.arange(len(X))[part] for part in SHARES]
    for step in range(-(-max(map(len, numbers)) // SIZE)):
        yield np.concatenate([each[step * SIZE : (step + 1) * SIZE] for each in numbers])


def train_alone(model: Any, x: Any, y: Any, epochs: int = 2) -> list[float]:
    """Train with the rows of both ranks in each step; return the losses of the epochs."""
    losses = []
    for _ in range(epochs):
        model.reset_metrics()
        for chosen in list_steps():
            data = tf.nest.map_structure(lambda each, rows=chosen: tf.constant(each[rows]), (x, y))
            model.train_step(data)
        losses.append(float(model.get_metrics_result()["loss"]))
    return losses


def make_stopper() -> Any:
    """Return a callback that stops rank 1 only, after the first epoch."""

    class Stopper(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training |= os.environ["RANK"] == "1"

    return Stopper()


def make_failing(epoch: int, step: int = 0) -> Any:
    """Return a callback with an error before a step of an epoch; -1 is after its last step."""

    class Failing(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, number: int, logs: Any = None) -> None:
            self.number = number

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.number, batch) == (epoch, step):
                raise ValueError("the callback fails")

        def on_epoch_end(self, number: int, logs: Any = None) -> None:
            if (number, -1) == (epoch, step):
                raise ValueError("the callback fails")

    return Failing()


def make_counter() -> Any:
    """Return a callback that counts steps in the history."""

    class Counter(keras.callbacks.Callback):  # type: ignore[misc]
        count = 0

        def on_train_begin(self, logs: Any = None) -> None:
            self.count = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.count += 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["count"] = self.count

    return Counter()


def list_interrupted(task: Any, epoch: int, step: int, interval: int) -> dict[str, Any]:
    """Return a training, and one that fails before a step and continues from its checkpoint."""
    failing = [*task.callbacks, make_failing(epoch, step)]
    return {
        " whole": replace(task, callbacks=[*task.callbacks]),
        ": first": replace(task, callbacks=failing, interval=interval),
        ": rest": replace(task, interval=interval),
    }


def halve_rate(epoch: int, rate: float) -> float:
    return rate / 2


def create_repeated(config: dict[str, Any], batch_size: int) -> Any:
    """Return batches without end."""
    return create_dataset(config, batch_size).repeat()


def create_uneven(config: dict[str, Any], batch_size: int) -> Any:
    """Return one more batch in rank 1."""
    rows = batch_size * (1 + int(os.environ["RANK"]))
    return tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(batch_size)


def create_summed(config: dict[str, Any]) -> Any:
    return make_small(loss=keras.losses.MeanSquaredError(reduction="sum"))


USERS = np.arange(len(X)) % 5
KINDS = (Y > 0).astype("int64").reshape(-1)
CLASSES = {0: 1.0, 1: 5.0}
#: Sequences of which the first half has many values that are masked, and the second half few.
MANY, FEW = (np.arange(4 * len(X)).reshape(-1, 4) * step % 6 for step in (3, 1))
MASKED = np.where(np.arange(len(X))[:, None] < HALF, MANY, FEW)
VALUES = np.linspace(0, 9, MASKED.size, dtype="float32").reshape(-1, 4, 1)
IGNORED = np.where(np.arange(len(X)) % 3 * (np.arange(len(X)) < HALF), -1, np.arange(len(X)) % 3)
BAD = np.where(np.arange(len(Y))[:, None] == len(Y) - 1, np.nan, Y).astype("float32")


@pytest.fixture(scope="module")
def results(keras_client: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of rank 0 by case."""
    plain, rows = divide([X], [Y]), (HALF, len(X) - HALF)
    source = DataSource(pieces=1, rows=rows)
    common: dict[str, Any] = {"batch_size": 2 * SIZE, "shuffle": False, "epochs": 2}

    def fit(model: Any, data: Any = source, **options: Any) -> FitTask:
        definition = model if isinstance(model, KerasModel) else pack_model(model)
        return FitTask(definition, data, **{**common, **options})

    weights = np.linspace(0, 2, 64).astype("float32")
    weighted = tf.data.Dataset.from_tensor_slices((X[:64], Y[:64], weights)).batch(16)
    named = tf.data.Dataset.from_tensor_slices(
        ({"user": USERS[:33, None], "item": X[:33]}, {"z": Y[:33], "a": 9 * Y[:33]})
    )
    tasks: dict[str, Any] = {
        "several steps": (plain, fit(make_small(steps_per_execution=3))),
        "mixed": (divide([X], [Y / 32]), fit(make_mixed())),
        "named": (divide([USERS, X], [Y, 2 * Y]), fit(make_named())),
        "pair": (plain, fit(KerasModel(creator=make_pair))),
        "frozen": (plain, fit(make_frozen())),
        "nan": (
            divide([X], [BAD]),
            fit(make_small(), callbacks=[keras.callbacks.TerminateOnNaN()]),
        ),
        "stopper": (plain, fit(make_small(), callbacks=[make_stopper()])),
        "classes": (divide([X], [KINDS]), fit(make_classifier(), class_weight=CLASSES)),
        "fewer steps": (plain, fit(make_small(), steps_per_epoch=3)),
        "whole": (plain, fit(make_random(), epochs=3)),
        "continued: first": (plain, fit(make_random(), epochs=1)),
        "continued: rest": (plain, fit(make_random(), epochs=3)),
        "created": (
            None,
            fit(
                make_small(optimizer="sgd"),
                DataSource(creator=create_dataset),
                validation=DataSource(creator=create_dataset),
                batch_size=16,
            ),
        ),
        "masked": (divide([MASKED], [VALUES]), fit(make_masked())),
        "masked pair": (
            divide([MASKED, MASKED[:, ::-1] // 2], [VALUES, 2 * VALUES]),
            fit(make_masked_pair()),
        ),
        "ignored": (divide([X], [IGNORED]), fit(make_ignoring())),
        "early": (plain, fit(make_small(), callbacks=[make_failing(0)])),
        "late": (plain, fit(make_small(), callbacks=[make_failing(1)])),
        "shape": (divide([X[:, :2]], [Y]), fit(make_small())),
        "uneven": (None, fit(make_small(), DataSource(creator=create_uneven))),
        "summed": (plain, fit(KerasModel(creator=create_summed))),
        "weighted": (
            None,
            fit(make_small(optimizer="sgd"), DataSource(graph=pack_checked(weighted, "data"))),
        ),
        "rest": (
            None,
            EvaluateTask(
                pack_model(make_named()), DataSource(graph=pack_checked(named.batch(32), "data"))
            ),
        ),
        "single": (
            None,
            EvaluateTask(
                pack_model(make_named()), DataSource(graph=pack_checked(named.batch(1), "data"))
            ),
        ),
        "none": (
            None,
            fit(make_named(), DataSource(graph=pack_checked(named.batch(1), "data"))),
        ),
    }
    halved = keras.callbacks.LearningRateScheduler(halve_rate)
    noisy = fit(make_noisy(), epochs=3, shuffle=True, callbacks=[halved, make_counter()])
    batches = replace(noisy, data=DataSource(creator=create_dataset), batch_size=16)
    endless = replace(batches, data=DataSource(creator=create_repeated), steps_per_epoch=3)
    interrupted = {
        # The last step, in which the first rank has no rows, is left.
        "rows": (plain, list_interrupted(noisy, 1, 4, 3)),
        # No step is left.
        "ends": (plain, list_interrupted(noisy, 1, -1, 5)),
        "batches": (None, list_interrupted(batches, 1, 3, 3)),
        "endless": (None, list_interrupted(endless, 1, 2, 4)),
        "endless epoch": (None, list_interrupted(endless, 2, 0, 0)),
        "losses": (plain, list_interrupted(fit(KerasModel(creator=make_pair)), 0, -1, 5)),
    }
    for name in INTERRUPTED:
        pieces, parts = interrupted[name]
        tasks |= {name + part: (pieces, task) for part, task in parts.items()}
    folder = tmp_path_factory.mktemp("checkpoints")
    # Tasks whose names have the same first word continue from the checkpoint of the one before.
    cases = {
        name: (*each, str(folder / name.partition(":")[0].replace(" ", "-")))
        for name, each in tasks.items()
    }
    found: dict[str, Any] = gang(keras_client, run_cases, 2, cases, env=ENVIRONMENT, logs=False)[0]
    return found


def check_equal(outcome: Any, model: Any, losses: list[float], rel: float = 1e-5) -> Any:
    """Compare losses and weights; return the trained model."""
    assert not isinstance(outcome, str), outcome
    assert outcome.history["loss"] == pytest.approx(losses, rel=rel)
    expected = [each.copy() for each in model.get_weights()]
    load_weights(model, outcome.weights)
    for mine, other in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(mine, other, atol=rel)
    return model


def test_steps_per_execution(results: dict[str, Any]) -> None:
    model = make_small()
    check_equal(results["several steps"], model, train_alone(model, X, Y))


def test_mixed_precision_scales_the_loss(results: dict[str, Any]) -> None:
    """The scale of the loss and the count of its steps come back with the weights."""
    model = make_mixed()
    losses = train_alone(model, X, Y / 32)  # larger gradients may overflow in a rank only
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    check_equal(results["mixed"], model, losses, rel=2e-3)
    assert int(model.optimizer.iterations.numpy()) == 10


def test_embeddings_and_named_inputs_and_outputs(results: dict[str, Any]) -> None:
    model = make_named()
    labels = {"z": Y, "a": 2 * Y}
    check_equal(results["named"], model, train_alone(model, {"user": USERS, "item": X}, labels))


def test_each_optimizer_averages(results: dict[str, Any]) -> None:
    """Also one that is only an attribute of the model."""
    model = make_pair({})
    for _ in range(2):
        for chosen in list_steps():
            model.train_step((tf.constant(X[chosen]), tf.constant(Y[chosen])))
    outcome = results["pair"]
    assert not isinstance(outcome, str), outcome
    check_equal(outcome, model, outcome.history["loss"])


def test_frozen_layers_stay_as_they_are(results: dict[str, Any]) -> None:
    """Moving averages are those of the ranks, averaged."""
    model = make_frozen()
    frozen = [each.copy() for each in model.layers[0].get_weights()]
    assert not isinstance(results["frozen"], str), results["frozen"]
    load_weights(model, results["frozen"].weights)
    for mine, before in zip(model.layers[0].get_weights(), frozen, strict=True):
        np.testing.assert_array_equal(mine, before)
    mean = model.layers[1].moving_mean.numpy()
    # 5 steps of an epoch; the first rank has 4, and the fifth of the other has a single row.
    assert np.abs(mean).max() > 0.001


@pytest.mark.parametrize("case", ["nan", "stopper"])
def test_a_rank_that_stops_stops_all(results: dict[str, Any], case: str) -> None:
    """Before, the others waited for its gradients for half an hour."""
    assert not isinstance(results[case], str), results[case]
    assert len(results[case].history["loss"]) == 1


def test_datasets_of_different_lengths_and_sums_are_refused(results: dict[str, Any]) -> None:
    assert "another number in other ranks" in results["uneven"]
    assert "MeanSquaredError(reduction='sum')" in results["summed"]
    assert "expected batches with a row for each rank" in results["none"]


def test_a_continued_training_draws_the_same_random_numbers(results: dict[str, Any]) -> None:
    """As after a restart: dropout of each rank in each epoch, the optimizer, the history."""
    whole, rest = results["whole"], results["continued: rest"]
    assert not isinstance(whole, str), whole
    assert not isinstance(rest, str), rest
    assert len(results["continued: first"].history["loss"]) == 1
    assert rest.history["loss"] == pytest.approx(whole.history["loss"], rel=1e-6)
    models = [make_random(), make_random()]
    for model, outcome in zip(models, (whole, rest), strict=True):
        load_weights(model, outcome.weights)
    for mine, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize("case", INTERRUPTED)
def test_a_training_continues_after_a_step(results: dict[str, Any], case: str) -> None:
    """With the metrics, moving averages, random numbers and callbacks of the interrupted epoch."""
    whole, rest = results[f"{case} whole"], results[f"{case}: rest"]
    assert not isinstance(whole, str), whole
    assert not isinstance(rest, str), rest
    assert "the callback fails" in results[f"{case}: first"]
    assert rest.history.keys() == whole.history.keys()
    for name, values in whole.history.items():
        if name != TIME:
            assert rest.history[name] == pytest.approx(values, rel=1e-6), name
    make = (lambda: make_pair({})) if case == "losses" else make_noisy
    models = [make(), make()]
    for model, outcome in zip(models, (whole, rest), strict=True):
        load_weights(model, outcome.weights)
    for mine, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


def test_datasets_of_functions_may_call_python(results: dict[str, Any]) -> None:
    model = make_small(optimizer="sgd")
    options: dict[str, Any] = {"shuffle": False, "verbose": 0, "validation_data": (2 * X, Y)}
    expected = model.fit(2 * X, Y, 16, 2, **options).history
    check_equal(results["created"], model, expected["loss"])
    assert results["created"].history["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-4)


def test_errors_that_would_occur_again_are_permanent(results: dict[str, Any]) -> None:
    """Those of creators, data and the first step; a later one may depend on the moment."""
    found = {
        name.removesuffix(": permanent"): value
        for name, value in results.items()
        if name.endswith(": permanent")
    }
    early = dict.fromkeys(("early", "shape", "uneven", "summed", "none"), True)
    later = dict.fromkeys(("late", *(name for name in results if name.endswith(": first"))), False)
    assert found == {**early, **{name: each for name, each in later.items() if name in found}}


def test_masked_losses_are_means_over_the_values_of_all_ranks(results: dict[str, Any]) -> None:
    """Ranks have different numbers of values in the same number of rows."""
    model = make_masked()
    outcome = check_equal(results["masked"], model, train_alone(model, MASKED, VALUES))
    metric = float(outcome.get_metrics_result()["mae"])
    assert results["masked"].history["mae"][-1] == pytest.approx(metric, rel=1e-5)
    model = make_masked_pair()
    x, y = (
        {"first": MASKED, "second": MASKED[:, ::-1] // 2},
        {"first": VALUES, "second": 2 * VALUES},
    )
    check_equal(results["masked pair"], model, train_alone(model, x, y))
    model = make_ignoring()
    check_equal(results["ignored"], model, train_alone(model, X, IGNORED))


def test_sample_weights(results: dict[str, Any]) -> None:
    weights = np.linspace(0, 2, 64).astype("float32")
    model = make_small(optimizer="sgd")
    options: dict[str, Any] = {"shuffle": False, "verbose": 0, "sample_weight": weights}
    history = model.fit(X[:64], Y[:64], 16, 2, **options).history
    check_equal(results["weighted"], model, history["loss"])


def test_class_weights(results: dict[str, Any]) -> None:
    """Losses, and the area under a curve, equal those of Keras."""
    model = make_classifier()
    batches = [(X[rows], KINDS[rows]) for rows in list_steps()]
    expected: dict[str, list[float]] = {"loss": [], "auc": []}
    for _ in range(2):
        model.reset_metrics()
        for x, y in batches:
            weights = np.array([CLASSES[int(kind)] for kind in y], "float32")
            model.train_step((tf.constant(x), tf.constant(y), tf.constant(weights)))
        for name, values in expected.items():
            values.append(float(model.get_metrics_result()[name]))
    check_equal(results["classes"], model, expected["loss"])
    assert results["classes"].history["auc"] == pytest.approx(expected["auc"], rel=1e-5)


def test_an_epoch_of_given_steps_continues(results: dict[str, Any]) -> None:
    model = make_small()
    steps = [rows for _ in range(2) for rows in list_steps()][:6]
    losses = []
    for epoch in range(2):
        model.reset_metrics()
        for rows in steps[3 * epoch : 3 * epoch + 3]:
            model.train_step((tf.constant(X[rows]), tf.constant(Y[rows])))
        losses.append(float(model.get_metrics_result()["loss"]))
    check_equal(results["fewer steps"], model, losses)


@pytest.mark.parametrize("case", ["rest", "single"])
def test_evaluations_use_all_rows(results: dict[str, Any], case: str) -> None:
    """Also of a last batch, or of all batches, with fewer rows than ranks."""
    model = make_named()
    x, y = {"user": USERS[:33], "item": X[:33]}, {"z": Y[:33], "a": 9 * Y[:33]}
    expected = model.evaluate(x, y, batch_size=33, verbose=0, return_dict=True)["loss"]
    assert not isinstance(results[case], str), results[case]
    assert results[case]["loss"] == pytest.approx(expected, rel=1e-5)
