"""``read`` of random Avro files returns the values of fastavro, or raises our errors."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid

import dask
import fastavro
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane.errors import HyperplaneError
from hyperplane.formats import partition_sizes
from hyperplane.formats.avro import read as avro_read

QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=set(Phase) - {Phase.explain},
)
ODD = 2**53 + 1
MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    dt.datetime(2024, 2, 29, 1, 2, 3, 4_000),
    dt.datetime(2262, 4, 11),
]


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


KINDS = {
    "int": ("int", [0, -1, 2**31 - 1]),
    "long": ("long", [0, ODD, -(2**63), 2**63 - 1]),
    "small long": ("long", [0, 5, -7]),
    "float": ("float", [0.5, -0.0, math.inf, math.nan]),
    "double": ("double", [0.1, -0.0, -math.inf, math.nan, 5e-324, 1e300]),
    "boolean": ("boolean", [True, False]),
    "string": ("string", ["", "a", "NA", "\u00fc\u2028", "1"]),
    "bytes": ("bytes", [b"", b"\x00\xff"]),
    "date": (logical("int", "date"), [dt.date(2024, 2, 29), dt.date(1, 1, 1)]),
    "millis": (
        logical("long", "timestamp-millis"),
        [moment.replace(tzinfo=dt.UTC) for moment in MOMENTS],
    ),
    "micros": (
        logical("long", "timestamp-micros"),
        [moment.replace(tzinfo=dt.UTC, microsecond=7) for moment in MOMENTS],
    ),
    "local": (logical("long", "local-timestamp-micros"), MOMENTS),
    "time": (logical("long", "time-micros"), [dt.time(1, 2, 3, 4), dt.time(0)]),
    "decimal": (
        logical("bytes", "decimal", precision=9, scale=2),
        [decimal.Decimal("1.50"), decimal.Decimal("-99.99")],
    ),
    "uuid": (logical("string", "uuid"), [uuid.UUID(int=7)]),
    "words": ({"type": "enum", "name": "W", "symbols": ["a", "b"]}, ["a", "b"]),
    "list": ({"type": "array", "items": ["null", "long"]}, [[], [1, None, ODD]]),
    "record": (
        {"type": "record", "name": "R", "fields": [{"name": "z", "type": ["null", "long"]}]},
        [{"z": 1}, {"z": None}],
    ),
    "numbers": (["int", "double"], [1, 2.5, -0.0]),
    "nothing": ("null", [None]),
}
#: Kind of a column -> kinds that it often has in the other files, to draw files whose types differ.
NEAR = {
    "int": ["long", "double", "float", "small long"],
    "long": ["int", "double"],
    "small long": ["double", "float", "int"],
    "float": ["double", "int"],
    "double": ["long", "float", "small long"],
    "millis": ["micros"],
    "micros": ["millis"],
    "string": ["words", "uuid", "nothing"],
}
NAMES = ["a", "b_b", "_1", "A", "index"]


@st.composite
def files(draw):
    """The kinds of the columns of a few files, and their records."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    usual = {name: draw(st.sampled_from(list(KINDS))) for name in names}
    files = []
    for _ in range(draw(st.integers(1, 3))):
        kinds, values = {}, {}
        for name in draw(st.permutations(names))[: draw(st.integers(1, len(names)))]:
            near = NEAR.get(usual[name], [])
            drifts = near and draw(st.integers(0, 2)) == 0
            kinds[name] = draw(st.sampled_from(near)) if drifts else usual[name]
            schema, known = KINDS[kinds[name]]
            if draw(st.booleans()) and not isinstance(schema, list) and schema != "null":
                kinds[name] += "?"
                known = [None, *known]
            values[name] = st.sampled_from(known)
        rows = st.fixed_dictionaries(values)
        files.append((kinds, draw(st.lists(rows, max_size=6))))
    return files


def schema_of(kinds):
    fields = []
    for number, (name, kind) in enumerate(kinds.items()):
        schema = KINDS[kind.rstrip("?")][0]
        if isinstance(schema, dict) and "name" in schema:
            schema = {**schema, "name": f"{schema['name']}{number}"}
        fields.append({"name": name, "type": ["null", schema] if "?" in kind else schema})
    return {"type": "record", "name": "row", "fields": fields}


def plain(value, column=None):
    """Return a value in a form that is equal only for equal values."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, (list, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (bool, np.bool_)):
        return ("truth", bool(value))
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, (int, np.integer)):
        return ("number", int(value), "")
    if isinstance(value, (float, np.floating)):
        exact = float(value)
        if math.isnan(exact):
            return None
        sign = "-" if exact == 0 and math.copysign(1, exact) < 0 else ""
        return ("number", int(exact) if exact.is_integer() else exact, sign)
    if isinstance(value, dt.datetime):
        return ("time", value.replace(tzinfo=None), value.tzinfo is not None)
    if isinstance(value, dt.date):
        return ("time", dt.datetime(value.year, value.month, value.day), False)
    return str(value) if isinstance(value, uuid.UUID) else value


@pytest.mark.slow
@settings(QUICK, max_examples=scaled(30, 300))
@given(
    case=files(),
    codec=st.sampled_from(["null", "deflate", "xz"]),
    size=st.sampled_from([None, 25, 10**6]),  # one of them less than a block
)
def test_avro(tmp_path_factory, case, codec, size):
    folder = tmp_path_factory.mktemp("any")
    expected, names = [], []
    for number, (kinds, rows) in enumerate(case):
        schema = schema_of(kinds)
        with (folder / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, rows, codec=codec, sync_interval=20)
        with (folder / f"{number}.avro").open("rb") as file:
            expected += list(fastavro.reader(file))
        names += [name for name in kinds if name not in names]
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
        patch.setattr(avro_read, "STEP", 64)
        try:
            df = hyperplane.dataframe.read(folder, schema="union", partition_size=size)
            result = df.compute()
        except HyperplaneError as error:
            drifts = (
                len({kinds.get(name, "").rstrip("?") for kinds, _ in case for name in names}) > 1
            )
            if len(case) == 1 or not drifts:
                raise AssertionError("refused") from error
            event("refused")
            return
    event("read")
    assert list(result.columns) == names
    assert result.dtypes.equals(df.dtypes)
    for name in names:
        column = result[name]
        if isinstance(column.dtype, pd.ArrowDtype):  # pandas would convert lists to floats
            values = column.array.__arrow_array__().to_pylist()
        else:
            values = column.astype(object).tolist()
        values_read = [plain(value) for value in values]
        assert values_read == [plain(record.get(name)) for record in expected], name
