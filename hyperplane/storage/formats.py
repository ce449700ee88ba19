"""From objects to the bytes of files, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hyperplane.errors import Fault, RequestError
from hyperplane.optional import need

#: Suffixes and the formats that they stand for.
SUFFIXES = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "tsv",
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
PARTS = {
    "dataframe": ("parquet", "csv", "tsv", "jsonl"),
    "bag": ("jsonl", "text"),
}
#: Formats of one file, by what is saved.
FILES = {
    "table": ("parquet", "csv", "tsv", "jsonl"),
    "numpy": ("npy",),
    "json": ("json",),
    "bytes": ("bytes", "text", "json", "csv", "parquet", "jsonl", "tsv", "npy", "figure", "zarr"),
    "text": ("text", "json", "csv", "jsonl", "tsv"),
    "figure": ("figure",),
    "model": ("skops", "joblib"),
}
#: The suffix of a part.
SUFFIX_OF = {"parquet": ".parquet", "csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl", "text": ".txt"}


@dataclass(frozen=True)
class Encoded:
    """The bytes of one file.

    Parameters
    ----------
    data : bytes-like
        All of it.
    rows : int or None
        Rows, records or elements.
    """

    data: Any
    rows: int | None = None


def kind_of(obj: Any) -> str:
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


def encoded(obj: Any, kind: str, format: str, suffix: str) -> Encoded:  # noqa: A002
    """The bytes of a file that holds an object."""
    if kind == "table":
        return ENCODERS[format](obj)
    if kind == "bytes":
        return Encoded(bytes(obj))
    if kind == "text":
        return Encoded(obj.encode())
    if kind == "json":
        # Sorted, so that equal content is equal text.
        text = json.dumps(obj, indent=1, sort_keys=True, ensure_ascii=False)
        return Encoded(f"{text}\n".encode())
    if kind == "numpy":
        import numpy as np

        file = io.BytesIO()
        np.save(file, obj, allow_pickle=False)
        return Encoded(file.getvalue(), int(obj.shape[0]) if obj.ndim else 1)
    if kind == "figure":
        return Encoded(_figure(obj, suffix))
    return Encoded(_model(obj, format))


def _figure(figure: Any, suffix: str) -> bytes:
    file = io.BytesIO()
    # Without the time of day in it, so that the same figure is the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    figure.savefig(file, format=suffix.lstrip("."), metadata=metadata)
    return file.getvalue()


def _model(model: Any, format: str) -> bytes:  # noqa: A002
    if format == "skops":
        return bytes(need("skops.io", "ml").dumps(model))
    file = io.BytesIO()
    need("joblib", "ml").dump(model, file)
    return file.getvalue()


def _pandas(table: Any) -> Any:
    if hasattr(table, "to_pandas"):  # of Polars or Arrow
        return table.to_pandas()
    return table.to_frame() if hasattr(table, "to_frame") else table


def _parquet(table: Any) -> Encoded:
    import pyarrow as pa
    from pyarrow import parquet

    if isinstance(table, pa.Table):
        arrow = table
    elif type(table).__module__.startswith("polars"):
        arrow = table.to_arrow()
    else:
        arrow = pa.Table.from_pandas(_pandas(table))
    out = pa.BufferOutputStream()
    # A bit that flips on the way is an error for who reads with hyperplane.load, not other data.
    parquet.write_table(arrow, out, write_page_checksum=True)
    return Encoded(memoryview(out.getvalue()), arrow.num_rows)


def _separated(separator: str) -> Callable[[Any], Encoded]:
    def write(table: Any) -> Encoded:
        frame = _pandas(table)
        kept = frame.index.name is not None or not _is_plain(frame.index)
        text = frame.to_csv(sep=separator, index=kept, lineterminator="\n")
        return Encoded(text.encode(), len(frame))

    return write


def _is_plain(index: Any) -> bool:
    """Whether an index is only the numbers of the rows."""
    from pandas.api.types import is_integer_dtype

    return is_integer_dtype(index.dtype)


def _lines(table: Any) -> Encoded:
    from hyperplane.collections.frames.convert import from_pandas

    frame = _pandas(table)
    if frame.index.name is not None or not _is_plain(frame.index):
        frame = frame.reset_index()
    # Polars writes every digit of numbers and times, which pandas does not.
    return Encoded(from_pandas(frame).write_ndjson().encode() if len(frame) else b"", len(frame))


def records(items: Any, format: str) -> Encoded:  # noqa: A002
    """The items of a partition of a bag, one on each line.

    Raises
    ------
    TypeError
        When JSON has no form for an item.
    """
    if format == "text":
        lines = [str(item) for item in items]
    else:
        lines = [json.dumps(item, ensure_ascii=False) for item in items]
    return Encoded("".join(f"{line}\n" for line in lines).encode(), len(lines))


ENCODERS: Mapping[str, Callable[[Any], Encoded]] = {
    "parquet": _parquet,
    "csv": _separated(","),
    "tsv": _separated("\t"),
    "jsonl": _lines,
}


def decoded(data: bytes, kind: str, format: str) -> Any:  # noqa: A002
    """What a file holds.

    Raises
    ------
    RequestError
        When it is a model in a form that runs code when it is opened.
    """
    if kind == "table":
        return _table(data, format)
    if kind == "text":
        return data.decode()
    if kind == "json":
        return json.loads(data)
    if kind == "numpy":
        import numpy as np

        return np.load(io.BytesIO(data), allow_pickle=False)
    if kind == "model" and format == "skops":
        return need("skops.io", "ml").loads(data)
    if kind == "model":
        return need("joblib", "ml").load(io.BytesIO(data))
    return data


def _table(data: bytes, format: str) -> Any:  # noqa: A002
    import pandas as pd

    if format == "parquet":
        from pyarrow import parquet

        table = parquet.read_table(io.BytesIO(data), page_checksum_verification=True)
        return table.to_pandas()
    if format == "jsonl":
        if not data:
            return pd.DataFrame()
        return pd.read_json(io.BytesIO(data), lines=True, dtype=False, precise_float=True)
    return pd.read_csv(io.BytesIO(data), sep="\t" if format == "tsv" else ",")
