"""What all frameworks share: rounding of answers, and the parameters and the score of a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

Answer = list[float]

FEATURES = ["user", "items"]
LABEL = "value"
#: Boosted trees of xgboost in all frameworks, which call the same library in their processes.
PARAMETERS = {"max_depth": 6, "eta": 0.1, "max_bin": 64, "tree_method": "hist", "seed": 1}
ROUNDS = 30


def rounded(*numbers: Any) -> Answer:
    """Round numbers to nine digits, since the order of a sum changes the last ones."""
    return [float(f"{float(number):.9g}") for number in numbers]


def list_files(events: str) -> list[str]:
    """Return the files of a glob, which Ray Data does not expand."""
    pattern = Path(events)
    return sorted(map(str, pattern.parent.glob(pattern.name)))


def score(model: Any, events: str) -> Answer:
    """Return the error of a model on the first file, to two digits: quantiles are approximate."""
    import pandas as pd
    import xgboost

    file = Path(events).with_name("00.parquet")
    first = pd.read_parquet(file, columns=[*FEATURES, LABEL])
    predicted = model.predict(xgboost.DMatrix(first[FEATURES]))
    return [float(f"{((predicted - first[LABEL]) ** 2).mean() ** 0.5:.2g}")]


def read_sorted(folder: Path, pattern: str = "*.parquet") -> Answer:
    """Return the number of rows, the first and last value, and whether the files are in order.

    The files are removed.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = sorted(folder.rglob(pattern), key=lambda file: (len(file.name), file.name))
    values = [pq.read_table(file, columns=["value"])["value"] for file in files]
    values = [each for each in values if len(each)]
    bounds = [bound for each in values for bound in pc.min_max(each).as_py().values()]
    sorted_ends = [end for each in values for end in (each[0].as_py(), each[-1].as_py())]
    shutil.rmtree(folder)
    in_order = bounds == sorted_ends == sorted(bounds)
    return rounded(sum(map(len, values)), bounds[0], bounds[-1], in_order)
