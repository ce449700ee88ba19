"""Fits of scikit-learn with joblib's own processes, joblib's Dask backend, and ``parallel``.

Each run is a separate process, alternating. Clusters and pools of processes start before the
measurement, as the time of a start is in ``startup.py``; the first fit still imports scikit-learn
in workers that have not loaded it.

Then predictions of a forest for flights in eight Parquet files: ``ParallelPostFit`` of dask-ml
against a loop over the files in one process.

    python benchmarks/ml.py --rounds 5
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from abab import print_report, run_alternately
from ml_methods import FEATURES, write_flights

COMMON = """
import json, time
from contextlib import nullcontext
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

X, y = load_digits(return_X_y=True)
X, y = np.tile(X, (REPEAT, 1)), np.tile(y, REPEAT)

def grid():
    space = {"C": [0.1, 1.0, 10.0], "gamma": [1e-4, 1e-3, 1e-2]}
    GridSearchCV(SVC(), space, cv=3, refit=False, n_jobs=JOBS).fit(X, y)

def forest():
    RandomForestClassifier(100, random_state=0, n_jobs=JOBS).fit(X, y)

def measure(context):
    figures = {}
    for name, fit in (("grid, first", grid), ("grid, second", grid), ("forest", forest)):
        began = time.perf_counter()
        with context():
            fit()
        figures[name] = time.perf_counter() - began
    print(json.dumps(figures))
"""

LOKY = (
    COMMON.replace("JOBS", "2")
    + """
import joblib
if __name__ == "__main__":
    joblib.Parallel(2)(joblib.delayed(int)(0) for _ in range(4))
    measure(lambda: joblib.parallel_config("loky", inner_max_num_threads=1))
"""
)

CLUSTER = (
    COMMON.replace("JOBS", "None")
    + """
from hyperplane import plan_cluster, start
if __name__ == "__main__":
    client, cluster = start(plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=1))
    CONTEXT
    client.close(); cluster.close()
"""
)

CONTEXTS = {
    "joblib dask": "import joblib; measure(lambda: joblib.parallel_backend('dask'))",
    "parallel": "from hyperplane.ml import parallel; measure(parallel)",
}

PREDICT = """
import json, time
from pathlib import Path
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

if __name__ == "__main__":
    train = pd.read_parquet(FOLDER + "/test.parquet").iloc[:10_000]
    model = RandomForestClassifier(32, max_depth=12, random_state=0)
    model.fit(train[FEATURES], train["late"])
    WITH
    began = time.perf_counter()
    late = PREDICT
    print(json.dumps({"predictions": time.perf_counter() - began}))
"""

PREDICTIONS = {
    "loop": {
        "WITH": "",
        "PREDICT": "sum(int(model.predict(pd.read_parquet(each)[FEATURES]).sum())"
        " for each in sorted(Path(FOLDER, 'train').glob('*')))",
    },
    "ParallelPostFit": {
        "WITH": """
    import hyperplane, hyperplane.ml
    from dask_ml.wrappers import ParallelPostFit
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=1)
    )
    wrapper = ParallelPostFit(model)""",
        "PREDICT": "int(wrapper.predict(hyperplane.dataframe.read(FOLDER + '/train')[FEATURES])"
        ".sum().compute())",
    },
}


def measure_predictions(rounds: int, rows: int) -> None:
    """Predict with a loop and with the cluster; both read the same files."""
    with tempfile.TemporaryDirectory() as folder:
        write_flights(Path(folder), rows)
        commands = {}
        for name, parts in PREDICTIONS.items():
            text = PREDICT
            for key, value in parts.items():
                text = text.replace(key, value)
            text = text.replace("FEATURES", repr(FEATURES)).replace("FOLDER", repr(folder))
            commands[name] = ["-W", "ignore", "-c", text]
        results = run_alternately(commands, rounds)
    print_report(f"predictions of {rows:,} rows", results, "ParallelPostFit", "loop")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=2, help="copies of the 1,797 digits")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the predictions")
    arguments = parser.parse_args()
    programs = {"loky": LOKY}
    programs |= {name: CLUSTER.replace("CONTEXT", text) for name, text in CONTEXTS.items()}
    commands = {
        name: ["-W", "ignore", "-c", text.replace("REPEAT", str(arguments.repeat))]
        for name, text in programs.items()
    }
    results = run_alternately(commands, arguments.rounds)
    for ours in CONTEXTS:
        print_report(f"{arguments.repeat * 1797} rows", results, ours, "loky")
    measure_predictions(arguments.rounds, arguments.rows)


if __name__ == "__main__":
    main()
