"""Libraries of Ray that published programs use, on a cluster of ``initialize_ray_cluster``.

``docs/reference/published-programs.md`` has a table of those that work and of what replaces others.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pandas as pd
import pytest
from scale import FULL
from services import is_empty, temporary_directory

from hyperplane.ray_common import initialize_ray_cluster, stop_ray_cluster

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # those of Ray

FEATURES = ["a", "b", "c"]
#: Ray Train and Tune print tables.
QUIET = {"verbose": 0}


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, connected to a cluster with two cores."""
    import ray

    with temporary_directory():
        with dask.config.set({"hyperplane.engines.ray_local.dashboard": False}):
            cluster = initialize_ray_cluster(1, 2, 2)
        ray.init(logging_level="ERROR", log_to_driver=False)
        try:
            yield ray
        finally:
            ray.shutdown()
            stop_ray_cluster(cluster)
            assert is_empty(Path(os.environ["TMPDIR"]))


def make_rows() -> pd.DataFrame:
    numbers = np.random.default_rng(0).normal(size=(400, 3))
    rows = pd.DataFrame(numbers, columns=FEATURES)
    return rows.assign(y=(rows["a"] + rows["b"] > 0).astype("float64"))


@pytest.mark.ray
def test_tune_run_finds_the_best_trial(ray: Any) -> None:
    from ray import tune

    def train(config: dict[str, Any], checkpoint_dir: None = None) -> None:
        assert checkpoint_dir is None
        for step in range(3):
            # Published programs passed a keyword. The random beta decides nothing.
            loss = 1 / (0.1 + config["alpha"] * step / 100) + config["beta"] * 0.01
            tune.report({"mean_loss": loss})

    space = {"alpha": tune.grid_search([0.001, 0.01, 0.1]), "beta": tune.choice([1, 2, 3])}
    analysis = tune.run(train, config=space, **QUIET)
    assert analysis.get_best_config(metric="mean_loss", mode="min")["alpha"] == 0.1
    assert len(analysis.results_df) == len(analysis.trial_dataframes) == 3


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(
    "scheduler",
    [
        "ASHAScheduler",
        pytest.param(
            "PopulationBasedTraining",
            marks=pytest.mark.skipif(not FULL, reason="as the other one: at full scale"),
        ),
    ],
)
def test_schedulers_of_tune_run(ray: Any, scheduler: str) -> None:
    from ray import tune
    from ray.tune import schedulers

    def train(config: dict[str, Any]) -> None:
        for step in range(4):
            tune.report({"loss": config["x"] ** 2 + 1 / (step + 1)})

    x = tune.uniform(-1, 1)
    mutations = {"perturbation_interval": 2, "hyperparam_mutations": {"x": x}}
    options = mutations if scheduler == "PopulationBasedTraining" else {}
    configuration = tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=3,
        scheduler=getattr(schedulers, scheduler)(**options),
    )
    run = tune.RunConfig(**QUIET)
    results = tune.Tuner(
        train, param_space={"x": x}, tune_config=configuration, run_config=run
    ).fit()
    assert (len(results), results.errors) == (3, [])
    assert 0.25 <= results.get_best_result().metrics["loss"] < 2


@pytest.mark.ray
def test_ray_train_runs_without_an_address(ray: Any, tmp_path: Path) -> None:
    from ray import train
    from ray.train.xgboost import XGBoostTrainer

    file = tmp_path / "ranks"

    def fit() -> None:
        from ray import train

        # Each worker costs ten seconds of CPU time; other tests have two.
        file.write_text(f"{train.get_context().get_world_size()}")

    XGBoostTrainer(fit, scaling_config=train.ScalingConfig(num_workers=1)).fit()
    assert file.read_text() == "1"


@pytest.mark.ray
@pytest.mark.skipif(not FULL, reason="PyTorch trains with two workers, too: at full scale")
def test_two_workers_of_ray_train_fit_one_model_of_xgboost(ray: Any) -> None:
    import xgboost
    from ray import train
    from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer

    def fit() -> None:
        import xgboost
        from ray import train
        from ray.train.xgboost import RayTrainReportCallback

        rows = train.get_dataset_shard("train").materialize().to_pandas()
        matrix = xgboost.DMatrix(rows[["a", "b", "c"]], rows["y"])
        xgboost.train(
            {"objective": "binary:logistic", "max_depth": 2, "nthread": 1},
            matrix,
            num_boost_round=5,
            evals=[(matrix, "train")],
            verbose_eval=False,
            callbacks=[RayTrainReportCallback()],
        )

    rows = make_rows()
    result = XGBoostTrainer(
        fit,
        scaling_config=train.ScalingConfig(num_workers=2),
        datasets={"train": ray.data.from_pandas(rows)},
    ).fit()
    assert result.metrics["train-logloss"] < 0.3
    model = RayTrainReportCallback.get_model(result.checkpoint)
    predicted = model.predict(xgboost.DMatrix(rows[FEATURES])) > 0.5
    assert (predicted == rows["y"]).mean() > 0.9


