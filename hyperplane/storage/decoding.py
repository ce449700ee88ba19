"""From the bytes of files to what they hold."""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import Any

from hyperplane.optional import need
from hyperplane.storage.avro import read_avro
from hyperplane.storage.part_frames import to_frame
from hyperplane.storage.untyped_text import frame_of_csv, frame_of_lines
from hyperplane.units import format_bytes


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
        return _array(data)
    if kind == "model" and format == "skops":
        _check_skops(data)  # before the import, which loads scikit-learn and takes seconds
        return need("skops.io", "ml").loads(data)
    if kind == "model":
        return need("joblib", "ml").load(io.BytesIO(data))
    return data


def _array(data: bytes) -> Any:
    import numpy as np
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    if data.startswith(npy.MAGIC_PREFIX):
        # NumPy takes memory for what the header says, which may be more than there is.
        version = npy.read_magic(file)
        # Versions 2 and 3 differ in the letters of the names of fields only.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        wanted, there = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
        if min(shape, default=0) < 0 or (wanted > there and not dtype.hasobject):
            raise ValueError(
                f"the file is shorter than its header says: an array of shape {shape} and type "
                f"{dtype} has {format_bytes(wanted)}, and {format_bytes(there)} are there"
            )
        file.seek(0)
    return np.load(file, allow_pickle=False)


def _check_skops(data: bytes) -> None:
    """Raise an error for bytes that are no archive with the schema that skops writes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
    if not isinstance(schema, dict) or "__loader__" not in schema:
        raise ValueError("schema.json: no model of skops")


def _table(data: bytes, format: str) -> Any:  # noqa: A002
    import pandas as pd

    if format == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        try:
            table = parquet.read_table(io.BytesIO(data), page_checksum_verification=True)
        except pa.ArrowMemoryError as error:
            from hyperplane.collections.frames.sources.footers import MAX_ROWS_PER_BYTE

            rows = parquet.read_metadata(io.BytesIO(data)).num_rows
            if rows < MAX_ROWS_PER_BYTE * len(data):
                raise
            # The footer of a file of some bytes may say anything.
            raise ValueError(f"its footer says {rows} rows, which do not fit in memory") from error
        rows = parquet.read_metadata(io.BytesIO(data)).num_rows
        if table.num_rows != rows:  # Arrow reads what there is
            raise ValueError(f"its footer says {rows} rows, and {table.num_rows} are there")
        return to_frame(table)
    if format == "avro":
        return to_frame(read_avro(data))
    if not data.strip():  # neither rows nor names of columns
        return pd.DataFrame()
    if format == "jsonl":
        return frame_of_lines(data)
    return frame_of_csv(data, "\t" if format == "tsv" else ",")
