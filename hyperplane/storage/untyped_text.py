"""Single files of CSV and JSON lines as pandas frames: no types are recorded beside them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    import pandas as pd

_INTEGER = r"[+-]?\d+"
#: From here on a float64 does not hold every whole number.
_EXACT = 2.0**53


def parse_csv(data: bytes, separator: str) -> Any:
    r"""CSV with the types that pandas finds, but with every digit of its numbers.

    pandas makes floats of whole numbers where values are missing, and rounds the last digit of
    floats; here such columns are ``Int64``, or Python objects beyond 64 bits.

    Examples
    --------
    >>> frame_of_csv(b"n,m\n9007199254740993,1\n,2\n", ",")["n"].to_list()
    [9007199254740993, <NA>]
    """
    import pandas as pd

    exact: dict[str, Any] = {}
    if Version(pd.__version__) < Version("3.1"):  # from where on it is the only precision
        exact["float_precision"] = "round_trip"

    def read(**options: Any) -> Any:
        return pd.read_csv(io.BytesIO(data), sep=separator, **exact, **options)

    frame = read(low_memory=False)
    large = [
        place
        for place, dtype in enumerate(frame.dtypes)
        if dtype == "float64" and _may_be_integers(frame.iloc[:, place])
    ]
    if not large:
        return frame
    texts = read(usecols=large, dtype="str")
    for place, name in zip(large, texts.columns, strict=True):
        held = texts[name].dropna()
        if held.str.fullmatch(_INTEGER).all():
            values = [None if one != one else int(one) for one in texts[name].astype(object)]
            frame.isetitem(place, _integer_column(values))
    return frame


def _may_be_integers(column: pd.Series) -> bool:
    """Whether floats may have been whole numbers, of which digits are lost or values missing."""
    held = column.dropna()
    if not len(held) or not (held % 1 == 0).all():
        return False
    return len(held) < len(column) or bool((held.abs() >= _EXACT).any())


def parse_json_lines(data: bytes) -> pd.DataFrame:
    r"""JSON lines as a frame; a column of several types has the values as they are.

    Raises
    ------
    ValueError
        When a line is no JSON object.

    Examples
    --------
    >>> frame_of_lines(b'{"1": 9007199254740993}\n{"1": null}\n')["1"].to_list()
    [9007199254740993, <NA>]
    """
    import pandas as pd

    records = []
    for number, line in enumerate(data.decode().split("\n"), 1):
        if line.strip():
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError(f"line {number} is no JSON object: {line[:60]!r}")
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
    held = np.empty(len(values), dtype=object)
    held[:] = list(values)
    made = pd.Series(held, dtype=object)
    return made.astype("str") if kinds == {str} else made


def _is_exact(value: Any) -> bool:
    return value is None or isinstance(value, float) or abs(value) <= _EXACT


def _integer_column(values: Sequence[Any]) -> Any:
    """Whole numbers, in the type that holds them and missing ones."""
    import numpy as np
    import pandas as pd

    held = [value for value in values if value is not None]
    least, most = min(held, default=0), max(held, default=0)
    if least >= -(2**63) and most < 2**63:
        name = "Int64"
    elif least >= 0 and most < 2**64:
        name = "UInt64"
    else:
        made = np.empty(len(values), dtype=object)
        made[:] = list(values)
        return pd.Series(made, dtype=object)
    dtype: Any = name if len(held) < len(values) else name.lower()
    return pd.array(list(values), dtype=dtype)
