"""``to_dataframe``: types are inferred from a sample and checked for all values."""

import datetime
import json
import pickle

import dask.bag as db
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.bag import read_records, select, to_dataframe
from hyperplane.collections.bags import json_columns
from hyperplane.errors import RequestError, WrongType

STAMPS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Values of a column, and its inferred types without and with nulls.
KINDS = [
    (INT64, "int64", "Int64"),
    (st.floats(allow_nan=False), "float64", "float64"),
    (st.booleans(), "bool", "boolean"),
    (TEXT.map(lambda text: f"t {text}"), "string", "string"),
    (STAMPS.map(lambda t: t.isoformat()), "datetime64[us]", "datetime64[us]"),
    (STAMPS.map(lambda t: f"{t.isoformat()}Z"), "datetime64[us, UTC]", "datetime64[us, UTC]"),
    (st.lists(st.integers(), min_size=1) | st.just({"a": 1}), "object", "object"),
]
COLUMN = st.sampled_from(KINDS).flatmap(
    lambda kind: st.tuples(st.just(kind[1:]), st.lists(kind[0], min_size=1, max_size=12))
)


def expected(column, values):
    """Return the series that pandas makes of the values."""
    dtype = str(column)
    if dtype == "object":
        return pd.Series(values, dtype=object)
    if dtype.startswith("datetime"):
        times = pd.to_datetime(
            pd.Series(values, dtype=object), format="ISO8601", utc=dtype != "datetime64[us]"
        )
        return times.astype(dtype)
    return pd.Series(values, dtype=pd.StringDtype("pyarrow") if dtype == "string" else dtype)


def same(frame, columns, names):
    for name, (dtype, values) in zip(names, columns, strict=True):
        assert str(frame[name].dtype) == dtype
        wanted = expected(dtype, values)
        pd.testing.assert_series_equal(
            frame[name].reset_index(drop=True), wanted, check_names=False
        )


