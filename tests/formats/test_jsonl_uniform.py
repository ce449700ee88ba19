"""Polars parses JSON lines only if no field, digit or type of a value can be lost."""

from __future__ import annotations

import json
import math

import dask
import pandas as pd
import polars as pl
import pytest
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import read
from hyperplane.formats.jsonl import decoder
from hyperplane.formats.jsonl.uniform import parse_uniform_lines

KINDS = {
    "n": pl.Int64(),
    "s": pl.String(),
    "x": pl.Float64(),
    "b": pl.Boolean(),
    "a b": pl.String(),
}
USUAL = {
    "n": ["1", "-7", "null", str(2**63 - 1)],
    "s": [
        '"a"',
        '""',
        '":"',
        '"null"',
        '"s:null"',
        '" :null, "',
        '"true"',
        '"12.5"',
        '"[]"',
        "null",
    ],
    "x": ["1.5", "-0.0", "1e300", "3", "null", "0.1"],
    "b": ["true", "false", "null"],
    "a b": ['"2024-01-01"', '"ä"', '"tea"', '"{"', '"n:"', "null"],
}
ODD = ["1", "1.0", '"5"', "true", "null", "[]", '["n"]', "{}", '{"n":null}', "2e1", str(2**64)]
OTHER = ["s ", "z", "N", "null", "", ":", "n:", ",", "\u00fc", "a"]


@st.composite
def records(draw):
    """Draw the fields of a record as text; sometimes they differ from those of other records."""
    fields = [
        (name, draw(st.sampled_from(USUAL[name]))) for name in draw(st.permutations(list(KINDS)))
    ]
    change = draw(st.sampled_from(["", "", "", "odd", "missing", "more", "instead", "twice"]))
    place = draw(st.integers(0, len(fields) - 1))
    if change == "odd":
        fields[place] = (fields[place][0], draw(st.sampled_from(ODD)))
    if change in ("missing", "instead"):
        fields.pop(place)
    if change in ("more", "instead"):
        value = draw(st.sampled_from(ODD + USUAL["s"]))
        fields.insert(place, (draw(st.sampled_from(OTHER)), value))
    if change == "twice":
        fields.append(
            (fields[place][0], draw(st.sampled_from([value for value in ODD if value != "null"])))
        )
    return fields


def written(fields, gap):
    return (
        "{"
        + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{gap}{v}" for name, v in fields)
        + "}"
    )


PLAIN = [(name, values[0]) for name, values in USUAL.items()]
EXTRA = [*PLAIN[:1], ("s", "7"), *PLAIN[2:]]


@settings(max_examples=scaled(100, 1500), phases=set(Phase) - {Phase.explain}, deadline=None)
@given(st.lists(records(), max_size=4), st.sampled_from(["", " "]))
@example([PLAIN[1:], [*PLAIN, ("z", "null")]], "")  # as many fields, as many null
@example([EXTRA, [*PLAIN, ("z", "1")]], "")  # as many quotes
@example([[*PLAIN[:1], ("s", "7"), *PLAIN[2:]], [*PLAIN[:1], ("s", '"7"'), *PLAIN[2:]]], " ")
def test_parsed_values_equal_those_of_the_lines(rows, gap):
    lines = [written(fields, gap) for fields in [PLAIN, *rows]]
    frame = parse_uniform_lines("\n".join(lines).encode(), KINDS)
    sound = all(sorted(name for name, _ in fields) == sorted(KINDS) for fields in rows)
    event(f"parsed {frame is not None}, same fields {sound}")
    if frame is None:
        # Lines with the usual values in all fields are not refused.
        usual = all(value in USUAL[name] for fields in rows for name, value in fields if sound)
        assert not (sound and usual)
        return
    assert sound
    expected = [json.loads(line) for line in lines]
    for name in KINDS:
        values = [record[name] for record in expected]
        assert frame[name].to_list() == values
        assert all(
            type(mine) is type(theirs) or (type(mine), type(theirs)) == (float, int)
            for mine, theirs in zip(frame[name], values, strict=True)
        )
        for mine, theirs in zip(frame[name], values, strict=True):
            if isinstance(theirs, float):
                assert math.copysign(1, mine) == math.copysign(1, theirs)


