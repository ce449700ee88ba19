"""Networks on a real GPU: which device the ranks use, and results equal to those of the CPU.

The tests of ``estimators`` and ``training`` also use the GPU on a machine that has one.
"""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pytest

import hyperplane
from hyperplane.ml import Estimator, gpu_equivalent
from hyperplane.platforms.local import gpus as local_gpus

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not local_gpus.detect_gpus().visible, reason="there is no GPU"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(600, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [3.0]]) + 0.1).astype(np.float32)


@pytest.fixture(scope="module")
def client():
    """Client of two worker processes with memory for a rank each."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=4.0
    )
    yield client
    client.close()
    cluster.close()


def make_model(config):
    import torch

    class Model(torch.nn.Module):
        """Counts its rows on the GPU and on the CPU."""

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)
            self.register_buffer("rows_on_gpu", torch.zeros(()))
            self.register_buffer("rows", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.rows += len(x)
                self.rows_on_gpu += len(x) * x.is_cuda
            return self.linear(x)

    return Model()


def make_optimizer(model, config):
    import torch

    return torch.optim.Adam(model.parameters(), lr=0.05)


@pytest.mark.torch
@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_train_on_the_gpu_as_on_the_cpu(ranks):
    import torch

    estimator = Estimator.from_torch(
        model=make_model, optimizer=make_optimizer, loss=torch.nn.MSELoss, ranks=ranks,
        config={}, backend="torch_distributed", log_to_driver=False,
    )  # fmt: skip
    history = estimator.fit((X, Y), epochs=4, batch_size=40 // ranks)
    trained = estimator.get_model()
    assert trained.rows == trained.rows_on_gpu == 4 * len(X) / ranks
    assert next(trained.parameters()).device.type == "cpu"

    torch.manual_seed(0)
    model = make_model({})
    optimizer = make_optimizer(model, {})
    half = len(X) // ranks
    for _ in range(4):
        for start in range(0, half, 40 // ranks):
            rows = np.concatenate(
                [np.arange(each * half + start, each * half + start + 40 // ranks)
                 for each in range(ranks)]
            )  # fmt: skip
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(
                model(torch.tensor(X[rows])), torch.tensor(Y[rows])
            ).backward()
            optimizer.step()
    torch.testing.assert_close(trained.linear.weight, model.linear.weight, rtol=1e-3, atol=1e-4)
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    expected = model(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(estimator.predict(X), expected, rtol=1e-3, atol=1e-3)


def _blobs():
    from sklearn.datasets import make_blobs

    return make_blobs(3000, 6, centers=4, random_state=1)


@pytest.mark.parametrize(
    ("module", "name", "options"),
    [
        ("cluster", "KMeans", {"n_clusters": 4, "random_state": 0}),
        ("decomposition", "PCA", {"n_components": 2}),
        ("linear_model", "LogisticRegression", {}),
        ("linear_model", "Ridge", {"alpha": 0.5}),
        ("ensemble", "RandomForestClassifier", {"n_estimators": 20, "random_state": 0}),
        ("neighbors", "KNeighborsClassifier", {"n_neighbors": 5}),
        ("preprocessing", "StandardScaler", {}),
    ],
)
def test_estimators_of_cuml_agree_with_scikit_learn(module, name, options):
    import importlib

    pytest.importorskip("cuml")
    x, y = _blobs()
    x = x.astype(np.float32)
    plain = getattr(importlib.import_module(f"sklearn.{module}"), name)(**options)
    found = gpu_equivalent(plain)
    assert type(found).__module__.startswith("cuml")
    plain.fit(x, y)
    found.fit(x, y)
    if name == "KMeans":
        assert float(found.inertia_) == pytest.approx(float(plain.inertia_), rel=0.02)
    elif hasattr(plain, "transform"):
        one, two = np.asarray(plain.transform(x)), np.asarray(found.transform(x))
        np.testing.assert_allclose(np.abs(one), np.abs(two), rtol=1e-2, atol=1e-2)
    else:
        one, two = np.asarray(plain.predict(x)), np.asarray(found.predict(x))
        if name == "Ridge":
            np.testing.assert_allclose(one, two, rtol=1e-2, atol=1e-2)
        else:
            assert (one == two).mean() > 0.99


def test_distributed_estimators_of_cuml_train_on_a_cluster_of_gpus():
    pytest.importorskip("cuml")
    pytest.importorskip("raft_dask")
    import dask.array as da
    from sklearn.cluster import KMeans

    x = _blobs()[0].astype(np.float32)
    client, cluster = hyperplane.initialize_cluster(
        engine="cuda", num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=8, ngpus=1,
        timeout=120, engine_options={"dataframe_backend": "pandas"},
    )  # fmt: skip
    with cluster, client:
        import cupy

        data = da.from_array(x, chunks=(1000, 6)).map_blocks(cupy.asarray).persist()
        model = gpu_equivalent(KMeans(n_clusters=4, random_state=0), distributed=True)
        model.fit(data)
        labels = cupy.asnumpy(model.predict(data).compute())
    expected = KMeans(n_clusters=4, random_state=0, n_init=10).fit(x)
    from sklearn.metrics import adjusted_rand_score

    assert adjusted_rand_score(expected.labels_, labels) > 0.95
