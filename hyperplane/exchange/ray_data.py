"""Dask dataframes from and to datasets of Ray Data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import EngineError, Fault, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call
from hyperplane.exchange.exchange_folder import (
    create_temporary_folder,
    find_dataframe_faults,
    find_folder_faults,
    find_name_faults,
    has_type,
    is_unstorable,
    list_dask_hosts,
    make_partition_fault,
    read_rows,
    save_rows,
)
from hyperplane.formats.column_types import is_time_zone
from hyperplane.objectstore.listing import MAX_THREADS, resolve_location
from hyperplane.objectstore.locations import File, Location, Store

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pyarrow as pa

#: Largest integer up to which a float represents all.
_EXACT = 2**53
#: Maximum digits of the decimals that ``dataframe.read`` reads.
_MAX_DIGITS = 38
_TYPE_ADVICE = (
    "convert it with map_batches, such as a tensor to a list, a time to UTC, or a decimal to at "
    f"most {_MAX_DIGITS} digits"
)
_START = "call hyperplane.ray_common.initialize_ray_cluster() or ray.init() first"


@check_call(outcome="nothing was converted")
def to_ray_data(
    df: dd.DataFrame,
    folder: str | PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Compute a Dask dataframe, and return its rows as a dataset of Ray Data.

    The Dask workers write one Parquet file for each partition, which the nodes of the Ray cluster
    read; no rows pass through this process.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The rows. Its index is not kept; call ``reset_index()`` first to keep it as a column.
    folder : str or path, optional
        A folder or URL that all workers and nodes can use; the files are in a new folder below it
        and remain. By default they are in the temporary directory of this machine until this
        process exits, if all workers and nodes are on this machine.
    storage_options : mapping, optional
        Options of the file system of ``folder``.

    Returns
    -------
    ray.data.Dataset
        Lazy: each use reads the files. Blocks are in the order of the partitions, but operations of
        Ray Data keep that order only with ``DataContext.execution_options.preserve_order``.

    Raises
    ------
    RequestError
        With every fault of the call, and for a type that Parquet cannot store, or that differs
        among partitions, with its column.
    EngineError
        If this process is not connected to a Ray cluster.
    MissingPackage
        If Ray is not installed (extra ``ray``).
    """
    faults = find_dataframe_faults(df)
    url, folder_faults = find_folder_faults(folder, storage_options, list_dask_hosts())
    check([*faults, *folder_faults])
    ray_data = need("ray.data", "ray")
    _connect(url)
    url = url or create_temporary_folder()
    files = save_rows(df, url, storage_options)
    check(_find_partition_faults(files))
    paths = [file.path for file in files]
    filesystem = _open_filesystem(files[0].store)
    # Folders of the user such as "day=3" are no columns.
    return ray_data.read_parquet(paths, filesystem=filesystem, partitioning=None)


@check_call(outcome="nothing was converted")
def from_ray_data(
    dataset: Any,
    folder: str | PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> dd.DataFrame:
    """Compute a dataset of Ray Data, and return its rows as a Dask dataframe.

    The nodes of the Ray cluster write Parquet files, which the Dask workers read; no rows pass
    through this process.

    Parameters
    ----------
    dataset : ray.data.Dataset
        The rows. Tensors and Python objects, which Parquet cannot store, are an error that names
        their columns.
    folder, storage_options
        As for :func:`to_ray_data`.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy; the types are those of :func:`hyperplane.dataframe.read` with ``decimals="exact"``.

    Raises
    ------
    RequestError
        With every fault of the call.
    EngineError
        If this process is not connected to a Ray cluster.
    """
    ray_data = sys.modules.get("ray.data")  # imported, if there is a dataset
    faults = []
    if ray_data is None or not isinstance(dataset, ray_data.Dataset):
        given = f"an object of type {type(dataset).__name__}"
        faults.append(Fault("dataset", given, "a ray.data.Dataset"))
    url, folder_faults = find_folder_faults(folder, storage_options, list_dask_hosts())
    check([*faults, *folder_faults])
    _connect(url)
    schema = dataset.schema()
    check(_find_type_faults(schema))
    url = url or create_temporary_folder()
    location = resolve_location(url, storage_options)
    dataset.write_parquet(location.path, filesystem=_open_filesystem(location.store))
    if not location.store.system.find(location.path):
        _write_empty_file(location, schema)
    return read_rows(url, schema.names, storage_options)


def _connect(url: str) -> None:
    """Connect to the Ray cluster of the environment; raise an error if there is none.

    Without ``url`` the files are on this machine: all nodes must be, too.
    """
    ray = need("ray", "ray")
    if not ray.is_initialized():
        if not os.environ.get("RAY_ADDRESS"):
            raise EngineError("ray", f"this process is not connected to a Ray cluster; {_START}")
        ray.init()
    if ray.util.client.ray.is_connected():
        raise EngineError(
            "ray",
            "Ray Data cannot be used by a program that is connected by Ray Client, as to a cluster "
            "of ray:kubernetes; read and write the files in a task of the cluster",
        )
    if url:
        return
    here = ray.util.get_node_ip_address()
    hosts = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]} - {here}
    check(find_folder_faults(None, None, hosts)[1])


