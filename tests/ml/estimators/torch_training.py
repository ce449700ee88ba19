"""A network, its rows, and its training in one process in the order that ranks have."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np

from hyperplane.ml import Estimator
from hyperplane.ml.estimators.training_data import divide_rows

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(90, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]]) + 0.1).astype(np.float32)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def make_model(config):
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def make_optimizer(model, config):
    import torch

    kind = torch.optim.Adam if config.get("adam") else torch.optim.SGD
    return kind(model.parameters(), lr=0.05)


def make_scheduler(optimizer, config):
    import torch

    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


def train_alone(config, epochs, batch=16, ranks=2, decay=False):
    """Train in this process in the documented order; return the losses of steps, and a model."""
    import torch

    model = make_model(config)
    optimizer, losses = make_optimizer(model, config), []
    scheduler = make_scheduler(optimizer, config) if decay else None
    limits = [(share[0][1], share[-1][2]) for share in divide_rows([90], ranks)]
    for _ in range(epochs):
        for start in range(0, max(b - a for a, b in limits), batch):
            rows = np.concatenate(
                [np.arange(min(b, a + start), min(b, a + start + batch)) for a, b in limits]
            )
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(torch.tensor(X[rows])), torch.tensor(Y[rows]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if scheduler:
            scheduler.step()
    return losses, model


def create(config=None, **options):
    import torch

    return Estimator.from_torch(
        **{
            "model": make_model,
            "optimizer": make_optimizer,
            "loss": torch.nn.MSELoss,
            "config": config or {},
            "log_to_driver": False,
            **options,
        }
    )


def assert_equal_weights(estimator, model):
    for name, value in estimator.get_model().state_dict().items():
        np.testing.assert_allclose(value, model.state_dict()[name], atol=2e-6)


def predict_alone(model):
    return model(to_tensor(X)).detach().numpy()


def to_tensor(array):
    import torch

    return torch.tensor(array)
