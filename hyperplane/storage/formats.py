"""The formats of files, and what is saved in which."""

from __future__ import annotations

from typing import Any

from hyperplane.errors import Fault, RequestError

#: Suffixes and the formats that they stand for.
SUFFIXES = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "tsv",
    ".avro": "avro",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "json",
    ".npy": "npy",
    ".zarr": "zarr",
    ".txt": "text", ".md": "text", ".html": "text", ".yaml": "text", ".yml": "text",
    ".png": "figure", ".svg": "figure", ".pdf": "figure", ".jpg": "figure", ".jpeg": "figure",
    ".joblib": "joblib", ".pkl": "joblib",
    ".skops": "skops",
    ".bin": "bytes",
}  # fmt: skip
#: Formats of parts, by what is saved; the first is taken when nothing says another.
PART_FORMATS = {
    "dataframe": ("parquet", "csv", "tsv", "jsonl", "avro"),
    "bag": ("jsonl", "text", "parquet", "avro"),
}
#: Formats of one file, by what is saved.
FILE_FORMATS = {
    "table": ("parquet", "csv", "tsv", "jsonl", "avro"),
    "numpy": ("npy",),
    "json": ("json",),
    "bytes": (
        "bytes", "text", "json", "csv", "parquet", "jsonl", "tsv", "avro", "npy", "figure", "zarr",
    ),
    "text": ("text", "json", "csv", "jsonl", "tsv"),
    "figure": ("figure",),
    "model": ("skops", "joblib"),
}  # fmt: skip
#: The suffix of a part.
PART_SUFFIXES = {
    "parquet": ".parquet", "csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl", "text": ".txt",
    "avro": ".avro",
}  # fmt: skip


def detect_kind(obj: Any) -> str:
    """What an object is, among the kinds that can be saved.

    Raises
    ------
    RequestError
        When it is none of them.
    """
    names = {f"{base.__module__.split('.')[0]}.{base.__name__}" for base in type(obj).__mro__}
    if "dask.FrameBase" in names or "dask_expr.FrameBase" in names:
        return "dataframe" if hasattr(obj, "columns") else "series"
    if "dask.Bag" in names:
        return "bag"
    if names & {"dask.Array", "xarray.Dataset", "xarray.DataArray"}:
        return "array"
    if names & {"pandas.DataFrame", "polars.DataFrame", "pyarrow.Table", "pandas.Series"}:
        return "table"
    if "numpy.ndarray" in names:
        return "numpy"
    if "matplotlib.Figure" in names:
        return "figure"
    if "sklearn.BaseEstimator" in names:
        return "model"
    if "pathlib.Path" in names:
        return "path"
    for kind, types in (
        ("bytes", (bytes, bytearray, memoryview)),
        ("text", (str,)),
        ("json", (dict, list)),
    ):
        if isinstance(obj, types):
            return kind
    allowed = (
        "a Dask dataframe, bag or array, a pandas, Polars or Arrow table, xarray, NumPy, a "
        "scikit-learn model, a matplotlib figure, a dict or list, text, bytes, or a pathlib.Path "
        "of a file or folder"
    )
    raise RequestError([Fault("obj", type(obj).__name__, allowed)])
