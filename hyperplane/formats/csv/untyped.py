"""Parse single CSV and JSON lines files, which have no recorded types, as pandas dataframes."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    import pandas as pd

_INTEGER = r"[+-]?\d+"
#: Above this float64 does not represent every integer.
_EXACT = 2.0**53


def parse_csv(data: bytes, separator: str) -> Any:
    r"""Parse CSV with the types that pandas infers, but without loss of digits.

    pandas converts integers to floats if values are missing, and rounds the last digit of floats.
    Here such columns are ``Int64``, or Python objects beyond 64 bits.

    Examples
    --------
    >>> parse_csv(b"n,m\n9007199254740993,1\n,2\n", ",")["n"].to_list()
    [9007199254740993, <NA>]
    """
    import pandas as pd

    exact: dict[str, Any] = {}
    if Version(pd.__version__) < Version("3.1"):  # newer versions always round-trip
        exact["float_precision"] = "round_trip"

    def read(**options: Any) -> Any:
        return pd.read_csv(io.BytesIO(data), sep=separator, **exact, **options)

    frame = read(low_memory=False)
    candidates = [
        place
        for place, dtype in enumerate(frame.dtypes)
        if dtype == "float64" and _may_be_integers(frame.iloc[:, place])
    ]
    if not candidates:
        return frame
    texts = read(usecols=candidates, dtype="str")
    for place, name in zip(candidates, texts.columns, strict=True):
        present = texts[name].dropna()
        if present.str.fullmatch(_INTEGER).all():
            values = [None if one != one else int(one) for one in texts[name].astype(object)]
            frame.isetitem(place, _integer_column(values))
    return frame


def _may_be_integers(column: pd.Series) -> bool:
    """Return whether a float column may have been integers with lost digits or missing values."""
    present = column.dropna()
    if not len(present) or not (present % 1 == 0).all():
        return False
    return len(present) < len(column) or bool((present.abs() >= _EXACT).any())


def parse_json_lines(data: bytes) -> pd.DataFrame:
    r"""Parse JSON lines as a dataframe; a column of several types holds Python objects.

    Raises
    ------
    ValueError
        If a line is not a JSON object.

    Examples
    --------
    >>> parse_json_lines(b'{"1": 9007199254740993}\n{"1": null}\n')["1"].to_list()
    [9007199254740993, <NA>]
    """
    import pandas as pd

    records = []
    for number, line in enumerate(data.decode().split("\n"), 1):
        if line.strip():
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError(f"line {number} is not a JSON object: {line[:60]!r}")
            records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {
        place: _build_column([record.get(name) for record in records])
        for place, name in enumerate(names)
    }
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(records)))
    frame.columns = pd.Index(names, dtype="str")
    return frame


def _build_column(values: Sequence[Any]) -> Any:
    """Return the values of a column in the dtype that holds them without loss."""
    import numpy as np
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    missing = any(value is None for value in values)
    if kinds == {int}:
        return _integer_column(values)
    if kinds == {bool}:
        truth: Any = "boolean" if missing else "bool"
        return pd.array(list(values), dtype=truth)
    if kinds == {float} or (kinds == {int, float} and all(map(_is_exact, values))):
        return np.array([np.nan if value is None else value for value in values], dtype="float64")
    objects = np.empty(len(values), dtype=object)
    objects[:] = list(values)
    column = pd.Series(objects, dtype=object)
    return column.astype("str") if kinds == {str} else column


def _is_exact(value: Any) -> bool:
    """Return whether float64 represents a value exactly."""
    return value is None or isinstance(value, float) or abs(value) <= _EXACT


def _integer_column(values: Sequence[Any]) -> Any:
    """Return integers in the dtype that holds them and missing values."""
    import numpy as np
    import pandas as pd

    present = [value for value in values if value is not None]
    least, most = min(present, default=0), max(present, default=0)
    if least >= -(2**63) and most < 2**63:
        name = "Int64"
    elif least >= 0 and most < 2**64:
        name = "UInt64"
    else:
        objects = np.empty(len(values), dtype=object)
        objects[:] = list(values)
        return pd.Series(objects, dtype=object)
    dtype: Any = name if len(present) < len(values) else name.lower()
    return pd.array(list(values), dtype=dtype)
