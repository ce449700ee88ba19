"""Estimators of PyTorch: equal to training in one process, in every documented form."""

from __future__ import annotations

import itertools
import os
import signal
import sys

import cloudpickle
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed
from scale import FULL
from torch_training import (
    X,
    Y,
    assert_equal_weights,
    create,
    make_model,
    make_optimizer,
    predict_alone,
    train_alone,
)

import hyperplane
from hyperplane.errors import RequestError, UnknownArgument
from hyperplane.ml import Estimator, XShards
from hyperplane.orca.learn.metrics import MAE, Accuracy
from hyperplane.orca.learn.pytorch.callbacks import Callback
from hyperplane.platforms.local import gpus as local_gpus

pytestmark = [pytest.mark.cluster, pytest.mark.torch]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
#: Memory of a worker with its rank, which needs more for CUDA.
RAM_GB = 2.0 if local_gpus.detect_gpus().visible else 1.0


@pytest.fixture(scope="module")
def client():
    """Client of two worker processes with memory for a rank each."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=RAM_GB, local_fit="exact"
    )
    yield client
    client.close()
    cluster.close()


def make_shards(lengths):
    limits = itertools.pairwise(np.cumsum([0, *lengths]))
    parts = [{"x": X[a:b], "y": Y[a:b]} for a, b in limits]
    return XShards([delayed(part, traverse=False) for part in parts])


@pytest.mark.parametrize(
    "adam",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(not FULL, reason="Adam is in other tests: at full scale")
        ),
    ],
)
@pytest.mark.usefixtures("client")
def test_two_ranks_equal_one_process_in_each_step(adam):
    losses, model = train_alone({"adam": adam}, 3)
    estimator = create({"adam": adam}, backend="torch_distributed", metrics=["mse", MAE()])
    history = estimator.fit(make_shards([13, 50, 27]), epochs=3, batch_size=16)
    found = [value for _, value, _ in estimator.get_train_summary("Loss")]
    np.testing.assert_allclose(found, losses, rtol=2e-4, atol=1e-6)
    assert_equal_weights(estimator, model)
    assert [stats["epoch"] for stats in history] == [1, 2, 3]
    assert {stats["num_samples"] for stats in history} == {90}
    assert history[0]["train_loss"] == pytest.approx(
        np.average(losses[:3], weights=[32, 32, 26]), rel=1e-4
    )
    if adam:
        return
    result = estimator.evaluate((X, Y), batch_size=7)
    expected = float(np.square(predict_alone(model) - Y).mean())
    assert result["MSE"] == pytest.approx(expected, rel=1e-4)
    assert result["val_loss"] == pytest.approx(expected, rel=1e-4)
    assert result["num_samples"] == 90
    assert result["MAE"] > 0


@pytest.mark.usefixtures("client")
def test_a_killed_rank_costs_at_most_one_epoch_and_changes_nothing(tmp_path):
    killed = tmp_path / "killed"

    def kill_in_second_epoch(output, label):
        import torch

        steps = tmp_path / f"steps-{os.environ['RANK']}-{os.environ['HYPERPLANE_RESTART_COUNT']}"
        with steps.open("a") as file:
            file.write("x")
        if os.environ["RANK"] == "1" and len(steps.read_text()) == 5 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.functional.mse_loss(output, label)

    estimator = create({"adam": True}, loss=kill_in_second_epoch, backend="ray")
    history = estimator.fit((X, Y), epochs=4, batch_size=16)
    losses, model = train_alone({"adam": True}, 4)
    assert killed.exists()
    assert_equal_weights(estimator, model)
    assert [stats["epoch"] for stats in history] == [1, 2, 3, 4]
    assert len((tmp_path / "steps-0-1").read_text()) == 9  # 3 epochs of 3 steps
    np.testing.assert_allclose(
        [value for _, value, _ in estimator.get_train_summary("Loss")], losses, rtol=2e-4, atol=1e-6
    )


def make_table_model(config):
    import torch

    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, a, b):
            return self.layer(torch.stack([a, b], dim=1))

    return Table()


@pytest.mark.usefixtures("client")
def test_tables_are_trained_and_predicted_in_their_form():
    import torch

    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": (X[:, 0] > 0).astype(int)})
    frame.index += 100
    estimator = create(
        model=make_table_model, loss=torch.nn.CrossEntropyLoss(), metrics=[Accuracy()]
    )
    lazy = dd.from_pandas(frame, npartitions=3)
    columns = {"feature_cols": ["a", "b"], "label_cols": "y"}
    history = estimator.fit(
        lazy, epochs=12, batch_size=4, shuffle=True, validation_data=frame, **columns
    )
    assert history[-1]["val_accuracy"] > 0.9
    assert estimator.evaluate(lazy, **columns)["Accuracy"] == history[-1]["val_accuracy"]
    predicted = estimator.predict(lazy, feature_cols=["a", "b"])
    computed = predicted.compute()
    assert predicted.columns.tolist() == [*frame.columns, "prediction"]
    pd.testing.assert_index_equal(computed.index, frame.index)
    pd.testing.assert_frame_equal(computed[["a", "b", "y"]], frame)
    scores = np.stack(computed["prediction"].to_list())
    assert (scores.argmax(1) == frame["y"]).mean() == pytest.approx(history[-1]["val_accuracy"])
    small = estimator.predict(frame, feature_cols=["a", "b"])
    np.testing.assert_allclose(np.stack(small["prediction"].to_list()), scores, atol=1e-6)


@pytest.mark.usefixtures("client")
def test_arrays_and_shards_are_predicted_in_their_form():
    estimator = create()
    expected = predict_alone(estimator.get_model())
    np.testing.assert_allclose(estimator.predict(X), expected, atol=1e-6)
    lazy = estimator.predict(da.from_array(X.astype(float), chunks=(40, 3)))
    assert lazy.chunks == ((40, 40, 10), (1,))
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-6)
    shards = estimator.predict(make_shards([30, 60])).collect()
    assert [len(shard["prediction"]) for shard in shards] == [30, 60]
    np.testing.assert_allclose(
        np.concatenate([shard["prediction"] for shard in shards]), expected, atol=1e-6
    )


@pytest.mark.usefixtures("client")
def test_a_loss_that_is_no_number_is_a_warning():
    x = X.copy()
    x[3, 0] = np.nan
    with pytest.warns(
        UserWarning, match="training loss of epoch 1 of 2 is nan: .*missing"
    ) as found:
        create().fit((x, Y), epochs=2, batch_size=16)
    assert found[0].filename == __file__


def test_all_faults_are_listed_at_once(client):
    import torch

    with pytest.raises(RequestError) as caught:
        Estimator.from_torch(
            model=3, optimizer="sgd", metrics=["acuracy"], config={"batch_size": 3},
            backend="tf", ranks=0, scheduler_step_freq="step",
        )  # fmt: skip
    assert {fault.where for fault in caught.value.faults} == {
        "model", "optimizer", "metrics", "config['batch_size']", "backend", "ranks",
        "scheduler_step_freq",
    }  # fmt: skip
    with pytest.raises(UnknownArgument, match="did you mean epochs"):
        create().fit((X, Y), epoch=1)

    class Net(torch.nn.Module):
        def __init__(self, hidden=8):
            super().__init__()

    with pytest.warns(UserWarning, match=r"lambda config: Net\(hidden=config\['hidden'\]\)"):
        create({"hidden": 16, "lr": 0.1}, model=Net)
    with pytest.raises(RequestError, match="parameters of model"):
        create(model=make_model({}), optimizer=make_optimizer(make_model({}), {}))
    with pytest.warns(UserWarning, match="no effect: use_tqdm"):
        create(use_tqdm=True)
    with pytest.raises(RequestError) as caught:
        create(loss=None).fit(5, epochs=0, batch_size=0.5, checkpoint_trigger="epoch")
    assert [fault.where for fault in caught.value.faults] == [
        "epochs", "batch_size", "data", "checkpoint_trigger", "loss",
    ]  # fmt: skip
    with pytest.raises(RequestError, match="a multiple of the 2 ranks"):
        create(backend="bigdl").fit((X, Y), batch_size=31)
    # In the order of Orca's estimators on Spark.
    with pytest.raises(RequestError, match="after batch_size by name") as caught:
        create().fit((X, Y), 1, 32, ["a"], ["b"], (X, Y))
    assert [fault.where for fault in caught.value.faults] == ["profile", "reduce_results", "info"]
    with pytest.raises(TypeError, match="by position: data, epochs"):
        create().fit(*range(14))
    with pytest.raises(RequestError, match="did you mean Loss"):
        create().get_train_summary("Los")

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(X)

    with pytest.raises(RequestError, match="an IterableDataset"):
        create().fit(Stream())


def test_save_and_load_accept_both_names_of_orca(tmp_path):
    estimator = create()
    estimator.save(checkpoint=str(tmp_path / "a.pt"))
    estimator.load(checkpoint=str(tmp_path / "a.pt"))
    estimator.load(model_path=tmp_path / "a.pt")
    with pytest.raises(UnknownArgument, match="checkpoint"):
        estimator.load(tmp_path / "a.pt", checkpoint=str(tmp_path / "a.pt"))


@pytest.mark.usefixtures("client")
def test_a_killed_worker_costs_at_most_one_epoch_and_changes_nothing(tmp_path):
    killed = tmp_path / "killed"

    class KillWorker(Callback):
        def after_train_iter(self, runner):
            if runner.rank == 1 and runner.global_step == 4 and not killed.exists():
                killed.write_text(f"{os.getpid()} {os.getppid()}")
                os.kill(os.getppid(), signal.SIGKILL)

    estimator = create({"adam": True}, backend="ray")
    data = (da.from_array(X, chunks=(20, 3)), da.from_array(Y, chunks=(20, 1)))
    history = estimator.fit(
        data, epochs=3, batch_size=16, validation_data=(X, Y), callbacks=[KillWorker()]
    )
    losses, model = train_alone({"adam": True}, 3)
    assert killed.exists()
    assert_equal_weights(estimator, model)
    assert [stats["epoch"] for stats in history] == [1, 2, 3]
    np.testing.assert_allclose(
        [value for _, value, _ in estimator.get_train_summary("Loss")], losses, rtol=2e-4, atol=1e-6
    )
    for pid in map(int, killed.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