@pytest.mark.parametrize(
    "line",
    [
        '{"n":2,"n":3,"s":"b"}',
        '{"n":2,"s":"b\\ud800"}',  # of which Polars makes another character
        '{"n":2,"s":"say \\"x\\""}',
        '{"n" :2,"s":"b","z":1}',
        '{"n":2}{"s":"b"}',
        '{"n":2,"s":"b"} {"n":2,"s":"b"}',
        '[{"n":2,"s":"b"}]',
        '{"n":2,"s":NaN}',
        '{"n":2,"s":{"n":null}}',
        "{}",
        "null",
        '{"n":2.0,"s":"b"}',
        '{"n":9223372036854775808,"s":"b"}',
    ],
)
def test_lines_that_need_another_parser(line):
    kinds = {"n": pl.Int64(), "s": pl.String()}
    data = b'{"n":1,"s":"a"}\n'
    assert parse_uniform_lines(data * 3, kinds).height == 3
    for order in (data + line.encode() + b"\n" + data, line.encode() + b"\n" + data):
        assert parse_uniform_lines(order, kinds) is None


def test_types_and_names_that_need_another_parser():
    assert parse_uniform_lines(b'{"n":1}\n', {"n": pl.Int8()}) is None
    assert parse_uniform_lines(b'{"n":[1]}\n', {"n": pl.List(pl.Int64())}) is None
    for name in ('a"b', "a\\b", ",", "x:y", "\n"):
        data = json.dumps({name: None}).encode()
        assert parse_uniform_lines(data, {name: pl.String()}) is None
    for name in ("", "*", "^x$", "\u00fc", "null"):
        data = json.dumps({name: 1}, ensure_ascii=False).encode() + b"\n"
        data += json.dumps({name: None}, ensure_ascii=False).encode()
        assert parse_uniform_lines(data, {name: pl.Int64()}).rows() == [(1,), (None,)]


@pytest.mark.parametrize("name", ["*", "^x$", "", "."])
def test_names_that_are_patterns_in_polars(tmp_path, name):
    for values in (["1", "true"], [1.5, float(2**60)], [True, None], [2**62, None]):
        lines = [json.dumps({name: value, "other": 1}) + "\n" for value in values]
        (tmp_path / "a.jsonl").write_text("".join(lines))
        with dask.config.set(scheduler="sync"):
            values_read = read(tmp_path / "a.jsonl").compute()[name].astype(object)
        assert [None if pd.isna(value) else value for value in values_read] == values


def test_nulls_are_counted_over_the_ends_of_pieces(monkeypatch):
    from hyperplane.formats.jsonl import uniform

    data = b'{"long name":1,"m":null}\n{"long name":null,"m":null}\n' * 20
    kinds = {"long name": pl.Int64(), "m": pl.Float64()}
    for step in range(1, 60):
        monkeypatch.setattr(uniform, "_STEP", step)
        frame = parse_uniform_lines(data, kinds)
        assert frame.null_count().row(0) == (20, 40)


@pytest.fixture
def plain(tmp_path):
    """Return a file of records that all have the same fields, and the records."""
    kinds = {"n": 1, "x": 0.5, "s": "row", "b": True, "m": None}
    rows = [{**kinds, "n": i, "s": f"row {i}", "m": i if i % 3 else None} for i in range(9_000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with dask.config.set(scheduler="sync"):
        yield tmp_path / "a.jsonl", rows


def test_plain_lines_are_parsed_by_polars(plain, monkeypatch):
    file, rows = plain
    monkeypatch.setattr(decoder, "parse_uniform_lines", lambda *_: None)
    expected = read(file).compute()
    monkeypatch.undo()
    monkeypatch.delattr(decoder.arrow_json, "read_json")
    df = read(file).compute()
    assert df.equals(expected)
    assert df.n.tolist() == [row["n"] for row in rows]
    assert df.m.tolist() == [pd.NA if row["m"] is None else row["m"] for row in rows]


def test_other_lines_are_not_parsed_twice(plain, monkeypatch):
    file, rows = plain
    del rows[3]["x"]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parsed = []
    monkeypatch.setattr(
        decoder, "parse_uniform_lines", lambda data, kinds: parsed.append(len(data))
    )
    assert read(file).x.isna().sum().compute() == 1
    assert len(read(file).compute()) == len(rows)
    assert max(parsed, default=0) < 2 * decoder.PIECE < file.stat().st_size


def test_float_of_many_digits_with_uniform_records(tmp_path):
    lines = [f'{{"x":1.5,"s":"{i}"}}' for i in range(3)] + [f'{{"x":{2**53 + 1},"s":"a"}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with dask.config.set(scheduler="sync"):
        assert read(tmp_path / "a.jsonl").x.compute().tolist() == ["1.5"] * 3 + [str(2**53 + 1)]
