"""Dask dataframes from and to dataframes of Spark."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hyperplane.collections.frames.read import read
from hyperplane.core.errors import EngineError, Fault, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call
from hyperplane.exchange.exchange_folder import (
    create_temporary_folder,
    find_folder_faults,
    list_dask_hosts,
)
from hyperplane.objectstore.listing import find_files, resolve_location
from hyperplane.storage.saving import save

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_START = "call hyperplane.spark.init_spark() or SparkSession.builder.getOrCreate() first"
#: Settings with which Spark writes instants with their time zone, and dates of any century as they
#: are. The defaults are those of Hive.
_WRITE_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@check_call(outcome="nothing was converted")
def to_spark(df: dd.DataFrame, folder: str | PathLike[str] | None = None) -> DataFrame:
    """Compute a Dask dataframe, and return its rows as a dataframe of Spark.

    The Dask workers write one Parquet file for each partition, which the executors of the session
    of this process read; no rows pass through this process.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The rows. Its index is not kept; call ``reset_index()`` first to keep it as a column.
    folder : str or path, optional
        A folder that all workers and executors can use; the files are in a new folder below it and
        remain. By default they are in the temporary directory of this machine until this process
        exits, if all workers and executors are on this machine.

    Returns
    -------
    pyspark.sql.DataFrame
        Lazy: each use reads the files. Categories are their values, and unsigned integers of 64
        bits are ``decimal(20, 0)``.

    Raises
    ------
    RequestError
        With every fault of the call, and for types and values that Spark does not have, with their
        columns: times with nanoseconds, time zones other than UTC, durations.
    EngineError
        If this process has no Spark session.
    MissingPackage
        If Spark is not installed (extra ``spark``).
    """
    import dask.dataframe as dd

    faults: list[Fault] = []
    value: Any = df
    if not isinstance(value, dd.DataFrame):
        advice = "dask.dataframe.from_pandas makes one of a pandas DataFrame"
        faults.append(
            Fault("df", f"an object of type {type(df).__name__}", "a Dask dataframe", advice)
        )
    url = _check_folder(folder, list_dask_hosts(), faults)
    session = _find_session()
    _check_hosts(url, session)
    url = url or create_temporary_folder()
    converted = df.map_partitions(_to_microseconds, meta=_to_microseconds(df._meta))
    target = f"{url}/rows.parquet"
    save(converted, target)
    paths = [file.path for file in find_files(target)]
    check(_find_arrow_faults(_read_schema(paths[0])))
    reader = session.read.option("datetimeRebaseMode", "CORRECTED")
    return reader.parquet(*(Path(path).absolute().as_uri() for path in paths))


@check_call(outcome="nothing was converted")
def from_spark(df: DataFrame, folder: str | PathLike[str] | None = None) -> dd.DataFrame:
    """Compute a dataframe of Spark, and return its rows as a Dask dataframe.

    The executors write Parquet files, which the Dask workers read; no rows pass through this
    process.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The rows. Vectors of ``pyspark.ml``, intervals and columns without a type are an error that
        names them.
    folder
        As for :func:`to_spark`.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy; the types are those of :func:`hyperplane.dataframe.read` with ``decimals="exact"``.
        Timestamps of Spark are in UTC.

    Raises
    ------
    RequestError
        With every fault of the call.
    """
    pyspark_sql = sys.modules.get("pyspark.sql")  # imported, if there is a dataframe
    faults = []
    if pyspark_sql is None or not isinstance(df, pyspark_sql.DataFrame):
        given = f"an object of type {type(df).__name__}"
        faults.append(Fault("df", given, "a pyspark.sql.DataFrame"))
    else:
        faults += _find_spark_faults(df.schema)
    url = _check_folder(folder, list_dask_hosts(), faults)
    _check_hosts(url, df.sparkSession)
    url = f"{url or create_temporary_folder()}/rows"
    with _change_settings(df.sparkSession, _WRITE_SETTINGS):
        df.write.parquet(Path(url).absolute().as_uri())
    return read(f"{url}/*.parquet", decimals="exact")


def _check_folder(folder: Any, hosts: set[str], faults: list[Fault]) -> str:
    """Return the path of a new folder; raise an error for its faults and those before."""
    url, found = find_folder_faults(folder, None, hosts)
    if url and not resolve_location(url, None).store.local:
        allowed = "a folder that all workers and executors can use, or None"
        advice = "Spark has no access to the object stores of fsspec"
        found = [*found, Fault("folder", str(folder), allowed, advice)]
    check([*faults, *found])
    return resolve_location(url, None).path if url else ""


def _find_session() -> SparkSession:
    """Return the session of this process, or a new one on the cluster of its environment."""
    sql = need("pyspark.sql", "spark")
    session = sql.SparkSession.getActiveSession()
    if session is None:
        if not os.environ.get("SPARK_CONF_DIR"):
            raise EngineError("spark", f"this process has no Spark session; {_START}")
        session = sql.SparkSession.builder.getOrCreate()
    found: SparkSession = session
    return found


def _check_hosts(url: str, session: SparkSession) -> None:
    """Without a folder the files are on this machine: all executors must be, too."""
    if url:
        return
    master = session.sparkContext.master
    address = urlsplit(master)
    if address.scheme == "spark":
        hosts = {address.hostname or ""}
    else:
        hosts = set() if master.startswith("local") else {master}
    check(find_folder_faults(None, None, hosts)[1])


def _to_microseconds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a partition with times in microseconds; raise an error if that would change one."""
    import pandas as pd
    import pyarrow as pa

    frame = frame.copy(deep=False)
    for name, column in frame.items():
        kind: Any = column.dtype
        arrow = isinstance(kind, pd.ArrowDtype)
        if not (pa.types.is_timestamp(kind.pyarrow_dtype) if arrow else kind.kind == "M"):
            continue
        unit = kind.pyarrow_dtype.unit if arrow else column.dt.unit
        if unit == "ns" and (column.dt.nanosecond > 0).any():
            given = f"the column {name!r} has times with nanoseconds"
            advice = f'df["{name}"].dt.floor("us") removes them'
            check([Fault("df", given, "times in microseconds, as Spark has them", advice)])
        if arrow:
            zone = kind.pyarrow_dtype.tz
            frame[name] = column.astype(pd.ArrowDtype(pa.timestamp("us", zone)))
        else:
            frame[name] = column.dt.as_unit("us")
    return frame


