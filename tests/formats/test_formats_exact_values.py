"""Readers return exactly the values of the files."""

from __future__ import annotations

import json

import dask
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.collections.frames.read import read
from hyperplane.errors import ReadError, RequestError
from hyperplane.formats import partition_sizes, text_samples
from hyperplane.formats.jsonl import decoder, types


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"a": 1}, {"a": 2, "b": "x"}], [{"a": 1, "b": None}, {"a": 2, "b": "x"}]),
        ([[{"a": 1}], [{"a": 2, "b": "x"}]], [[{"a": 1, "b": None}], [{"a": 2, "b": "x"}]]),
        ([{"a": {}}, {"a": {"b": [1]}}], [{"a": {"b": None}}, {"a": {"b": [1]}}]),
        ([["a"], [1, True]], ['["a"]', "[1, true]"]),
        ([{"a": 1}, {"a": "x"}], ['{"a": 1}', '{"a": "x"}']),
        ([2**53 + 1, 2.5], [str(2**53 + 1), "2.5"]),
        ([[2**53 + 1, 2.5]], [f"[{2**53 + 1}, 2.5]"]),
    ],
)
def test_json_values_are_complete(tmp_path, values, expected):
    file = lines(tmp_path / "a.jsonl", *({"v": value} for value in values))
    result = read(file).compute().v.to_list()
    assert [value.tolist() if hasattr(value, "tolist") else value for value in result] == expected
    assert hyperplane.shard_rows(file, 1, 0).v.to_list() == expected


@pytest.fixture
def short(monkeypatch):
    """Sample only the first lines."""
    monkeypatch.setattr(text_samples, "HEAD", 200)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("usual", "late", "wrong"),
    [
        ({"n": 1}, {"n": 1, "m": 2}, r"line 101 .* the field 'm', which no sampled .*'m': 'str'"),
        ({"n": {"a": 1}}, {"n": {"a": 1, "b": 2}}, r"'n' holds {'a': 1, 'b': 2}.*line 101 "),
        ({"n": [{"a": 1}]}, {"n": [{"b": 2}]}, r"'n' holds \[{'b': 2}\].*line 101 "),
        ({"n": ["a"]}, {"n": [1]}, r"'n' holds \[1\].*line 101 .*'n': 'str'"),
        ({"n": 1.5}, {"n": 2**53 + 1}, r"'n' holds 9007199254740993.*line 101 "),
        ({"n": True}, {"n": 5}, r"'n' holds 5.*line 101 .*'n': 'str'"),
    ],
)
def test_a_late_line_of_json_is_named(tmp_path, usual, late, wrong):
    file = lines(tmp_path / "a.jsonl", *[usual] * 100, late)
    with pytest.raises(ReadError, match=wrong):
        read(file).compute()
    name = list(late)[-1]
    result = read(file, dtypes={name: "str"}).compute()
    assert json.loads(result[name].to_list()[-1]) == late[name]


@pytest.mark.usefixtures("short")
def test_requested_json_columns_do_not_depend_on_others(tmp_path):
    file = lines(tmp_path / "a.jsonl", *[{"n": 1, "s": {"a": 1}}] * 100, {"n": 2, "m": 3})
    assert read(file, columns=["n"]).n.sum().compute() == 102
    assert len(read(file, columns=["n", "s"]).compute()) == 101


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_statistics_of_durations_are_in_their_unit(tmp_path, unit):
    spans = np.array([1, 7, 9], f"timedelta64[{unit}]")
    pd.DataFrame({"d": spans}).to_parquet(tmp_path / "a.parquet")
    seven = pd.Timedelta(spans[1])
    for op, rows in {">=": 2, "==": 1, ">": 1, "<=": 2, "!=": 2, "in": 1}.items():
        value = [seven] if op == "in" else seven
        assert len(read(tmp_path / "a.parquet", filters=[("d", op, value)]).compute()) == rows, op


