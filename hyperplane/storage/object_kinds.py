"""Kinds of objects that can be saved, and the formats of each kind.

The formats of tables and of items of bags are in :mod:`hyperplane.formats.registry`, the formats
of other objects are in this module.
"""

from __future__ import annotations

from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.formats import registry
from hyperplane.formats.base import FileFormat, SupportsSave, SupportsSaveRecords

#: Default formats of folders of parts by kind of object.
DEFAULT_FORMATS = {"dataframe": "parquet", "bag": "jsonl"}
#: Formats of objects that are neither tables nor items of bags, by suffix.
_OBJECT_SUFFIXES = {
    ".json": "json",
    ".npy": "npy",
    ".zarr": "zarr",
    ".png": "figure", ".svg": "figure", ".pdf": "figure", ".jpg": "figure", ".jpeg": "figure",
    ".joblib": "joblib", ".pkl": "joblib",
    ".skops": "skops",
    ".bin": "bytes",
}  # fmt: skip
#: Formats of these objects, by kind; bytes may be the content of any file except a model.
_OBJECT_FORMATS = {
    "numpy": ("npy",),
    "json": ("json",),
    "text": ("text",),
    "figure": ("figure",),
    "model": ("skops", "joblib"),
    "bytes": ("bytes", "json", "npy", "figure", "zarr"),
}
#: Kind of object as which a file is loaded, by format.
_LOADED_KINDS = {
    "json": "json", "npy": "numpy", "text": "text", "skops": "model", "joblib": "model",
}  # fmt: skip
_SAVE_FILE = "then save the file, as a pathlib.Path; hyperplane.ml.ModelRegistry does both"
#: Class of an object that cannot be saved -> what to do instead.
_ADVICE = {
    "dask.Delayed": "save what it computes: hyperplane.save(obj.compute(), url)",
    "keras.Model": f"write it with model.save('model.keras'), {_SAVE_FILE}",
    "torch.Module": "export it with torch.export.export, write the program with torch.export.save "
    "as .pt2, then save the file, as a pathlib.Path",
    "torch.ExportedProgram": f"write it with torch.export.save as .pt2, {_SAVE_FILE}",
    "torch.Tensor": "save tensor.numpy(force=True)",
    "xgboost.Booster": f"write it with save_model('model.ubj'), {_SAVE_FILE}",
}
#: Interface of the formats in which a kind of object can be saved.
_INTERFACES: dict[str, Any] = {
    "dataframe": SupportsSave,
    "table": SupportsSave,
    "bag": SupportsSaveRecords,
    "bytes": FileFormat,
}


def find_format(suffix: str) -> str:
    """Return the name of the format of a lower-case suffix; empty if there is none."""
    if suffix in _OBJECT_SUFFIXES or not suffix:
        return _OBJECT_SUFFIXES.get(suffix, "")
    interface: Any = FileFormat
    for built_in in (True, False):  # finding the formats of other packages takes 20 ms
        formats, _ = registry.list_formats(interface, built_in=built_in)
        for name, file_format in formats.items():
            if suffix in _saved_suffixes(file_format):
                return name
    return ""


def is_format_of(kind: str, name: str) -> bool:
    """Return whether a kind of object can be saved in a format.

    Raises
    ------
    RequestError
        If the format is of another package and cannot be imported.
    """
    if name in _OBJECT_FORMATS.get(kind, ()):
        return True
    if kind not in _INTERFACES or not name:
        return False
    if name not in registry.FORMATS.built_in and name not in registry.FORMATS.names():
        return False
    return isinstance(registry.load(name), _INTERFACES[kind])


def list_formats(kind: str) -> dict[str, list[str]]:
    """Return the suffixes of each format of a kind of object, the default format first."""
    formats: dict[str, list[str]] = {}
    if kind in _INTERFACES:
        known, _ = registry.list_formats(_INTERFACES[kind])
        names = sorted(known, key=lambda name: name != DEFAULT_FORMATS.get(kind))
        formats = {name: list(_saved_suffixes(known[name])) for name in names}
    for name in _OBJECT_FORMATS.get(kind, ()):
        formats[name] = [suffix for suffix, owner in _OBJECT_SUFFIXES.items() if owner == name]
    return formats


def list_loaded_formats() -> list[str]:
    """Return the names of the formats in which a single file can be loaded."""
    objects = {name for names in _OBJECT_FORMATS.values() for name in names} - {"zarr"}
    return sorted(objects.union(list_formats("table")))


def part_suffix(name: str) -> str:
    """Return the suffix of part files of a format."""
    return _saved_suffixes(registry.load(name))[0]


def loaded_kind(name: str) -> str:
    """Return the kind of object that a single file of a format is loaded as."""
    if name in _LOADED_KINDS:
        return _LOADED_KINDS[name]
    return "table" if is_format_of("table", name) else "bytes"


def _saved_suffixes(file_format: FileFormat) -> tuple[str, ...]:
    """Return the suffixes of files in a format; none if the format can only be read."""
    return getattr(file_format, "saved_suffixes", ())


def detect_kind(obj: Any) -> str:
    """Return the kind of an object; ``"series"`` means a Dask series, which is refused later.

    Raises
    ------
    RequestError
        If its type cannot be saved.
    """
    names = {f"{base.__module__.split('.')[0]}.{base.__name__}" for base in type(obj).__mro__}
    if "dask.FrameBase" in names or "dask_expr.FrameBase" in names:
        return "dataframe" if names & {"dask.DataFrame", "dask_expr.DataFrame"} else "series"
    if "dask.Bag" in names:
        return "bag"
    if names & {"dask.Array", "xarray.Dataset", "xarray.DataArray"}:
        return "array"
    if names & {"pandas.DataFrame", "polars.DataFrame", "pyarrow.Table", "pandas.Series"}:
        return "table"
    if "numpy.ndarray" in names:
        return "numpy"
    if "matplotlib.Figure" in names:
        return "figure"
    if "sklearn.BaseEstimator" in names:
        return "model"
    if "pathlib.Path" in names:
        return "path"
    for kind, types in (
        ("bytes", (bytes, bytearray, memoryview)),
        ("text", (str,)),
        ("json", (dict, list)),
    ):
        if isinstance(obj, types):
            return kind
    allowed = (
        "a Dask dataframe, bag or array, a pandas, Polars or Arrow table, xarray, NumPy, a "
        "scikit-learn model, a matplotlib figure, a dict or list, text, bytes, or a pathlib.Path "
        "of a file or folder"
    )
    advice = next((text for name, text in _ADVICE.items() if name in names), "")
    raise RequestError([Fault("obj", type(obj).__name__, allowed, advice)])
