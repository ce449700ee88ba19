"""JSON lines: the values of the lines, however files are divided."""

from __future__ import annotations

import json

import dask
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.read import read
from hyperplane.errors import ReadError, RequestError
from hyperplane.formats import partition_sizes, text_samples

VALUES = {
    "whole": st.integers(-(2**62), 2**62),
    "real": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "text": st.none() | st.text(max_size=5),
    "truth": st.none() | st.booleans(),
    "list": st.lists(st.integers(0, 9), max_size=3),
    "inner": st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text(max_size=2)}),
}


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def plain(value):
    if isinstance(value, dict):
        return value
    if hasattr(value, "__len__") and not isinstance(value, str):
        return list(value)
    return None if pd.isna(value) else value


@settings(max_examples=scaled(12, 60), suppress_health_check=list(HealthCheck))
@given(data=st.data(), parts=st.sampled_from([1, 2, 7]))
def test_any_lines_are_read_as_they_are(tmp_path_factory, monkeypatch, data, parts):
    folder = tmp_path_factory.mktemp("json")
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    row = st.fixed_dictionaries({}, optional={name: VALUES[name] for name in names})
    records = [{"id": 0, **dict.fromkeys(names)}]
    for number in range(data.draw(st.integers(1, 3))):
        chosen = data.draw(st.lists(row, max_size=8))
        records_here = (records if number == 0 else []) + chosen
        write(folder / f"{number}.jsonl", records_here)
        records = [*records, *chosen]
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    df = read(folder, partition_size=max(1, len(records) * 40 // parts))
    ours = df.compute()
    assert ours.dtypes.equals(df.dtypes)
    assert len(ours) == len(records)
    for name in df.columns:
        assert [plain(value) for value in ours[name].tolist()] == [
            record.get(name) for record in records
        ], name


def test_types_projection_filters_and_times(tmp_path):
    write(
        tmp_path / "a.jsonl",
        [
            {"n": 1, "x": 1, "s": "a", "b": True, "t": "2024-01-01T10:00:00Z", "mixed": 1},
            {"n": 2, "x": 2.5, "s": None, "b": False, "t": None, "mixed": "two"},
        ],
    )
    df = read(tmp_path / "a.jsonl", parse_dates=["t"])
    assert {name: str(dtype) for name, dtype in df.dtypes.items()} == {
        "n": "int64",
        "x": "float64",
        "s": "str",
        "b": "bool",
        "t": "datetime64[us, UTC]",
        "mixed": "str",
    }
    assert df.compute().mixed.to_list() == ["1", "two"]
    selected = read(tmp_path / "a.jsonl", ["t"], [("x", "<", 2)], parse_dates=["t"]).compute()
    assert selected.t.to_list() == [pd.Timestamp("2024-01-01 10:00", tz="UTC")]


def test_a_large_file_is_divided_between_lines(tmp_path, monkeypatch):
    frame = pd.DataFrame({"n": range(5_000), "s": ["ä\n" * (i % 9) for i in range(5_000)]})
    frame.to_json(tmp_path / "a.json", orient="records", lines=True)
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    df = read(tmp_path / "a.json", partition_size="10kB")
    assert df.npartitions > 5
    ours = df.compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, frame, check_dtype=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"n": 2.5}', r"'n' holds 2\.5.*line 401 .*dtypes={'n': 'float64'}"),
        ('{"n": "x"}', r"'n' holds 'x'.*dtypes={'n': 'str'}"),
        ('{"n": 1', "line 401 .*not JSON"),
        ("[1]", "line 401 .*not a JSON object"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, monkeypatch, line, message):
    monkeypatch.setattr(text_samples, "HEAD", 400)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n' * 400 + line + "\n" + '{"n": 1}\n')
    with pytest.raises(ReadError, match=message):
        read(tmp_path / "a.jsonl").compute()


def test_files_without_objects_are_refused(tmp_path):
    (tmp_path / "a.json").write_text('[{"n": 1}]')
    with pytest.raises(ReadError, match="JSON array"):
        read(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("")
    with pytest.raises(RequestError, match="JSON objects"):
        read(tmp_path / "b.json")