def test_filters_of_half_floats(tmp_path):
    pd.DataFrame({"h": np.array([1, 0.1, 3], "float16")}).to_parquet(tmp_path / "a.parquet")
    df = read(tmp_path / "a.parquet", filters=[("h", ">=", 1)]).compute()
    assert df.h.to_list() == [1.0, 3.0]


def test_periods_do_not_become_numbers(tmp_path):
    frame = pd.DataFrame({"p": pd.period_range("2024", periods=3, freq="M"), "n": [1, 2, 3]})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError, match=r"p: period: .*read it with hyperplane.load"):
        read(tmp_path / "a.parquet")
    with pytest.raises(RequestError, match="p: period"):
        read(tmp_path / "a.parquet", columns=["n"], filters=[("p", ">", 5)])
    assert read(tmp_path / "a.parquet", columns=["n"]).n.sum().compute() == 6


def test_a_byte_order_mark_within_a_file_is_a_character(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    texts = [f"\ufeffx{number}" for number in range(50)]
    (tmp_path / "a.csv").write_text("\ufeffa\n" + "".join(f"{text}\n" for text in texts))
    df = read(tmp_path / "a.csv", partition_size="1B")
    assert df.npartitions > 5
    assert df.compute().a.to_list() == texts


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_avro_durations_do_not_become_numbers(tmp_path, unit):
    spans = pd.Series([7, None, -1], dtype="Int64").astype(f"timedelta64[{unit}]")
    hyperplane.save(pd.DataFrame({"d": spans, "l": [[1], [], None]}), tmp_path / "a.avro")
    result = read(tmp_path / "a.avro").compute()
    assert result.d.dtype.kind == "m"
    assert result.d.to_list() == spans.to_list()


def test_lines_that_are_json_only_if_joined_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_samples, "HEAD", 200)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    between = json.dumps(decoder.SEPARATOR)
    for late in ('{"a": ["x"\n"y"]}\n{"a": "z"}, {"a": 1}', f'{{"a": 1}},{between},{{"a": 2}}'):
        (tmp_path / "a.jsonl").write_text('{"a": "b"}\n' * 100 + late + "\n")
        with pytest.raises(ReadError, match=r"line 101 of the file is not JSON"):
            read(tmp_path / "a.jsonl").compute()


def test_large_floats_and_mixed_values_are_not_decoded_line_by_line(tmp_path, monkeypatch):
    values = [1e18, 2.5, 123456789012345.0, 1e300, -7e20]
    floats = "".join(f'{{"v": {value!r}, "n": 1}}\n' for value in values * 1_000)
    (tmp_path / "floats.jsonl").write_text(floats)
    mixed = ['"a"', "1", "true", "2.50", "[1, {}]", "1e400", "null"]
    (tmp_path / "mixed.jsonl").write_text("".join(f'{{"v": {text}}}\n' for text in mixed * 1_000))
    frames = [read(tmp_path / f"{name}.jsonl") for name in ("floats", "mixed")]
    calls = []
    monkeypatch.setattr(decoder, "parse_object", lambda *_: calls.append(1))
    assert frames[0].v.compute().to_list() == values * 1_000
    df = frames[1].v.compute().astype(object)
    assert df.where(df.notna(), None).to_list() == [
        None if text == "null" else types.to_text(json.loads(text)) for text in mixed * 1_000
    ]
    assert not calls


@pytest.mark.parametrize("late", [f"{2**53 + 1}", f"[{2**63}]", f'{{"x": -{2**60 + 1}}}'])
def test_long_numbers_among_large_floats_are_still_found(tmp_path, monkeypatch, late):
    monkeypatch.setattr(text_samples, "HEAD", 200)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    early = {"[": "[1e18]", "{": '{"x": 1e18}'}.get(late[0], "1e18")
    if late == f"[{2**63}]":
        late = f"[{2**63 + 1}]"
    lines = [f'{{"v": {early}}}'] * 100 + [f'{{"v": {late}}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ReadError, match=r"column 'v' holds .*line 101 of"):
        read(tmp_path / "a.jsonl").compute()