def _read_schema(path: str) -> pa.Schema:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _find_arrow_faults(schema: pa.Schema) -> list[Fault]:
    """Return the columns of a file that Spark cannot read or would change."""
    import pyarrow as pa

    def find_advice(kind: pa.DataType) -> str:
        """Return what to do with a column; an empty text if Spark reads it."""
        types = pa.types
        if types.is_timestamp(kind):
            if kind.tz not in {None, "UTC", "+00:00"}:
                return 'Spark keeps no time zones of columns: .dt.tz_convert("UTC")'
            return "" if kind.unit != "ns" else "convert the times to microseconds"
        if types.is_duration(kind):
            return "convert it to a number, such as .dt.total_seconds()"
        if types.is_time(kind) or types.is_null(kind) or types.is_float16(kind):
            return "convert it with .astype, such as to text or float32"
        if types.is_dictionary(kind):
            return find_advice(kind.value_type)
        if isinstance(kind, pa.BaseExtensionType):
            return "convert it with .astype"
        children = [kind.field(number).type for number in range(kind.num_fields)]
        return next(filter(None, map(find_advice, children)), "")

    faults = [
        Fault("df", f"the column {field.name!r} of type {field.type}", "types of Spark", advice)
        for field in schema
        if (advice := find_advice(field.type))
    ]
    return [*faults, *_find_name_faults(schema.names)]


def _find_name_faults(names: list[str]) -> list[Fault]:
    """Return names that Spark takes for one, because it ignores case."""
    number = Counter(name.lower() for name in names)
    repeated = [name for name in names if number[name.lower()] > 1]
    if not repeated:
        return []
    allowed = "names of columns that differ in more than upper and lower case"
    return [Fault("df", f"columns {repeated}", allowed, "rename them")]


def _find_spark_faults(schema: Any) -> list[Fault]:
    """Return the columns of a dataframe of Spark that Parquet or pandas does not have."""
    refused = {"interval", "void", "null", "udt", "vector", "matrix"}

    def is_refused(kind: Any) -> bool:
        names = {kind.typeName(), type(kind).__name__.removesuffix("UDT").lower()}
        if names & refused or "interval" in kind.typeName() or hasattr(kind, "sqlType"):
            return True
        children = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
        children += [field.dataType for field in getattr(kind, "fields", ())]
        return any(is_refused(child) for child in children if child is not None)

    faults = [
        Fault(
            "df",
            f"the column {field.name!r} of type {field.dataType.simpleString()}",
            "types of Parquet",
            "convert it, such as a vector with pyspark.ml.functions.vector_to_array",
        )
        for field in schema.fields
        if is_refused(field.dataType)
    ]
    return [*faults, *_find_name_faults(schema.names)]


@contextmanager
def _change_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session, and restore them at the end."""
    former = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, text in former.items():
            if text is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, text)
