"""Programs in the form of published Orca programs, with local data and one word changed.

The forms are those of BigDL's tests of the estimator (creators, backend spark), of its tutorial on
images (objects, backend bigdl, triggers and TensorBoard) and of its NCF example (several inputs,
backend ray).
"""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.orca.learn.metrics import Accuracy, Precision, Recall
from hyperplane.orca.learn.pytorch import Estimator
from hyperplane.orca.learn.trigger import EveryEpoch
from hyperplane.platforms.local import gpus as local_gpus

pytestmark = [pytest.mark.cluster, pytest.mark.torch]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
#: Memory of a worker with its rank, which needs more for CUDA.
RAM_GB = 2.0 if local_gpus.detect_gpus().visible else 1.0


@pytest.fixture(scope="module", autouse=True)
def client():
    """Client of two worker processes with memory for a rank each."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=RAM_GB, local_fit="exact"
    )
    yield client
    client.close()
    cluster.close()


def make_dataset(size):
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())


def train_loader(config, batch_size):
    import torch

    dataset = make_dataset(config.get("data_size", 200))
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True)


def make_model(config):
    import torch

    return torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Sigmoid())


def make_optimizer(model, config):
    import torch

    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 1e-2))


def test_creators_on_the_backend_spark():
    import torch

    estimator = Estimator.from_torch(
        model=make_model,
        optimizer=make_optimizer,
        loss=torch.nn.BCELoss(),
        metrics=Accuracy(),
        config={"lr": 1.0},
        workers_per_node=2,
        backend="spark",
    )
    train_stats = estimator.fit(train_loader, epochs=3, batch_size=20)
    assert len(train_stats) == 3
    assert train_stats[-1]["train_loss"] < train_stats[0]["train_loss"]
    val_stats = estimator.evaluate(train_loader, batch_size=64)
    assert 0.9 < val_stats["Accuracy"] <= 1
    assert val_stats["num_samples"] == 200
    assert estimator.get_model()
    estimator.shutdown()


def test_objects_on_the_backend_bigdl(tmp_path):
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    dataset = torch.utils.data.TensorDataset(
        make_dataset(200).tensors[0], make_dataset(200).tensors[1][:, 0].long()
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=20, shuffle=True)
    estimator = Estimator.from_torch(
        model=net,
        optimizer=optimizer,
        loss=torch.nn.CrossEntropyLoss(),
        metrics=[Accuracy()],
        backend="bigdl",
        model_dir=tmp_path,
    )
    estimator.set_tensorboard(tmp_path / "log", "bigdl")
    estimator.fit(data=loader, epochs=2, validation_data=loader, checkpoint_trigger=EveryEpoch())
    assert estimator.get_validation_summary("Accuracy")[-1][1] > 0.9
    assert [step for step, _, _ in estimator.get_train_summary("Loss")] == list(range(1, 21))
    other = Estimator.from_torch(model=net, optimizer=optimizer, loss=torch.nn.CrossEntropyLoss())
    other.load_orca_checkpoint(tmp_path)
    torch.testing.assert_close(other.get_state_dict()["model"], estimator.get_state_dict()["model"])


def make_table_model(config):
    import torch

    class Ncf(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.users = torch.nn.Embedding(10, config["factors"])
            self.items = torch.nn.Embedding(10, config["factors"])
            self.last = torch.nn.Linear(config["factors"], 1)

        def forward(self, user, item):
            return self.last(self.users(user) * self.items(item))[:, 0]

    return Ncf()


@pytest.mark.slow
def test_tables_with_integer_columns_on_the_backend_ray(tmp_path):
    import torch

    pairs = np.stack(np.divmod(np.arange(100), 10), axis=1)
    frame = pd.DataFrame(pairs, columns=["user", "item"])
    frame["label"] = (frame["user"] == frame["item"] + 1).astype("float32")
    columns = {"feature_cols": ["user", "item"], "label_cols": ["label"]}
    estimator = Estimator.from_torch(
        model=make_table_model,
        optimizer=lambda model, config: torch.optim.Adam(model.parameters(), lr=config["lr"]),
        loss=torch.nn.BCEWithLogitsLoss(),
        metrics=[Accuracy(), Precision(), Recall()],
        backend="ray",
        config={"factors": 8, "lr": 0.1},
    )
    estimator.fit(data=frame, epochs=20, batch_size=10, **columns)
    result = estimator.evaluate(data=frame, batch_size=10, **columns)
    assert set(result) == {"val_loss", "num_samples", "Accuracy", "Precision", "Recall"}
    assert result["Recall"] > 0.9
    path = estimator.save(tmp_path / "NCF_model")
    again = make_table_model({"factors": 8})
    again.load_state_dict(torch.load(path, weights_only=True))
