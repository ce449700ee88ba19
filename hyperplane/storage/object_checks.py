"""Check whether an object can be saved without loss, before it is computed or written."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import plural
from hyperplane.storage.object_kinds import find_format
from hyperplane.storage.replaced_files import ZARR_METADATA_NAMES

#: Bytes with which files of a format begin.
_FILE_STARTS = {
    "parquet": b"PAR1",
    "npy": b"\x93NUMPY",
    "avro": b"Obj\x01",
    "orc": b"ORC",
    "skops": b"PK",
}
_OBJECTS = "numbers, text, or times instead of Python objects"
#: What to do with a masked Dask array.
MASKED_ADVICE = "write da.ma.filled(obj, value), or da.ma.filled(obj.astype(float), np.nan)"
#: Class of a type of pandas -> conversion to a type of NumPy.
_NUMPY_CONVERSIONS = {
    "DatetimeTZDtype": "tz_convert(None), which keeps the times in UTC",
    "CategoricalDtype": "astype(str)",
    "PeriodDtype": "to_timestamp()",
    "IntervalDtype": "index.mid, or with columns of the left and right ends",
    "BooleanDtype": "fillna(False).astype(bool)",
}


def object_faults(obj: Any, kind: str, *, computed: bool = True) -> list[Fault]:
    """Return the faults of an object that are known before it is computed.

    ``kind`` is that of :func:`~hyperplane.storage.object_kinds.detect_kind`, and ``computed`` is
    whether ``save`` computes it.

    Examples
    --------
    >>> import pandas as pd
    >>> object_faults(pd.DataFrame({0: [1]}), "table")[0].advice
    'write df.rename(columns=str)'
    """
    faults = _async_client_faults(obj) if computed else []
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
    if kind == "numpy" and type(obj).__module__.startswith("numpy.ma"):
        advice = (
            "write obj.filled(value), or save a dataframe with missing values as Parquet, for "
            "example pd.DataFrame({'values': obj})"
        )
        faults.append(Fault("obj", "a masked array", "an array without a mask", advice))
    if kind == "array":
        faults += _array_faults(obj)
    return faults


def content_faults(obj: Any, kind: str, suffix: str) -> list[Fault]:
    """Return a fault if text or bytes are not content of a file that ``load`` reads by its suffix.

    Examples
    --------
    >>> content_faults("not json", "text", ".json")[0].allowed
    "the content of a json file for a name that ends in '.json'"
    """
    name = find_format(suffix)
    if name == "json":
        try:
            json.loads(obj if isinstance(obj, str) else bytes(obj))
        except (ValueError, RecursionError):
            pass
        else:
            return []
    elif name not in _FILE_STARTS or _starts_with(obj, _FILE_STARTS[name]):
        return []
    allowed = f"the content of a {name} file for a name that ends in {suffix!r}"
    advice = (
        f"pass the object itself, such as a dataframe or a dict, or use a suffix such as "
        f"{'.txt' if kind == 'text' else '.bin'}"
    )
    return [Fault("obj", f"{kind} that load cannot read as {name}", allowed, advice)]


def _starts_with(obj: Any, start: bytes) -> bool:
    """Return whether text or bytes start with the bytes that begin each file of a format."""
    head = obj[: len(start)]
    return (head.encode(errors="replace") if isinstance(head, str) else bytes(head)) == start


def check_rows_are_stored(obj: Any, encoded: Any) -> None:
    """Raise RequestError if a table has rows, and its encoded Arrow table has no columns."""
    if encoded.num_columns or not len(obj):
        return
    advice = "write df.reset_index() to save the index as a column"
    fault = Fault("obj", f"{plural(len(obj), 'row')} without columns", "one column or more", advice)
    raise RequestError([fault])


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
    """Return faults for arrays of types that Zarr does not support."""
    if type(obj).__module__.startswith("dask"):
        if type(obj._meta).__module__.startswith("numpy.ma"):
            return [Fault("obj", "a masked array", "an array without a mask", MASKED_ADVICE)]
        if not obj.dtype.hasobject:
            return []
        return [Fault("obj", f"an array of {obj.dtype}", _OBJECTS, "convert it with astype")]
    is_dataset = type(obj).__name__ == "Dataset"
    variables = dict(obj.variables if is_dataset else obj.coords.variables)
    invalid = [name for name in variables if not _is_variable_name(name)]
    if not is_dataset:
        # An array with the name of a dimension gets another name in the Zarr store.
        if obj.name is not None and obj.name not in obj.dims and not _is_variable_name(obj.name):
            invalid.append(obj.name)
        variables[obj.name or "values"] = obj.variable
    faults = [
        fault for name, variable in variables.items() for fault in _variable_faults(name, variable)
    ]
    if invalid:
        allowed = (
            "variable names that are non-empty strings without '/' and '\\\\', other than '.', "
            "'..' and the names of Zarr's metadata"
        )
        advice = _renaming_advice(obj, invalid[0])
        faults.append(Fault("obj", f"variables named {invalid}"[:200], allowed, advice))
    return faults


def _is_variable_name(name: Any) -> bool:
    """Return whether a variable of a name can be loaded: Zarr has a folder for each variable.

    Zarr takes ``/`` and a backslash as separators of nested groups, which xarray does not open.
    """
    if not isinstance(name, str) or not name:
        return False
    return not set(name) & set("/\\\0") and name not in (".", "..", *ZARR_METADATA_NAMES)


def _renaming_advice(obj: Any, name: Any) -> str:
    """Return the call that renames an invalid variable; empty if no similar name is valid."""
    new_name = re.sub(r"[/\\\0]", "_", str(name)).strip(".")
    if not isinstance(name, str) or not _is_variable_name(new_name):
        return "rename them with obj.rename"
    if name == getattr(obj, "name", None) and name not in obj.coords:
        return f"write obj.rename({new_name!r})"
    return f"write obj.rename({{{name!r}: {new_name!r}}})"


def _variable_faults(name: Hashable, variable: Any) -> list[Fault]:
    """Return faults for a variable of a type of pandas, or of Python objects except text."""
    where = f"obj[{name!r}]"
    if not hasattr(variable.dtype, "hasobject"):
        conversion = _NUMPY_CONVERSIONS.get(type(variable.dtype).__name__, "astype('float64')")
        advice = f"convert it in pandas before to_xarray(), for example with {conversion}"
        shown = f"a variable of the pandas type {variable.dtype}"
        return [Fault(where, shown, "a type of NumPy, as Zarr has no types of pandas", advice)]
    if not variable.dtype.hasobject or variable.chunks is not None:
        return []
    from pandas.api.types import infer_dtype

    values = variable.values.ravel()
    kind = infer_dtype(values, skipna=True)
    # Zarr supports cftime objects, which are times of other calendars.
    if kind.startswith("mixed") and not type(values[0]).__module__.startswith("cftime"):
        return [Fault(where, "an array of objects", _OBJECTS, "convert it with astype")]
    first = next((value for value in values if value is not None), None)
    if kind == "datetime" and getattr(first, "tzinfo", None) is not None:
        advice = (
            "convert it in pandas before to_xarray(), for example with "
            f"{_NUMPY_CONVERSIONS['DatetimeTZDtype']}"
        )
        return [Fault(where, "times with a time zone", "times without a time zone", advice)]
    return []
