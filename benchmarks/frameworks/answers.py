"""What the jobs of all frameworks share: lists of files, and answers to compare."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

Answer = list[float]


def rounded(*numbers: Any) -> Answer:
    """Round numbers to nine digits, since the order of a sum changes the last ones."""
    return [float(f"{float(number):.9g}") for number in numbers]


def fitted(coefficients: Any) -> Answer:
    """Round the coefficients of a linear regression to the digits that all solvers agree on."""
    return [round(float(each), 5) for each in coefficients]


def list_files(events: str) -> list[str]:
    """Return the files of a glob, which Ray Data does not expand."""
    pattern = Path(events)
    return sorted(map(str, pattern.parent.glob(pattern.name)))


def read_sorted(folder: Path) -> Answer:
    """Return the number of rows, the first and last value, and whether the files are in order.

    The files are removed.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = [file for file in folder.rglob("*.parquet") if file.is_file()]
    files.sort(key=lambda file: (len(file.name), file.name))
    values = [pq.read_table(file, columns=["value"])["value"] for file in files]
    values = [each for each in values if len(each)]
    bounds = [bound for each in values for bound in pc.min_max(each).as_py().values()]
    sorted_ends = [end for each in values for end in (each[0].as_py(), each[-1].as_py())]
    shutil.rmtree(folder)
    in_order = bounds == sorted_ends == sorted(bounds)
    return rounded(sum(map(len, values)), bounds[0], bounds[-1], in_order)
