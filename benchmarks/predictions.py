"""Predictions of flights in eight Parquet files with a saved forest, in rows per second.

A loop in one process and ``hyperplane.ml.predict_files`` write a line of JSON for each row.
``ParallelPostFit`` of dask-ml and ``hyperplane.ml.predict`` return only the number of late flights.
Clusters of two processes start before the measurement. Each run is a separate process, alternating.

    python benchmarks/predictions.py --rounds 5 --rows 1000000 --batch-size 4096
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from abab import print_report, run_alternately
from ml_methods import FEATURES, write_flights

COMMON = """
import json, shutil, time
from pathlib import Path
import pandas as pd
import hyperplane, hyperplane.ml

FOLDER, FEATURES, BATCH = Path(FOLDER_NAME), FEATURE_NAMES, BATCH_SIZE
FILES, MODEL, OUT = sorted(FOLDER.glob("train/*.parquet")), FOLDER / "model.joblib", FOLDER / "out"

def cluster():
    plan = hyperplane.plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=1)
    client, _ = hyperplane.start(plan)
    return client

def measure(predict):
    shutil.rmtree(OUT, ignore_errors=True)
    began = time.perf_counter()
    rows = predict()
    print(json.dumps({"seconds": time.perf_counter() - began}))
    assert rows == ROWS, rows
"""

LOOP = (
    COMMON
    + """
def predict():
    OUT.mkdir()
    model, rows = hyperplane.load(MODEL, trusted=True), 0
    for path in FILES:
        frame = pd.read_parquet(path, columns=FEATURES)
        with (OUT / path.name).open("w") as out:
            for start in range(0, len(frame), BATCH):
                found = model.predict(frame.iloc[start : start + BATCH]).tolist()
                for row, value in enumerate(found, start):
                    out.write(json.dumps({"row": row, "prediction": value}) + "\\n")
        rows += len(frame)
    return rows

if __name__ == "__main__":
    measure(predict)
"""
)

FILES = (
    COMMON
    + """
def predict():
    files = [str(path) for path in FILES]
    found = hyperplane.ml.predict_files(MODEL, files, OUT, batch_size=BATCH, trusted=True)
    assert not found.errors
    return found.rows

if __name__ == "__main__":
    WITH
    measure(predict)
"""
)

FRAME = (
    COMMON
    + """
def predict():
    frame = hyperplane.dataframe.read([str(path) for path in FILES])[FEATURES]
    return len(PREDICT.compute())

if __name__ == "__main__":
    client = cluster()
    measure(predict)
"""
)
POST_FIT = (
    "__import__('dask_ml.wrappers').wrappers.ParallelPostFit("
    "hyperplane.load(MODEL, trusted=True)).predict(frame)"
)

PROGRAMS = {
    "loop": LOOP,
    "predict_files, 1 process": FILES.replace("WITH", "pass"),
    "predict_files, 2 workers": FILES.replace("WITH", "client = cluster()"),
    "ParallelPostFit": FRAME.replace("PREDICT", POST_FIT),
    "predict": FRAME.replace("PREDICT", "hyperplane.ml.predict(MODEL, frame, trusted=True)"),
}

MAKE_MODEL = """
import hyperplane, pandas as pd
from sklearn.ensemble import RandomForestClassifier
train = pd.read_parquet(FOLDER_NAME + "/test.parquet").iloc[:10_000]
model = RandomForestClassifier(32, max_depth=12, random_state=0)
hyperplane.save(model.fit(train[FEATURE_NAMES], train["late"]), FOLDER_NAME + "/model.joblib")
print("{}")
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=4096)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_flights(Path(folder), arguments.rows)

        def fill(text: str) -> list[str]:
            for name, value in (
                ("FOLDER_NAME", folder),
                ("FEATURE_NAMES", FEATURES),
                ("BATCH_SIZE", arguments.batch_size),
                ("ROWS", arguments.rows),
            ):
                text = text.replace(name, repr(value))
            return ["-W", "ignore", "-c", text]

        run_alternately({"model": fill(MAKE_MODEL)}, 1, warm_up=0)
        commands = {name: fill(text) for name, text in PROGRAMS.items()}
        results = run_alternately(commands, arguments.rounds)
    title = f"{arguments.rows:,} rows, batches of {arguments.batch_size:,}"
    for ours, theirs in (
        ("predict_files, 1 process", "loop"),
        ("predict_files, 2 workers", "loop"),
        ("predict", "ParallelPostFit"),
    ):
        print_report(f"{ours}: {title}", results, ours, theirs)
    for name, figures in results.items():
        print(f"{name:28}{arguments.rows / statistics.median(figures['seconds']):14,.0f} rows/s")


if __name__ == "__main__":
    main()
