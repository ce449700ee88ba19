"""Data, networks and training in one process, with which training on a cluster is compared."""

from __future__ import annotations

import functools

import numpy as np
import torch

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(86, 6))
Y = X @ _RNG.normal(size=(6, 1)) + 1
SGD = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
ADAM = functools.partial(torch.optim.Adam, lr=0.01)


def train(model, optimizer, epochs, batch_size, loss=torch.nn.functional.mse_loss, order=None):
    """Train a model in this process; return the mean loss of each epoch.

    ``order`` returns the order of rows of an epoch.
    """
    x, y = (torch.tensor(each, dtype=next(model.parameters()).dtype) for each in (X, Y))
    created, losses = optimizer(model.parameters()), []
    for epoch in range(epochs):
        total, rows = 0.0, torch.arange(len(x)) if order is None else order(epoch)
        for batch in rows.split(batch_size):
            created.zero_grad()
            value = loss(model(x[batch]), y[batch])
            value.backward()
            created.step()
            total += float(value.detach()) * len(batch)
        losses.append(total / len(x))
    return losses


def draw_order(epoch):
    """Return the documented order of shuffled rows with the seed 0."""
    return torch.randperm(len(X), generator=torch.Generator().manual_seed(epoch))


def assert_equal_parameters(model, other):
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
