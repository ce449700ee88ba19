"""TPC-H tables as Parquet files with float64 and timestamps, written once.

tpchgen-cli writes decimals and dates, which pandas reads as Python objects. They are converted here
before anything is measured, so that all engines read the same files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

#: Number of files of a table; other tables have one file.
FILES = {"lineitem": 8, "orders": 4, "partsupp": 4, "customer": 2, "part": 2}
TABLES = ("lineitem", "orders", "partsupp", "customer", "part", "supplier", "nation", "region")


def tables(cache: Path, scale: str) -> Path:
    """Return the folder of the tables of a scale factor; write them if it does not exist."""
    folder = cache / f"sf{scale}"
    if folder.is_dir():
        return folder
    raw, draft = cache / f"sf{scale}.raw", cache / f"sf{scale}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    command = Path(sys.executable).with_name("tpchgen-cli")
    arguments = ["parquet", "-s", scale, "--output-dir", str(raw), "--quiet", "--overwrite"]
    subprocess.run([str(command), *arguments], check=True)
    for name in TABLES:
        _rewrite(raw / f"{name}.parquet", draft / name, FILES.get(name, 1))
    shutil.rmtree(raw)
    draft.rename(folder)
    return folder


def _rewrite(file: Path, folder: Path, files: int) -> None:
    folder.mkdir(parents=True)
    source = ds.dataset(file)
    target = pa.schema([(field.name, _target_type(field.type)) for field in source.schema])
    rows = -(-source.count_rows() // files)
    table = pq.read_table(file).cast(target)
    for number in range(files):
        part = table.slice(number * rows, rows)
        pq.write_table(part, folder / f"part-{number:02}.parquet", row_group_size=1_000_000)


def _target_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_date(kind):
        return pa.timestamp("us")
    if pa.types.is_string_view(kind):
        return pa.string()
    return kind
