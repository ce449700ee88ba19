"""Check whether an object can be saved without loss, before it is computed or written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from hyperplane.core.errors import Fault

_OBJECTS = "numbers, text, or times instead of Python objects"


def object_faults(obj: Any, kind: str) -> list[Fault]:
    """Return the faults of an object that are known before it is computed.

    ``kind`` is that of :func:`~hyperplane.storage.object_kinds.detect_kind`.

    Examples
    --------
    >>> import pandas as pd
    >>> object_faults(pd.DataFrame({0: [1]}), "table")[0].advice
    'write df.rename(columns=str)'
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
            shown = f"text with {obj[error.start]!a} at index {error.start}"
            faults.append(Fault("obj", shown, "valid Unicode text, without unpaired surrogates"))
    if kind == "numpy" and obj.dtype.hasobject:
        faults.append(Fault("obj", f"an array of {obj.dtype}", _OBJECTS, "convert it with astype"))
    if kind == "array":
        faults += _array_faults(obj)
    return faults


def _async_client_faults(obj: Any) -> list[Fault]:
    """Return a fault if the object would be computed by an asynchronous Dask client."""
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
    return [Fault("obj", "a collection of an asynchronous client", "a synchronous client", advice)]


def _name_faults(obj: Any) -> list[Fault]:
    """Return faults for column names that are not strings or not unique."""
    if type(obj).__name__ == "Series":
        if isinstance(obj.name, str):
            return []
        advice = "write series.rename('its name')"
        return [Fault("obj", f"a series named {obj.name!r}", "a name that is a string", advice)]
    is_arrow = type(obj).__module__.startswith("pyarrow")
    names: Iterable[Hashable] = obj.column_names if is_arrow else list(obj.columns)
    counts = Counter(str(name) for name in names)
    faults = [
        Fault(
            "obj",
            f"a table with a column named {name!r}",
            "column names that are strings",
            "write df.rename(columns=lambda name: '_'.join(map(str, name)) "
            "if isinstance(name, tuple) else name)"
            if isinstance(name, tuple)
            else "write df.rename(columns=str)",
        )
        for name in names
        if not isinstance(name, str)
    ]
    return faults[:3] + [
        Fault("obj", f"a table with {count} columns {name!r}", "unique names", "rename or drop one")
        for name, count in counts.items()
        if count > 1
    ]


def _array_faults(obj: Any) -> list[Fault]:
    """Return faults for arrays of Python objects, except text in xarray, which Zarr supports."""
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
        # Zarr supports cftime objects, which are times of other calendars.
        if not type(variable.values.ravel()[0]).__module__.startswith("cftime")
    ]
