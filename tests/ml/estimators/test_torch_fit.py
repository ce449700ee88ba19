"""Forms of ``fit`` with ranks without a gang: batch sizes, further calls, loaders, clipping."""

from __future__ import annotations

import sys
import warnings

import cloudpickle
import dask.array as da
import numpy as np
import pytest
import torch_training
from torch_training import (
    X,
    Y,
    assert_equal_weights,
    make_model,
    make_optimizer,
    make_scheduler,
    predict_alone,
    to_tensor,
    train_alone,
)

from hyperplane.errors import RequestError
from hyperplane.ml.estimators.torch_batches import open_loader_batches
from hyperplane.orca.learn.metrics import MSE
from hyperplane.orca.learn.trigger import EveryEpoch, SeveralIteration

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.usefixtures("local_ranks")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def create(config=None, **options):
    return torch_training.create(config, ranks=2, **options)


def test_batch_size_of_instances_is_that_of_all_ranks_and_fits_continue(tmp_path):
    losses, model = train_alone({"adam": True}, 3, decay=True)
    own = make_model({})
    estimator = create(
        model=own,
        optimizer=make_optimizer(own, {"adam": True}),
        loss=torch.nn.MSELoss(),
        scheduler_creator=make_scheduler,
        model_dir=tmp_path / "models",
    )
    estimator.set_tensorboard(tmp_path / "log", "test")
    data = (da.from_array(X, chunks=(20, 3)), da.from_array(Y, chunks=(20, 1)))
    estimator.fit(data, epochs=1, batch_size=32)
    saved = estimator.save_checkpoint(tmp_path / "state.pt")
    trigger = SeveralIteration(4)
    history = estimator.fit(
        data, epochs=2, batch_size=32, validation_data=(X, Y), checkpoint_trigger=trigger
    )
    found = [value for _, value, _ in estimator.get_train_summary("Loss")]
    np.testing.assert_allclose(found, losses, rtol=2e-4, atol=1e-6)
    assert_equal_weights(estimator, model)
    assert [stats["epoch"] for stats in history] == [2, 3]
    assert [value for _, value, _ in estimator.get_validation_summary("Loss")] == [
        stats["val_loss"] for stats in history
    ]
    assert estimator.get_train_summary("LearningRate")[-1][1] == pytest.approx(0.0125)

    other = create({"adam": True}, scheduler_creator=make_scheduler, backend="bigdl")
    other.load_checkpoint(saved)
    other.fit(data, epochs=2, batch_size=32)
    assert_equal_weights(other, model)
    other.load_orca_checkpoint(tmp_path / "models", version=8)
    assert other.get_state_dict()["step"] == 8
    other.load_orca_checkpoint(tmp_path / "models")
    assert_equal_weights(other, model)
    estimator.save(tmp_path / "weights.pt")
    fresh = create()
    fresh.load(tmp_path / "weights.pt")
    assert_equal_weights(fresh, model)
    with pytest.raises(RequestError, match="a checkpoint of save_checkpoint"):
        fresh.load_checkpoint(tmp_path / "weights.pt")
    with pytest.raises(RequestError, match="checkpoint of step 5"):
        fresh.load_orca_checkpoint(tmp_path / "models", 5)


def make_loader(config, batch_size, **options):
    dataset = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, **options)


def test_loaders_and_their_creators_are_divided_among_the_ranks():
    model = make_model({})
    optimizer = make_optimizer(model, {})
    for start in range(0, 90, 32):  # the sampler alternates: rank 0 has the even samples
        rows = slice(start, start + 32)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(to_tensor(X[rows])), to_tensor(Y[rows])).backward()
        optimizer.step()
    for data, options in (
        (make_loader, {"backend": "ray"}),
        (make_loader({}, 32), {"backend": "bigdl"}),
        (make_loader({}, 1).dataset, {"backend": "ray"}),
    ):
        estimator = create(metrics=MSE(), **options)
        history = estimator.fit(
            data,
            batch_size=16 if options["backend"] == "ray" else 32,
            validation_data=make_loader,
            checkpoint_trigger=EveryEpoch(),
        )
        assert_equal_weights(estimator, model)
        assert history[0]["val_mse"] == pytest.approx(
            float(np.square(predict_alone(model) - Y).mean()), rel=1e-4
        )


def test_gradient_clipping_limits_the_steps():
    start = make_model({}).state_dict()
    estimator = create(backend="bigdl")
    estimator.set_l2_norm_gradient_clipping(1e-4)
    estimator.fit((X, Y), batch_size=90)
    moved = [
        (value - start[name]).norm() for name, value in estimator.get_model().state_dict().items()
    ]
    assert torch.stack(moved).norm() == pytest.approx(0.05 * 1e-4, rel=0.01)
    estimator = create(backend="bigdl")
    estimator.set_constant_gradient_clipping(-1e-4, 1e-4)
    estimator.fit((X, Y), batch_size=90)
    changes = [
        (value - start[n]).abs().max() for n, value in estimator.get_model().state_dict().items()
    ]
    assert max(changes) == pytest.approx(0.05 * 1e-4, rel=0.01)
    assert len(create().fit((X, Y), batch_size=16, max_steps=2)) == 1


def test_a_loader_of_the_client_causes_one_warning_and_is_used():
    loader = make_loader({}, 30, num_workers=2)
    validation = make_loader({}, 30, num_workers=2, pin_memory=True)
    with pytest.warns(UserWarning, match="no effect") as caught:
        history = create(backend="bigdl").fit(loader, validation_data=validation)
    assert [str(each.message) for each in caught] == [
        "no effect: num_workers=2, pin_memory=True of the DataLoader; "
        "each rank loads its batches in its process"
    ]
    assert caught[0].filename == __file__
    assert history[0]["num_samples"] == 90


def test_a_loader_of_a_function_causes_a_warning_in_rank_0_only():
    def open_batches(rank, **options):
        source = lambda config, batch_size: make_loader(config, batch_size, **options)  # noqa: E731
        return open_loader_batches(source, {}, 45, rank, 2, False, 0)

    with pytest.warns(UserWarning, match="no effect: num_workers=1 of the DataLoader"):
        assert open_batches(0, num_workers=1).steps == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_batches(1, num_workers=1)
        open_batches(0)