@pytest.mark.ray
@pytest.mark.skipif(not FULL, reason="PyTorch trains with two workers, too: at full scale")
def test_two_workers_of_ray_train_fit_one_model_of_lightgbm(ray: Any) -> None:
    from ray import train
    from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback

    def fit() -> None:
        import lightgbm
        from ray import train
        from ray.train.lightgbm import RayTrainReportCallback, get_network_params

        rows = train.get_dataset_shard("train").materialize().to_pandas()
        data = lightgbm.Dataset(rows[["a", "b", "c"]], rows["y"])
        options = {"objective": "binary", "verbose": -1, "num_leaves": 7, "num_threads": 1}
        network = {"tree_learner": "data", "pre_partition": True, **get_network_params()}
        lightgbm.train(
            {**options, **network},
            data,
            num_boost_round=20,
            valid_sets=[data],
            valid_names=["train"],
            callbacks=[RayTrainReportCallback()],
        )

    rows = make_rows()
    result = LightGBMTrainer(
        fit,
        scaling_config=train.ScalingConfig(num_workers=2),
        datasets={"train": ray.data.from_pandas(rows)},
    ).fit()
    assert result.metrics["train-binary_logloss"] < 0.5
    predicted = RayTrainReportCallback.get_model(result.checkpoint).predict(rows[FEATURES]) > 0.5
    assert (predicted == rows["y"]).mean() > 0.9


@pytest.mark.ray
@pytest.mark.slow
def test_joblib_and_pools_compute_on_the_cluster(ray: Any) -> None:
    import joblib
    from ray.util.joblib import register_ray
    from ray.util.multiprocessing import Pool
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    rows = make_rows()
    register_ray()
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 4]}, cv=2)
    with joblib.parallel_backend("ray"):
        search.fit(rows[FEATURES], rows["y"])
    assert search.best_params_ == {"max_depth": 4}
    with Pool(2) as pool:
        assert pool.map(lambda number: number**2, range(5)) == [0, 1, 4, 9, 16]
        assert pool.apply(os.getpid) != os.getpid()


@pytest.mark.ray
@pytest.mark.slow
def test_the_datasets_of_the_published_program(ray: Any) -> None:
    dataset = ray.data.range(1000)
    # Rows of the block that is read first, which need not be the first one.
    assert [list(row) for row in dataset.take(2)] == [["id"], ["id"]]
    assert (dataset.count(), dataset.sum("id")) == (1000, 499500)
    records = ray.data.from_items([{"col1": n, "col2": str(n)} for n in range(1000)])
    assert (records.schema().names, records.count()) == (["col1", "col2"], 1000)


# The environment of Spark is the one with both Ray and PyTorch.
@pytest.mark.spark
@pytest.mark.slow
def test_two_workers_of_ray_train_fit_one_network(ray: Any) -> None:
    from ray import train
    from ray.train.torch import TorchTrainer

    def fit() -> None:
        import torch
        from ray import train
        from ray.train.torch import prepare_model

        rank = train.get_context().get_world_rank()
        model = prepare_model(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        # Each rank has half of the line y = 2x + 1.
        x = torch.linspace(-1, 0, 16).reshape(-1, 1) + rank
        for _ in range(100):
            loss = ((model(x) - 2 * x - 1) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            weights = {name: value.item() for name, value in model.module.state_dict().items()}
            Path(folder, "weights").write_bytes(pickle.dumps(weights))
            checkpoint = train.Checkpoint.from_directory(folder) if rank == 0 else None
            ranks = train.get_context().get_world_size()
            train.report({"loss": loss.item(), "ranks": ranks}, checkpoint=checkpoint)

    result = TorchTrainer(fit, scaling_config=train.ScalingConfig(num_workers=2)).fit()
    assert result.metrics["ranks"] == 2
    with result.checkpoint.as_directory() as folder:
        weights = pickle.loads(Path(folder, "weights").read_bytes())
    assert weights == pytest.approx({"weight": 2, "bias": 1}, abs=0.05)