def _open_filesystem(store: Store) -> Any:
    """Return a store as file system of Arrow."""
    import pyarrow.fs

    if store.local:
        return pyarrow.fs.LocalFileSystem()
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(store.system))


def _find_partition_faults(files: Sequence[File]) -> list[Fault]:
    """Return the columns whose types in partitions Ray cannot combine.

    It widens numbers, but fails for integers that floats do not represent when rows are used.
    """
    kinds: dict[str, dict[Any, None]] = {}
    large: set[str] = set()
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        for metadata in pool.map(_read_metadata, files):
            if not metadata.num_rows:
                continue
            large.update(_list_large_integers(metadata))
            for field in metadata.schema.to_arrow_schema():
                kinds.setdefault(field.name, {})[field.type] = None
    return [
        make_partition_fault(name, found)
        for name, found in kinds.items()
        if _differ(list(found), name in large)
    ]


def _read_metadata(file: File) -> Any:
    """Return the metadata of a Parquet file."""
    import pyarrow.parquet as pq

    with file.store.system.open(file.path, "rb") as opened:
        return pq.read_metadata(opened)


def _list_large_integers(metadata: Any) -> Iterator[str]:
    """Yield the columns of a Parquet file with integers that floats may not represent."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            found = column.statistics
            if column.physical_type != "INT64" or (found is not None and not found.has_min_max):
                continue  # other types, and missing values only
            if found is None or not -_EXACT <= found.min_raw <= found.max_raw <= _EXACT:
                yield column.path_in_schema


def _differ(kinds: list[Any], has_large_integers: bool) -> bool:
    """Return whether the values of columns of these types cannot be combined exactly."""
    import pyarrow as pa

    if has_large_integers and any(map(pa.types.is_floating, kinds)):
        return True
    try:
        schemas = [pa.schema([("column", kind)]) for kind in kinds]
        pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException:
        return True
    return False


def _find_type_faults(schema: Any) -> list[Fault]:
    import pyarrow as pa

    if schema is None:
        allowed = "at least one row, because Ray does not know the columns of an empty result"
        return [Fault("dataset", "no rows", allowed)]
    allowed = "types that Parquet can store, and dataframes have"
    faults = [
        Fault("dataset", f"the column {name!r} of type {kind}", allowed, _TYPE_ADVICE)
        for name, kind in zip(schema.names, schema.types, strict=True)
        if not isinstance(kind, pa.DataType) or has_type(kind, _is_refused)
    ]
    return [*faults, *find_name_faults("dataset", schema.names)]


def _is_refused(kind: pa.DataType) -> bool:
    """Return whether an Arrow type cannot be written, or not be read by ``dataframe.read``."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return bool(kind.precision > _MAX_DIGITS)
    if pa.types.is_timestamp(kind):
        return not is_time_zone(kind.tz)
    return isinstance(kind, pa.BaseExtensionType) or is_unstorable(kind)


def _write_empty_file(location: Location, schema: Any) -> None:
    """Write the columns of a dataset without rows, for which Ray writes no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = zip(schema.names, schema.types, strict=True)
    table = pa.schema(list(fields)).empty_table()
    location.store.system.makedirs(location.path, exist_ok=True)
    with location.store.system.open(f"{location.path}/empty.parquet", "wb") as opened:
        pq.write_table(table, opened)