@settings(max_examples=scaled(16, 80))
@given(st.lists(COLUMN, min_size=1, max_size=4), st.data(), st.integers(1, 40))
def test_columns_equal_those_of_pandas(tmp_path_factory, drawn, data, parts):
    rows = min(len(values) for _, values in drawn)
    names = [f"c.{i}" if i % 2 else f"ü{i}" for i in range(len(drawn))]
    columns = []
    for (dtype, nullable), values in drawn:
        null = data.draw(st.lists(st.integers(0, rows - 1), max_size=2)) if rows > 1 else []
        values = [None if i in null else value for i, value in enumerate(values[:rows])]
        if all(value is None for value in values):
            nullable = "object"
        columns.append((nullable if None in values else dtype, values))
    records = [
        {
            name: values[row]
            for name, (_, values) in zip(names, columns, strict=True)
            if values[row] is not None or row % 2
        }
        for row in range(rows)
    ]
    if not any(records):
        return
    kept = [name for name in names if any(name in record for record in records)]
    columns = [column for name, column in zip(names, columns, strict=True) if name in kept]
    bag = db.from_sequence(records, npartitions=min(parts, rows))
    # Only four partitions are sampled, so a field of another one must be reported.
    types = dict(zip(kept, (dtype for dtype, _ in columns), strict=True)) if parts > 4 else None
    frame = to_dataframe(bag, fields=kept, types=types)
    computed = frame.compute(scheduler="sync")
    assert computed.dtypes.equals(frame.dtypes)
    same(computed, columns, kept)
    # Also from a file, which is parsed with Arrow.
    file = tmp_path_factory.mktemp("frame") / "a.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    size = file.stat().st_size
    from_file = to_dataframe(read_records(file, blocksize=size // 3 + 1), fields=kept, types=types)
    read = from_file.compute(scheduler="sync")
    same(read, columns, kept)
    assert len(from_file) == rows
    same(from_file[kept[-1:]].compute(scheduler="sync"), columns[-1:], kept[-1:])


def file_of(tmp_path, records, name="a.jsonl"):
    file = tmp_path / name
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.mark.parametrize(
    ("common", "rare", "advice"),
    [
        (1, None, "'Int64'"),
        (1, 2.5, "'float64'"),
        (1, "x", "'string'"),
        (1, 2**63, "'object'"),
        (1, True, "'string'"),
        (1, [1], "'object'"),
        (1.5, "x", "'object'"),
        (1.5, False, "'object'"),
        (1.5, 10**400, "'object'"),
        (True, None, "'boolean'"),
        (True, 1, "'string'"),
        ("x", 1, "'object'"),
        ("x", "\ud800", "'object'"),
        ("x", {"a": 1}, "'object'"),
        ("2024-05-01", "soon", "'string'"),
        ("2024-05-01", "2024-02-30", "'string'"),
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00Z", "'string'"),
        ("2024-05-01T10:00:00Z", "2024-05-01", "'string'"),
        ("2024-05-01", 20240501, "'string'"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_line_and_advice(tmp_path, common, rare, advice):
    records = [{"n": common}] * 50 + [{"n": rare}] + [{"n": common}] * 5
    for bag, where in (
        (read_records(file_of(tmp_path, records)), r"line 51 of .*a\.jsonl"),
        (db.from_sequence(records, npartitions=4), "record 8 of partition 3"),
    ):
        frame = to_dataframe(bag, sample=4)
        with pytest.raises(WrongType, match=f"field 'n' of {where}") as caught:
            frame.compute(scheduler="sync")
        assert f"write types={{'n': {advice}}}" in str(caught.value)
        assert caught.value.field == "n"
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        # The advice of the message works.
        fixed = to_dataframe(bag, sample=4, types={"n": advice.strip("'")})
        assert len(fixed.compute(scheduler="sync")) == 56


def test_line_numbers_count_blank_and_bad_lines_also_in_divided_files(tmp_path):
    lines = ['{"n": 1}'] * 500 + ["", "oops"] + ['{"n": 1}'] * 10 + ['{"n": "x"}', '{"n": 1}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    bag = read_records(tmp_path / "a.jsonl", blocksize=1000, limit=1)
    with pytest.raises(WrongType, match=r"line 513 of .*a\.jsonl is \"x\""):
        to_dataframe(bag, sample=4).compute(scheduler="sync")


def test_mixed_types_in_the_sample_are_refused_all_at_once():
    bag = db.from_sequence([{"a": 1, "b": [1], "c": 1}, {"a": "x", "b": 5, "c": 2.5}])
    with pytest.raises(RequestError) as caught:
        to_dataframe(bag)
    assert [fault.where for fault in caught.value.faults] == ["types['a']", "types['b']"]
    assert "write types={'a': 'string'}" in str(caught.value)
    frame = to_dataframe(bag, types={"a": "string", "b": "object"}).compute(scheduler="sync")
    assert frame.a.tolist() == ["1", "x"]
    assert frame.b.tolist() == [[1], 5]
    assert frame.c.tolist() == [1.0, 2.5]


def test_values_of_columns_of_type_string_become_text():
    values = [5, "5", True, 1.5, [1, "ä"], {"a": None}, None]
    bag = db.from_sequence([{"v": value} for value in values])
    result = to_dataframe(bag, types={"v": str}).compute(scheduler="sync")
    texts = ["5", "5", "true", "1.5", '[1, "\\u00e4"]', '{"a": null}']
    assert result.v.tolist()[:-1] == texts
    assert result.v.isna().tolist() == [False] * 6 + [True]


def test_nested_fields_are_columns_by_path_or_if_flattened(tmp_path):
    records = [{"user": {"id": 1, "at": {"x": 2}}, "tags": ["a"], "m": {}}, {"user": None}]
    bag = read_records(file_of(tmp_path, records))
    flat = to_dataframe(bag, flatten=True)
    assert list(flat.columns) == ["user.id", "user.at.x", "tags", "m"]
    assert [str(dtype) for dtype in flat.dtypes] == ["Int64", "Int64", "object", "object"]
    whole = to_dataframe(bag).compute(scheduler="sync")
    assert whole.user[0] == records[0]["user"]
    assert whole.tags.tolist()[0] == ["a"]
    named = to_dataframe(bag, fields={"id": "user.id"}).compute(scheduler="sync")
    assert named.id.tolist()[0] == 1


def test_arrow_parses_the_files_also_after_select(tmp_path, monkeypatch):
    records = [{"type": "ab"[n % 2], "n": n, "user": {"id": f"u{n}"}} for n in range(100)]
    bag = select(
        read_records(file_of(tmp_path, records)), {"type": "b"}, {"n": "n", "id": "user.id"}
    )
    frame = to_dataframe(bag)
    monkeypatch.setattr("hyperplane.collections.bags.partition_frames.parse_lines", None)
    result = frame.compute(scheduler="sync")
    assert result.n.tolist() == list(range(1, 100, 2))
    assert result.id.tolist() == [f"u{n}" for n in range(1, 100, 2)]


def test_only_the_requested_columns_are_parsed(tmp_path, monkeypatch):
    seen = []
    schema = json_columns._make_schema
    monkeypatch.setattr(
        json_columns, "_make_schema", lambda types: seen.append(set(types)) or schema(types)
    )
    frame = to_dataframe(read_records(file_of(tmp_path, [{"a": 1, "b": 2, "c": [1]}] * 9)))
    assert frame[["a"]].sum().compute(scheduler="sync").a == 9
    assert seen == [{"a"}]


def test_bags_without_records_need_their_types(tmp_path):
    empty = db.Bag({}, "empty", 0)
    for bag in (empty, db.from_sequence([{}]), read_records(file_of(tmp_path, []))):
        with pytest.raises(RequestError, match="write types="):
            to_dataframe(bag)
        frame = to_dataframe(bag, types={"a": "int64", "t": "datetime"})
        assert [str(dtype) for dtype in frame.dtypes] == ["int64", "datetime64[us]"]
    assert len(to_dataframe(empty, types={"a": int})) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"types": {"a": "complex"}}, "types\\['a'\\] = 'complex': expected one of int64"),
        ({"types": {5: "int64"}}, "types = 5: expected names of columns as text"),
        ({"types": 5}, "a mapping of column names to types"),
        ({"sample": 0}, "a whole number from 1"),
        ({"fields": ["a"], "types": {"b": "int64"}}, "names of columns: a"),
        ({"fields": "a", "types": 5, "sample": None}, "3 faults"),
    ],
)
def test_wrong_arguments_are_reported(arguments, message):
    with pytest.raises(RequestError, match=message):
        to_dataframe(db.from_sequence([{"a": 1}]), **arguments)


def test_bags_of_other_items_are_reported():
    with pytest.raises(RequestError, match="a bag of mappings"):
        to_dataframe(db.from_sequence(["text"]))
    with pytest.raises(RequestError, match="names are text"):
        to_dataframe(db.from_sequence([{1: 2}]))
