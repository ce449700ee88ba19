"""Dask dataframes from and to dataframes of Spark."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hyperplane.clusters.spark import driver
from hyperplane.core.errors import EngineError, Fault, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call
from hyperplane.exchange.exchange_folder import (
    LOCAL_HOSTS,
    create_temporary_folder,
    find_dataframe_faults,
    find_folder_faults,
    find_name_faults,
    list_dask_hosts,
    make_partition_fault,
    read_rows,
    save_rows,
)
from hyperplane.objectstore.listing import resolve_location

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_START = "call hyperplane.spark.init_spark() or SparkSession.builder.getOrCreate() first"
#: Maximum digits of Spark's decimals.
_MAX_DIGITS = 38
_ZONE_ADVICE = 'Spark keeps no time zones of columns: .dt.tz_convert("UTC")'
#: Spark's defaults are times without their zone, and an error for dates before 1582.
_WRITE_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_settings_lock = threading.Lock()


@check_call(outcome="nothing was converted")
def to_spark(df: dd.DataFrame, folder: str | PathLike[str] | None = None) -> DataFrame:
    """Compute a Dask dataframe, and return its rows as a dataframe of Spark.

    The Dask workers write one Parquet file for each partition, which the executors of the session
    of this process read; no rows pass through this process.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The rows. Its index is not kept; call ``reset_index()`` first to keep it as a column. Each
        column has one type in all partitions.
    folder : str or path, optional
        A folder that all workers and executors can use; the files are in a new folder below it and
        remain. By default they are in the temporary directory of this machine until this process
        exits, if all workers and executors are on this machine.

    Returns
    -------
    pyspark.sql.DataFrame
        Lazy: each use reads the files. Categories are their values, and unsigned integers are the
        next larger type, ``decimal(20, 0)`` for those of 64 bits. Spark does not keep the order of
        partitions.

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
    faults = find_dataframe_faults(df) or _find_meta_faults(df._meta)
    url = _check_folder(folder, list_dask_hosts(), faults)
    session = _find_session()
    _check_hosts(url, session)
    url = url or create_temporary_folder()
    try:
        converted = df.map_partitions(_prepare_partition, meta=_prepare_partition(df._meta))
        paths = _choose_files([file.path for file in save_rows(converted, url)])
    except BaseException:
        shutil.rmtree(url, ignore_errors=True)
        raise
    # Spark takes the characters of patterns in a path for a pattern.
    escaped = (re.sub(r"[{}\[\]*?\\]", r"\\\g<0>", path) for path in paths)
    reader = session.read.option("datetimeRebaseMode", "CORRECTED")
    return reader.parquet(*map(_build_url, escaped))


@check_call(outcome="nothing was converted")
def from_spark(df: DataFrame, folder: str | PathLike[str] | None = None) -> dd.DataFrame:
    """Compute a dataframe of Spark, and return its rows as a Dask dataframe.

    The executors write Parquet files, which the Dask workers read; no rows pass through this
    process.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The rows. Vectors of ``pyspark.ml``, intervals, structs without fields and columns without
        a type are an error that names them.
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
    EngineError
        If the session of the dataframe has ended.
    """
    pyspark_sql = sys.modules.get("pyspark.sql")  # imported, if there is a dataframe
    faults = []
    if pyspark_sql is None or not isinstance(df, pyspark_sql.DataFrame):
        given = f"an object of type {type(df).__module__}.{type(df).__name__}"
        faults.append(Fault("df", given, "a pyspark.sql.DataFrame"))
    elif not driver.is_current(df.sparkSession):
        advice = "compute the dataframe again in a new session"
        raise EngineError("spark", f"the session of the dataframe has ended; {advice}")
    else:
        faults += _find_spark_faults(df.schema)
    url = _check_folder(folder, list_dask_hosts(), faults)
    _check_hosts(url, df.sparkSession)
    url = f"{url or create_temporary_folder()}/rows"
    with _change_settings(df.sparkSession, _WRITE_SETTINGS):
        df.write.parquet(_build_url(url))
    return read_rows(url, df.columns)


def _build_url(path: str) -> str:
    """Return the URL of an absolute path. Unlike other URLs, Spark's have no escaped characters."""
    return f"file://{path}"


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
    """Return the session of this process; raise an error if there is none."""
    sql = need("pyspark.sql", "spark")
    if not driver.find_session_address():
        raise EngineError("spark", f"this process has no Spark session; {_START}")
    # In a thread that has not used it, too, where getActiveSession() returns None.
    session: SparkSession = sql.SparkSession.getActiveSession()
    return session or sql.SparkSession.builder.getOrCreate()


def _check_hosts(url: str, session: SparkSession) -> None:
    """Raise an error without a folder, unless all executors are on this machine."""
    master = session.sparkContext.master
    if url or master.startswith("local") or urlsplit(master).hostname in LOCAL_HOSTS:
        return
    allowed = "a folder that all workers and executors can use"
    advice = f"executors may be on other machines (their master is {master})"
    check([Fault("folder", "None", allowed, advice)])


