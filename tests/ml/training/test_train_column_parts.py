"""Parts of a network that use different columns: equal to one network in one process."""

from __future__ import annotations

import pickle

import dask.array as da
import dask.dataframe as dd
import pandas as pd
import pytest

import hyperplane.ml
from hyperplane.errors import RequestError

torch = pytest.importorskip("torch")

from plain_training import ADAM, SGD, X, Y, assert_equal_parameters, draw_order, train  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.torch]

COLUMNS = [slice(0, 4), [4, 5]]


def make_parts():
    torch.manual_seed(2)
    return [
        torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)),
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)),
    ]


class Undivided(torch.nn.Module):
    def __init__(self, combine):
        super().__init__()
        self.parts, self.combine = torch.nn.ModuleList(make_parts()), combine

    def forward(self, x):
        one, two = self.parts[0](x[:, :4]), self.parts[1](x[:, 4:])
        return self.combine(one, two)


def train_columns(client, data=None, parts=None, columns=None, **options):
    given = {"loss": torch.nn.MSELoss(), "optimizer": SGD, "epochs": 2, "batch_size": 20}
    return hyperplane.ml.train_column_parts(
        client, parts or make_parts(), columns or COLUMNS, (X, Y) if data is None else data,
        **(given | {"logs": False} | options),
    )  # fmt: skip


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_parts_equal_one_network(client, combine):
    """Ten steps in two epochs."""
    optimizer = {"sum": SGD, "mean": ADAM}[combine]
    order = {"sum": None, "mean": draw_order}[combine]
    x = da.from_array(X, chunks=(30, 6))
    data = (x, da.from_array(Y, chunks=(30, 1)))
    result = train_columns(
        client, data, combine=combine, optimizer=optimizer, shuffle=order is not None
    )
    undivided = Undivided(lambda one, two: (one + two) / (1 if combine == "sum" else 2))
    losses = train(undivided, optimizer, 2, 20, order=order)
    assert [entry["train_loss"] for entry in result.history] == pytest.approx(losses, rel=1e-5)
    assert_equal_parameters(result.model.parts, undivided.parts)
    rows = torch.tensor(X, dtype=torch.float32)
    torch.testing.assert_close(result.model(rows), undivided(rows), rtol=1e-4, atol=1e-5)
    again = pickle.loads(pickle.dumps(result.model))
    assert torch.equal(again(rows), result.model(rows))


def test_a_module_that_combines_is_trained(client):
    """Outputs of different widths, and columns of a dataframe by name."""
    names = list("abcdef")
    table = dd.from_pandas(pd.DataFrame(X, columns=names).assign(y=Y[:, 0]), npartitions=3)
    parts = [make_parts()[0][:2], make_parts()[1][:2]]
    torch.manual_seed(3)
    head = torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    result = train_columns(
        client, table, parts, [["a", "b", "c", "d"], ["e", "f"]], combine=head,
        feature_cols=names, label_cols="y", shuffle=False,
    )  # fmt: skip
    undivided = Undivided(None)
    undivided.parts = torch.nn.ModuleList([make_parts()[0][:2], make_parts()[1][:2]])
    torch.manual_seed(3)
    head = torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    undivided.add_module("head", head)
    undivided.combine = lambda one, two: head(torch.cat([one, two], dim=1))
    losses = train(undivided, SGD, 2, 20, lambda out, y: torch.nn.functional.mse_loss(out, y[:, 0]))
    assert [entry["train_loss"] for entry in result.history] == pytest.approx(losses, rel=1e-5)
    assert_equal_parameters(result.model.parts, undivided.parts)
    assert_equal_parameters(result.model.combine, head)


def test_separate_losses(client):
    """Equal to one network with the sum of the losses of both outputs."""
    result = train_columns(client, combine="mean", separate_losses=True, shuffle=False)
    undivided = Undivided(lambda one, two: (one, two))
    mse = torch.nn.functional.mse_loss
    losses = train(undivided, SGD, 2, 20, lambda out, y: mse(out[0], y) + mse(out[1], y))
    assert [entry["train_loss"] for entry in result.history] == pytest.approx(losses, rel=1e-5)
    assert_equal_parameters(result.model.parts, undivided.parts)
    rows = torch.tensor(X, dtype=torch.float32)
    expected = sum(undivided(rows)) / 2
    torch.testing.assert_close(result.model(rows), expected, rtol=1e-4, atol=1e-5)


def test_all_faults_at_once(client):
    with pytest.raises(RequestError) as error:
        train_columns(
            client, columns=[slice(0, 4), ["z"], []], combine=torch.nn.ReLU(),
            separate_losses=True, batch_size=0,
        )  # fmt: skip
    text = str(error.value)
    for where in ("columns[1]", "columns[2]", "len(columns)", "combine", "batch_size"):
        assert f" {where}" in text, text
    with pytest.raises(RequestError, match=r"columns\[1\].*which have 6"):
        train_columns(client, columns=[slice(0, 4), [5, 6]])
    with pytest.raises(RequestError, match="labels"):
        train_columns(client, X)
