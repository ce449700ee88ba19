"""``open_zarr_many``: many Zarr stores as one lazy data set of xarray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperplane.collections.arrays.arguments import (
    find_argument_faults,
    list_store_urls,
    make_stores,
)
from hyperplane.core.errors import RequestError, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call

if TYPE_CHECKING:
    import xarray as xr


@check_call
def open_zarr_many(
    urls: Any,
    *,
    combine: str = "merge",
    concat_dim: Any = None,
    compat: str = "no_conflicts",
    combine_attrs: Any = "no_conflicts",
    join: str = "outer",
    data_vars: Any = None,
    coords: Any = "minimal",
    load: bool = False,
    group: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **decoding: Any,
) -> xr.Dataset:
    """Open tens to thousands of Zarr stores as one lazy data set.

    The metadata and indexes of all stores are read in parallel by threads of this process. The
    result equals that of :func:`xarray.merge` or :func:`xarray.concat` for the stores opened one
    by one. Data is read only when the Dask arrays are computed.

    Parameters
    ----------
    urls : str, path, or list of them
        Paths or fsspec URLs of stores of Zarr 2 or 3, with consolidated metadata or without; or
        globs, whose matches are sorted by name in natural order: ``part-2`` before ``part-10``.
        For ``combine="nested"`` a list of lists without globs, with one level for each entry of
        ``concat_dim``.
    combine : {"merge", "concat", "nested", "by_coords"}
        The function of xarray that combines the data sets.
    concat_dim : str, pandas.Index or xarray.DataArray, or a list of them
        The dimension, old or new, along which they are concatenated; a list for
        ``combine="nested"``.
    compat : str
        How variables of the same name are compared, as in xarray. With ``"merge"`` and
        ``"concat"`` large variables are compared on the workers and small ones by threads of
        this process. With ``"nested"`` and ``"by_coords"`` xarray compares them, which loads them
        in this process.
    combine_attrs : str or callable
        How attributes are combined, as in xarray.
    join : {"outer", "inner", "left", "right", "exact", "override"}
        How indexes that differ are combined, as in xarray.
    data_vars : {"minimal", "different", "all"} or list of str, optional
        Which data variables are concatenated, as in xarray. By default those that have the
        dimension, or all if the dimension is new.
    coords : {"minimal", "different", "all"} or list of str
        Which coordinates are concatenated, as in xarray.
    load : bool
        Whether to read all data into the memory of this process, with 32 threads.
    group : str, optional
        The group inside each store.
    storage_options : mapping, optional
        Options for fsspec, such as credentials. They never appear in messages.
    **decoding
        Options of :func:`xarray.open_dataset`, such as ``decode_times`` or ``drop_variables``.

    Returns
    -------
    xarray.Dataset
        Dask arrays in equal chunks, which ``to_zarr`` can write; indexes are loaded. With
        ``"merge"`` and ``"concat"``, small stores that are concatenated share a chunk of up to 32
        MB (32·10^6 bytes) and 32 stores, which one task reads. A chunk that cannot be read raises a
        HyperplaneError that names the store and the variable.

    Raises
    ------
    RequestError
        With a fault for each invalid argument. If all are valid, with a fault for each store that
        cannot be opened. If all can be opened, with two stores that conflict and the variable or
        attribute in which they differ.
    MissingPackage
        If xarray or zarr is not installed.

    Examples
    --------
    >>> import tempfile, xarray as xr
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     part = xr.Dataset({"rain": ("day", [0.1 * day])}, coords={"day": [day]})
    ...     _ = part.to_zarr(f"{folder}/{day}.zarr", consolidated=False)
    >>> data = open_zarr_many(f"{folder}/*.zarr", combine="concat", concat_dim="day")
    >>> data.sizes["day"], float(data.rain.max())
    (3, 0.2)
    """
    need("xarray", "array")
    need("zarr", "array")
    choices = (combine, concat_dim, compat, combine_attrs, join)
    faults = list(find_argument_faults(*choices, data_vars, coords, load, group, decoding))
    try:
        names, tree, dims = list_store_urls(urls, combine, concat_dim, storage_options)
    except RequestError as error:
        raise RequestError([*faults, *error.faults]) from error.__cause__
    check(faults)

    from hyperplane.collections.arrays import combine_datasets
    from hyperplane.collections.arrays.encoding import prepare_for_writing
    from hyperplane.collections.arrays.open_stores import READER_THREADS, open_stores

    stores = make_stores(names, storage_options, load)
    opened = open_stores(names, stores, group, decoding, storage_options)
    options = combine_datasets.CombineOptions(compat, join, combine_attrs, data_vars, coords)
    if combine == "merge":
        result = combine_datasets.merge(opened, options)
    elif combine == "concat":
        result = combine_datasets.concat(opened, concat_dim, options)
    elif combine == "nested":
        result = combine_datasets.combine_nested(opened, tree, dims, options)
    else:
        result = combine_datasets.combine_by_coords(opened, options)
    result = prepare_for_writing(result, [store.dataset for store in opened])
    return result.load(scheduler="threads", num_workers=READER_THREADS) if load else result