def _prepare_partition(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a partition without its index, and with times in microseconds.

    Raises an error if that would change a time.
    """
    import pandas as pd
    import pyarrow as pa

    frame = frame.reset_index(drop=True)
    for name, column in frame.items():
        kind: Any = column.dtype
        arrow = isinstance(kind, pd.ArrowDtype)
        if not (pa.types.is_timestamp(kind.pyarrow_dtype) if arrow else kind.kind == "M"):
            continue
        unit = kind.pyarrow_dtype.unit if arrow else column.dt.unit
        if unit == "ns" and (column.dt.nanosecond > 0).any():
            given = f"the column {name!r} has times with nanoseconds"
            advice = f'df[{name!r}].dt.floor("us") removes them'
            check([Fault("df", given, "times in microseconds, as Spark has them", advice)])
        if arrow:
            zone = kind.pyarrow_dtype.tz
            frame[name] = column.astype(pd.ArrowDtype(pa.timestamp("us", zone)))
        else:
            frame[name] = column.dt.as_unit("us")
    return frame


def _find_meta_faults(meta: pd.DataFrame) -> list[Fault]:
    """Return the columns of a Dask dataframe whose types are known and that Spark does not have."""
    import pandas as pd
    import pyarrow as pa

    faults: list[Fault] = []
    for name, column in _prepare_partition(meta).items():
        if isinstance(column.dtype, pd.SparseDtype):  # which files have as values
            column = pd.Series(column.to_numpy(), name=name)
        try:
            schema = pa.Schema.from_pandas(column.to_frame(), preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError):
            advice = "" if getattr(column.dtype, "tz", None) is None else _ZONE_ADVICE
            faults.append(_make_type_fault(name, column.dtype, advice or "convert it with .astype"))
            continue
        faults += [] if pa.types.is_null(schema.field(0).type) else _find_arrow_faults(schema)
    return faults + _find_case_faults(list(meta.columns))


def _choose_files(paths: list[str]) -> list[str]:
    """Return the files that have rows; raise an error unless Spark can read them together.

    Spark reads all files with the types of one of them.
    """
    import pyarrow.parquet as pq

    metadata = {path: pq.read_metadata(path) for path in paths}
    chosen = [path for path in paths if metadata[path].num_rows] or paths[:1]
    schemas = [metadata[path].schema.to_arrow_schema() for path in chosen]
    kinds: dict[str, dict[str, None]] = {name: {} for schema in schemas for name in schema.names}
    for schema in schemas:
        for name, found in kinds.items():
            position = schema.get_field_index(name)
            found["none" if position < 0 else str(schema.field(position).type)] = None
    differing = [
        make_partition_fault(name, found) for name, found in kinds.items() if len(found) > 1
    ]
    check(differing or _find_arrow_faults(schemas[0]))
    return chosen


def _find_arrow_faults(schema: pa.Schema) -> list[Fault]:
    """Return the columns that Spark cannot read, or would change."""
    faults = (
        _make_type_fault(field.name, field.type, advice)
        for field in schema
        if (advice := _find_advice(field.type))
    )
    return list(faults)


def _make_type_fault(name: Any, kind: Any, advice: str) -> Fault:
    return Fault("df", f"the column {name!r} of type {kind}", "a type of Spark", advice)


def _find_advice(kind: pa.DataType) -> str:
    """Return what to do with a column of this type; an empty text if Spark reads it."""
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        if kind.tz not in {None, "UTC", "+00:00"}:
            return _ZONE_ADVICE
        return "" if kind.unit != "ns" else "convert its times to microseconds"
    if types.is_duration(kind):
        return "convert it to a number, such as .dt.total_seconds()"
    if types.is_time(kind) or types.is_null(kind) or types.is_float16(kind):
        return "convert it with .astype, such as to text or float32"
    if types.is_decimal(kind):
        return "" if kind.precision <= _MAX_DIGITS else f"Spark has at most {_MAX_DIGITS} digits"
    if types.is_dictionary(kind):
        return _find_advice(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return "convert it with .astype"
    children = [kind.field(number) for number in range(kind.num_fields)]
    if types.is_struct(kind) and _find_case_faults([field.name for field in children]):
        return "rename its fields: Spark ignores the case of names"
    return next(filter(None, (_find_advice(field.type) for field in children)), "")


def _find_case_faults(names: list[str]) -> list[Fault]:
    """Return names that Spark takes for one, because it ignores case."""
    number = Counter(name.lower() for name in names)
    repeated = [name for name in names if number[name.lower()] > 1]
    if not repeated:
        return []
    allowed = "names that differ without their case, which Spark ignores"
    return [Fault("df", f"columns {repeated}", allowed, "rename them")]


def _find_spark_faults(schema: Any) -> list[Fault]:
    """Return the columns of a dataframe of Spark that Parquet or pandas does not have."""
    refused = {"interval", "void", "null", "udt", "vector", "matrix"}

    def is_refused(kind: Any) -> bool:
        names = {kind.typeName(), type(kind).__name__.removesuffix("UDT").lower()}
        if names & refused or "interval" in kind.typeName() or hasattr(kind, "sqlType"):
            return True
        if getattr(kind, "fields", None) == []:
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
    return [*faults, *(find_name_faults("df", schema.names) or _find_case_faults(schema.names))]


@contextmanager
def _change_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session, and restore them at the end."""
    with _settings_lock:  # another thread would restore the values of this one
        former = {name: session.conf.get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                session.conf.set(name, value)
            yield
        finally:
            for name, text in former.items():
                if text is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, text)
