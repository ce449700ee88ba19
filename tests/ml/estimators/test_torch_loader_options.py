"""Options of DataLoaders that have no effect in the ranks of an estimator of PyTorch."""

from __future__ import annotations

import sys
import warnings

import cloudpickle
import numpy as np
import pytest

from hyperplane.ml import Estimator
from hyperplane.ml.estimators.torch_batches import open_loader_batches

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.usefixtures("local_ranks")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
X = np.random.default_rng(3).normal(size=(16, 2)).astype(np.float32)


def make_loader(**options):
    samples = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(X[:, :1]))
    return torch.utils.data.DataLoader(samples, batch_size=8, **options)


def test_a_loader_of_the_client_causes_one_warning_and_is_used():
    estimator = Estimator.from_torch(
        model=torch.nn.Linear(2, 1),
        optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
        loss=torch.nn.MSELoss(),
        ranks=2,
        log_to_driver=False,
    )
    loader, validation = make_loader(num_workers=2), make_loader(num_workers=2, pin_memory=True)
    with pytest.warns(UserWarning, match="no effect") as caught:
        history = estimator.fit(loader, validation_data=validation)
    assert [str(each.message) for each in caught] == [
        "no effect: num_workers=2, pin_memory=True of the DataLoader; "
        "each rank loads its batches in its process"
    ]
    assert caught[0].filename == __file__
    assert history[0]["num_samples"] == 16


def test_a_loader_of_a_function_causes_a_warning_in_rank_0_only():
    def open_batches(rank, **options):
        source = lambda config, batch_size: make_loader(**options)  # noqa: E731
        return open_loader_batches(source, {}, 8, rank, 2, False, 0)

    with pytest.warns(UserWarning, match="no effect: num_workers=1 of the DataLoader"):
        assert open_batches(0, num_workers=1).steps == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_batches(1, num_workers=1)
        open_batches(0)
