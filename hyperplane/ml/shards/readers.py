"""Readers of files with pandas: ``read_csv``, ``read_json`` and ``read_parquet``."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from hyperplane.core.active_cluster import count_threads
from hyperplane.core.argument_checks import describe_value, find_flag_faults
from hyperplane.core.errors import Fault, HyperplaneError, ReadError, RequestError, check
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import check_names
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.nested_arrays import split_bounds
from hyperplane.ml.shards.xshards import XShards
from hyperplane.objectstore.listing import find_files

#: Set by ``OrcaContext.pandas_read_backend``: columns of files without a header are numbers.
NUMBERED_COLUMNS = threading.Event()

#: Hive's folder of rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

#: Function of pandas -> additional arguments.
_ADDED_OPTIONS = {"read_parquet": ["schema"], "read_csv": ["squeeze", "nullValue"]}

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_csv(file_path: Paths, **kwargs: Any) -> XShards:
    r"""Read CSV files with pandas on the workers, as shards of DataFrames.

    Parameters
    ----------
    file_path : str, path, or list of these
        Files, folders, globs or URLs; also several in one string, separated by commas.
    **kwargs
        Arguments of ``pandas.read_csv``, ``storage_options``, and of Orca ``squeeze=True``, which
        returns shards with a single column as Series, and ``nullValue``, the text of missing
        values. With ``header=None`` and without ``names``, columns are named ``"0"``, ``"1"`` and
        so on, as by Orca; after ``OrcaContext.pandas_read_backend = "pandas"`` they are numbers, as
        by pandas.

    Returns
    -------
    XShards
        Lazy; one shard for each file, at most one per thread of the cluster. Consecutive files of
        a shard are concatenated.

    Raises
    ------
    RequestError
        With every file that does not exist and every unknown argument.
    ReadError
        When it is computed, with the file that pandas cannot read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(2):
    ...     _ = (folder / f"{number}.csv").write_text(f"id,price\n{number},9.5\n")
    >>> read_csv([folder / "0.csv", folder / "1.csv"])["id"].unique().tolist()
    [0, 1]
    """
    return _read("read_csv", file_path, kwargs)


def read_json(file_path: Paths, **kwargs: Any) -> XShards:
    """Read JSON files with pandas on the workers, as shards of DataFrames.

    Parameters
    ----------
    file_path : str, path, or list of these
        As for :func:`read_csv`.
    **kwargs
        Arguments of ``pandas.read_json``, and ``storage_options``. Without ``lines`` and
        ``orient``, a file that is not one JSON value is read as one value per line, as by Orca.

    Returns
    -------
    XShards
        Lazy.
    """
    return _read("read_json", file_path, kwargs)


def read_parquet(
    file_path: Paths, columns: Sequence[str] | None = None, schema: Any = None, **options: Any
) -> XShards:
    """Read Parquet files with pandas on the workers, as shards of DataFrames.

    Parameters
    ----------
    file_path : str, path, or list of these
        As for :func:`read_csv`. Folders ``column=value`` below a folder are columns.
    columns : list of str, optional
        The columns; all by default.
    schema : pyarrow.Schema, optional
        Columns and types to convert to.
    **options
        Arguments of ``pandas.read_parquet``, and ``storage_options``.

    Returns
    -------
    XShards
        Lazy.
    """
    if columns is not None and not (
        isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)
    ):
        check([Fault("columns", describe_value(columns), "a list of names of columns, or None")])
    if schema is not None:
        options["schema"] = schema
    return _read("read_parquet", file_path, {**options, "columns": columns})


def _read(function: str, file_path: Any, kwargs: Mapping[str, Any]) -> XShards:
    import pandas as pd

    parameters = list(inspect.signature(getattr(pd, function)).parameters)
    others = _ADDED_OPTIONS.get(function, [])
    allowed = [name for name in parameters[1:] if name not in ("chunksize", "iterator", "kwargs")]
    check_names(kwargs, ["file_path", *allowed, *others], function)
    options = dict(kwargs)
    storage_options = options.pop("storage_options", None)
    squeeze = options.pop("squeeze", False)
    faults = find_flag_faults(squeeze=squeeze)
    if "nullValue" in options:
        if "na_values" in options:
            faults.append(Fault("nullValue", repr(options["nullValue"])[:80], "not with na_values"))
        options["na_values"] = options.pop("nullValue")
    _name_types(options)
    for name, value in options.items():
        if callable(value):
            faults += find_pickle_faults(name, value)
    check(faults)
    try:
        files = find_files(_split_paths(file_path), storage_options)
    except RequestError as error:
        check(
            replace(fault, where="file_path") if fault.where == "urls" else fault
            for fault in error.faults
        )
        raise
    is_unnamed = options.get("header", "") is None and options.get("names") is None
    text_names = function == "read_csv" and is_unnamed and not NUMBERED_COLUMNS.is_set()
    added = _read_folder_values(files, file_path) if function == "read_parquet" else {}
    parts = [
        tasks.call(_read_files, function, files[start:stop], function, options, text_names, added)
        for start, stop in split_bounds(len(files), min(len(files), count_threads()))
    ]
    if squeeze:
        parts = tasks.map_parts(parts, _squeeze, (), function)
    return XShards(parts)


def _name_types(options: dict[str, Any]) -> None:
    """Replace positions in ``dtype`` by the names of their columns, if ``names`` has these.

    A position is that in the file; with ``usecols``, pandas fails for some of them if the
    separator has several characters.
    """
    types, names, used = options.get("dtype"), options.get("names"), options.get("usecols")
    if not isinstance(types, Mapping) or not isinstance(names, (list, tuple)):
        return
    columns = dict(enumerate(names))
    if isinstance(used, (list, tuple)) and all(type(each) is int for each in used):
        is_short = len(names) == len(used)
        columns = {
            position: names[number if is_short else position]
            for number, position in enumerate(sorted(used))
            if is_short or position < len(names)
        }
    # Those of columns that are not read are ignored, as by pandas.
    options["dtype"] = {
        columns[key] if type(key) is int and key not in names else key: kind
        for key, kind in types.items()
        if type(key) is not int or key in names or key in columns
    }


def _squeeze(frame: Any) -> Any:
    """Return a frame with a single column as Series."""
    return frame.squeeze("columns")


def _split_paths(file_path: Any) -> Any:
    """Return the paths of a string with commas, unless a file has that name."""
    if isinstance(file_path, str) and "," in file_path and not os.path.exists(file_path):  # noqa: PTH110
        return [path.strip() for path in file_path.split(",") if path.strip()]
    return file_path


def _read_files(
    files: Sequence[Any],
    function: str,
    options: dict[str, Any],
    text_names: bool,
    added: Mapping[str, dict[str, Any]],
) -> Any:
    import pandas as pd

    frames = [
        _read_file(file, getattr(pd, function), options, added.get(file.url, {})) for file in files
    ]
    if text_names:
        frames = [frame.rename(columns=str) for frame in frames]
    if len(frames) == 1:
        return frames[0]
    index = options.get("index_col")  # 0 is the first column
    return pd.concat(frames, ignore_index=index is None or index is False)


def _read_folder_values(files: Sequence[Any], file_path: Any) -> dict[str, dict[str, Any]]:
    """Return URL -> column -> value of the folders ``column=value`` above files, as in Hive.

    A file that the user names has none, as with pandas.
    """
    given = _split_paths(file_path)
    given = given if isinstance(given, (list, tuple)) else [given]
    named = {os.fspath(path).rstrip("/").rpartition("/")[2] for path in given}
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        *folders, name = file.url.split("/")
        pairs = itertools.takewhile(
            lambda folder: "=" in folder and folder not in named, reversed(folders)
        )
        if name not in named:
            found[file.url] = dict(unquote(pair).split("=", 1) for pair in reversed(list(pairs)))
    for column in {column for values in found.values() for column in values}:
        texts = {values.get(column, _NO_VALUE) for values in found.values()}
        is_number = all(re.fullmatch(r"-?\d{1,18}", text) for text in texts)
        for values in found.values():
            text = values.get(column, _NO_VALUE)
            values[column] = int(text) if is_number else None if text == _NO_VALUE else text
    return found


def _read_file(
    file: Any, reader: Callable[..., Any], options: dict[str, Any], added: dict[str, Any]
) -> Any:
    columns = options.get("columns")
    if columns is not None:
        in_file = [name for name in columns if name not in added]
        options = {**options, "columns": in_file}
    try:
        frame = _call_reader(file, reader, options)
        new = {
            name: value
            for name, value in added.items()
            if name not in frame.columns and (columns is None or name in columns)
        }
        return frame.assign(**new) if new else frame
    except HyperplaneError:
        raise
    except Exception as error:
        raise ReadError(
            file.url, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        ) from error


def _call_reader(file: Any, reader: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Read a file; JSON that is not one value of a table is read as one value per line."""
    try:
        with file.open() as opened:
            return reader(opened, **options)
    except ValueError as error:
        if reader.__name__ != "read_json" or {"lines", "orient"} & set(options):
            raise
        try:
            with file.open() as opened:
                return reader(opened, lines=True, **options)
        except ValueError:
            raise error from None
