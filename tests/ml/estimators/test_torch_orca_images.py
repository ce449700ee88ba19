"""Programs in the form of published Orca programs on images and tables, with local data.

The forms are those of BigDL's examples of super resolution (creators, ``ModelCheckpoint``, values
for each epoch) and of segmentation (a creator of the loss, a function that changes its arguments as
the metric, tables in ``config``), and of its test of XShards of tables (Orca's optimizer, loss of a
function, checkpoints of ``model_dir``).
"""

from __future__ import annotations

import math
import sys

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from hyperplane.orca.learn.metrics import Accuracy
from hyperplane.orca.learn.optimizers import SGD
from hyperplane.orca.learn.optimizers.schedule import Default
from hyperplane.orca.learn.pytorch import Estimator
from hyperplane.orca.learn.pytorch.callbacks.model_checkpoint import ModelCheckpoint
from hyperplane.orca.learn.trigger import EveryEpoch

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.usefixtures("local_ranks")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Images(torch.utils.data.Dataset):
    """Images of 8 x 8 and what is made of them."""

    def __init__(self, rows, make):
        generator = torch.Generator().manual_seed(rows)
        self.images = torch.rand(rows, 1, 8, 8, generator=generator)
        self.make = make

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return self.make(self.images[number])


def shrink(image):
    return functional.avg_pool2d(image, 2), image


class SuperResolution(nn.Module):
    """Twice the size, by the shuffle of pixels."""

    def __init__(self, factor):
        super().__init__()
        self.conv = nn.Conv2d(1, factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x):
        return self.shuffle(self.conv(x))


def test_super_resolution_with_checkpoints_of_epochs(tmp_path):
    def train_data_creator(config, batch_size):
        dataset = Images(config["rows"], shrink)
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True)

    def model_creator(config):
        torch.manual_seed(config.get("seed", 123))
        return SuperResolution(config.get("upscale_factor", 2))

    estimator = Estimator.from_torch(
        model=model_creator,
        optimizer=lambda model, config: torch.optim.Adam(model.parameters(), lr=config["lr"]),
        loss=nn.MSELoss(),
        model_dir=str(tmp_path / "models"),
        backend="spark",
        config={"lr": 0.05, "rows": 24},
        ranks=2,
        log_to_driver=False,
    )
    path = str(tmp_path / "checkpoints" / "model_epoch_{epoch:02d}.pth")
    callbacks = [ModelCheckpoint(filepath=path, save_weights_only=True)]
    stats = estimator.fit(data=train_data_creator, epochs=4, batch_size=8, callbacks=callbacks)
    assert [info["epoch"] for info in stats] == [1, 2, 3, 4]
    assert stats[-1]["train_loss"] < stats[0]["train_loss"]
    val_stats = estimator.evaluate(data=train_data_creator, batch_size=10)
    assert 10 * math.log10(1 / val_stats["val_loss"]) > 0
    other = Estimator.from_torch(model=model_creator, loss=nn.MSELoss(), ranks=2, backend="spark")
    other.load_checkpoint(Estimator.latest_checkpoint(str(tmp_path / "checkpoints")))
    torch.testing.assert_close(other.get_state_dict()["model"], estimator.get_state_dict()["model"])


def test_segmentation_with_a_metric_that_changes_its_arguments():
    def dice_coef_metric(pred, label):
        pred[pred >= 0.5] = 1.0
        pred[pred < 0.5] = 0.0
        union = pred.sum() + label.sum()
        return 1.0 if union == 0 else 2.0 * (pred * label).sum() / union

    def bce_dice_loss(pred, label):
        dice = 1 - (2 * (pred * label).sum() + 1) / (pred.sum() + label.sum() + 1)
        return dice + nn.BCELoss()(pred, label)

    def data_creator(config, batch_size):
        dataset = Images(len(config["train"]), lambda image: (image, (image > 0.6).float()))
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True)

    estimator = Estimator.from_torch(
        model=lambda config: nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Sigmoid()),
        optimizer=lambda model, config: torch.optim.Adam(model.parameters(), lr=config["lr"]),
        loss=lambda config: bce_dice_loss,
        metrics=[dice_coef_metric, "mse"],
        backend="ray",
        config={"lr": 0.05, "train": pd.DataFrame({"image_path": ["a"] * 12})},
        scheduler_creator=lambda optimizer, config: torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, T_max=30
        ),
        ranks=2,
        log_to_driver=False,
    )
    stats = estimator.fit(data=data_creator, epochs=8, batch_size=3, validation_data=data_creator)
    assert stats[-1]["val_dice_coef_metric"] > 0.6
    # The squared errors of classes 0 and 1 would be 0 where the metric has rounded.
    images = Images(12, lambda image: image).images
    model = estimator.get_model().eval()
    expected = functional.mse_loss(model(images), (images > 0.6).float()).item()
    assert estimator.evaluate(data_creator, batch_size=12)["MSE"] == pytest.approx(
        expected, rel=1e-4
    )


def test_shards_of_tables_with_an_optimizer_of_orca(tmp_path):
    from hyperplane.orca.data.pandas import read_csv

    random = np.random.default_rng(0)
    frame = pd.DataFrame({"user": random.random(40), "item": random.random(40)})
    frame["label"] = (frame["user"] > frame["item"]).astype(int)
    for number in range(2):
        frame[number * 20 :][:20].to_csv(tmp_path / f"{number}.csv", index=False)

    def transform(df):
        features = np.stack([df["user"].to_numpy(), df["item"].to_numpy()], axis=1)
        return {"x": features, "y": df["label"].to_numpy()}

    def loss_func(output, target):
        return nn.CrossEntropyLoss().forward(output, target.flatten().long())

    data_shard = read_csv(str(tmp_path)).transform_shard(transform)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.LogSoftmax(dim=1))
    estimator = Estimator.from_torch(
        model=model,
        loss=loss_func,
        metrics=[Accuracy()],
        optimizer=SGD(1.0, learningrate_schedule=Default()),
        model_dir=tmp_path / "models",
        ranks=2,
        log_to_driver=False,
    )
    estimator.fit(
        data=data_shard, epochs=10, batch_size=4, validation_data=data_shard,
        checkpoint_trigger=EveryEpoch(),
    )  # fmt: skip
    assert estimator.evaluate(data_shard, batch_size=4)["Accuracy"] > 0.7
    est2 = Estimator.from_torch(model=model, loss=loss_func, metrics=[Accuracy()], ranks=2)
    est2.load_orca_checkpoint(tmp_path / "models")
    torch.testing.assert_close(
        est2.get_model().state_dict(), estimator.get_model().state_dict(), rtol=0, atol=0
    )
    found = est2.predict(data_shard.transform_shard(lambda d: {"x": d["x"]})).collect()
    assert [shard["prediction"].shape for shard in found] == [(20, 2), (20, 2)]
