"""File formats, and the formats that each kind of object can be saved in."""

from __future__ import annotations

from typing import Any

from hyperplane.core.errors import Fault, RequestError

#: Format by suffix.
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
#: Formats of folders of parts by kind of object; the first is the default.
PART_FORMATS = {
    "dataframe": ("parquet", "csv", "tsv", "jsonl", "avro"),
    "bag": ("jsonl", "text", "parquet", "avro"),
}
#: Formats of single files by kind of object.
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
#: Suffix of part files.
PART_SUFFIXES = {
    "parquet": ".parquet", "csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl", "text": ".txt",
    "avro": ".avro",
}  # fmt: skip


def detect_kind(obj: Any) -> str:
    """Return the kind of an object, among those that can be saved.

    Raises
    ------
    RequestError
        If its type cannot be saved.
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
