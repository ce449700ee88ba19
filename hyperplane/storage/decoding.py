"""Decode the bytes of files to the objects they hold."""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import Any

from hyperplane.core.optional import need
from hyperplane.core.units import format_bytes
from hyperplane.formats.avro.encoder import read_avro
from hyperplane.formats.csv.untyped import parse_csv, parse_json_lines
from hyperplane.formats.pandas_frames.from_arrow import to_frame


def decode(data: bytes, kind: str, format: str) -> Any:  # noqa: A002
    """Return the object that a file holds.

    Raises
    ------
    RequestError
        If it is a skops model with types that skops does not trust.
    """
    if kind == "table":
        return _decode_table(data, format)
    if kind == "text":
        return data.decode()
    if kind == "json":
        return json.loads(data)
    if kind == "numpy":
        return _load_npy(data)
    if kind == "model" and format == "skops":
        _check_skops(data)  # fails before the import, which takes seconds for scikit-learn
        return need("skops.io", "ml").loads(data)
    if kind == "model":
        return need("joblib", "ml").load(io.BytesIO(data))
    return data


def _load_npy(data: bytes) -> Any:
    """Return the array of an NPY file."""
    import numpy as np
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    if data.startswith(npy.MAGIC_PREFIX):
        # NumPy allocates what the header declares, which may exceed the file and the memory.
        version = npy.read_magic(file)
        # Versions 2 and 3 differ only in the encoding of field names.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        declared, available = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
        if min(shape, default=0) < 0 or (declared > available and not dtype.hasobject):
            raise ValueError(
                f"the file is shorter than its header declares: an array of shape {shape} and type "
                f"{dtype} has {format_bytes(declared)}, and the file has {format_bytes(available)}"
            )
        file.seek(0)
    return np.load(file, allow_pickle=False)


def _check_skops(data: bytes) -> None:
    """Raise ValueError if the bytes are not an archive with the schema of a skops model."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
    if not isinstance(schema, dict) or "__loader__" not in schema:
        raise ValueError("its schema.json is not that of a skops model")


def _decode_table(data: bytes, format: str) -> Any:  # noqa: A002
    """Return the dataframe that a file holds."""
    import pandas as pd

    if format == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        try:
            table = parquet.read_table(io.BytesIO(data), page_checksum_verification=True)
        except pa.ArrowMemoryError as error:
            from hyperplane.formats.parquet.footers import MAX_ROWS_PER_BYTE

            rows = parquet.read_metadata(io.BytesIO(data)).num_rows
            if rows < MAX_ROWS_PER_BYTE * len(data):
                raise
            # A damaged footer may declare any number of rows.
            raise ValueError(f"its footer declares {rows} rows, too many for memory") from error
        rows = parquet.read_metadata(io.BytesIO(data)).num_rows
        if table.num_rows != rows:  # Arrow does not report missing rows
            raise ValueError(f"its footer declares {rows} rows, and it holds {table.num_rows}")
        return to_frame(table)
    if format == "avro":
        return to_frame(read_avro(data))
    if not data.strip():  # neither rows nor column names
        return pd.DataFrame()
    if format == "jsonl":
        return parse_json_lines(data)
    return parse_csv(data, "\t" if format == "tsv" else ",")
