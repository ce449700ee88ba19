"""What keeps an object from being saved so that it comes back: seen before anything is written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from hyperplane.errors import Fault

_OBJECTS = "numbers, text, or times, and not Python objects"


def object_faults(obj: Any, kind: str) -> list[Fault]:
    """What is wrong with an object of a kind, as far as it shows without computing it.

    Parameters
    ----------
    obj : object
        What is to be saved.
    kind : str
        As :func:`~hyperplane.storage.formats.kind_of` says.

    Returns
    -------
    list of Fault

    Examples
    --------
    >>> import pandas as pd
    >>> print(*object_faults(pd.DataFrame({0: [1]}), "table"))
    obj = with a column 0: allowed is names that are text; write df.rename(columns=str)
    """
    faults = _async_client_faults(obj)
    if kind in ("table", "dataframe"):
        faults += _name_faults(obj)
    if type(obj).__module__.startswith("polars"):
        faults += [
            Fault(f"obj[{name!r}]", "a column of objects", _OBJECTS, "cast or drop it")
            for name, dtype in obj.schema.items()
            if str(dtype) == "Object"
        ]
    if kind == "text":
        try:
            obj.encode()
        except UnicodeEncodeError as error:
            asked = f"with {obj[error.start]!a} at {error.start}"
            faults.append(Fault("obj", asked, "text of whole Unicode characters"))
    if kind == "numpy" and obj.dtype.hasobject:
        faults.append(Fault("obj", f"an array of {obj.dtype}", _OBJECTS, "convert it with astype"))
    if kind == "array":
        faults += _array_faults(obj)
    return faults


def _async_client_faults(obj: Any) -> list[Fault]:
    """That the results of a collection would have to be awaited."""
    distributed = sys.modules.get("distributed")
    if distributed is None or not hasattr(obj, "__dask_graph__"):
        return []
    try:
        client = distributed.default_client()
    except ValueError:
        return []
    if not client.asynchronous:
        return []
    advice = "write await asyncio.to_thread(hyperplane.save, obj, url)"
    return [Fault("obj", "to be computed by an asynchronous client", "one that waits", advice)]


def _name_faults(obj: Any) -> list[Fault]:
    if type(obj).__name__ == "Series":
        if isinstance(obj.name, str):
            return []
        advice = "write series.rename('its name')"
        return [Fault("obj", f"a series named {obj.name!r}", "a name that is text", advice)]
    arrow = type(obj).__module__.startswith("pyarrow")
    names: Iterable[Hashable] = obj.column_names if arrow else list(obj.columns)
    counts = Counter(str(name) for name in names)
    faults = [
        Fault(
            "obj",
            f"with a column {name!r}",
            "names that are text",
            "write df.columns = ['_'.join(map(str, name)) for name in df.columns]"
            if isinstance(name, tuple)
            else "write df.rename(columns=str)",
        )
        for name in names
        if not isinstance(name, str)
    ]
    return faults[:3] + [
        Fault("obj", f"with {count} columns {name!r}", "each name once", "rename or drop one")
        for name, count in counts.items()
        if count > 1
    ]


def _array_faults(obj: Any) -> list[Fault]:
    """Arrays of objects; those of xarray may be text, which Zarr takes."""
    if type(obj).__module__.startswith("dask"):
        if not obj.dtype.hasobject:
            return []
        return [Fault("obj", f"an array of {obj.dtype}", _OBJECTS, "convert it with astype")]
    from pandas.api.types import infer_dtype

    variables = dict(obj.variables if type(obj).__name__ == "Dataset" else obj.coords.variables)
    if type(obj).__name__ == "DataArray":
        variables[obj.name or "values"] = obj.variable
    return [
        Fault(f"obj[{name!r}]", "an array of objects", _OBJECTS, "convert it with astype")
        for name, variable in variables.items()
        if variable.dtype.hasobject and variable.chunks is None
        if infer_dtype(variable.values.ravel(), skipna=True).startswith("mixed")
        # Times of other calendars are objects that Zarr has a form for.
        if not type(variable.values.ravel()[0]).__module__.startswith("cftime")
    ]
