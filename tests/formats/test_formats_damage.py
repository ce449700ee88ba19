"""Damaged files: an error that names them, or a warning that they are left out."""

from __future__ import annotations

import gzip
import pickle
import warnings

import dask
import fastavro
import pandas as pd
import pytest

from hyperplane.collections.frames.read import read
from hyperplane.errors import HyperplaneError, ReadError, SkippedFile

FRAME = pd.DataFrame({"n": range(5_000), "s": [f"text {i}" for i in range(5_000)]})


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def written(folder, kind):
    path = folder / f"bad.{kind}"
    if kind == "parquet":
        FRAME.to_parquet(path, compression="gzip")
    elif kind == "avro":
        fields = [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]
        with path.open("wb") as file:
            schema = {"type": "record", "name": "r", "fields": fields}
            fastavro.writer(file, schema, FRAME.to_dict("records"), codec="deflate")
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(pd.concat([FRAME] * 20).to_csv(index=False).encode()))
    else:
        FRAME.to_json(path, orient="records", lines=True)
    good = folder / f"good.{kind}"
    good.write_bytes(path.read_bytes())
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def scribble(path):
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = b"\xff" * 300
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [cut, scribble])
@pytest.mark.parametrize("kind", ["parquet", "avro", "csv.gz", "jsonl"])
def test_a_damaged_file_is_named(tmp_path, kind, damage):
    damage(written(tmp_path, kind))
    with pytest.raises(ReadError, match=rf"bad\.{kind}") as caught:
        read(tmp_path).compute()
    assert str(tmp_path / f"bad.{kind}") in caught.value.url
    assert isinstance(caught.value, (HyperplaneError, OSError))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.url) == (str(caught.value), caught.value.url)


def test_the_warning_of_a_skipped_file_names_the_line_of_the_call(tmp_path):
    cut(written(tmp_path, "parquet"))
    with pytest.warns(SkippedFile) as record:
        read(tmp_path, on_error="skip")
    assert [warning.filename for warning in record] == [__file__]


@pytest.mark.parametrize("damage", [cut, scribble])
@pytest.mark.parametrize("kind", ["parquet", "avro", "csv.gz", "jsonl"])
def test_a_damaged_file_is_skipped_with_a_warning(tmp_path, kind, damage):
    damage(written(tmp_path, kind))
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        df = read(tmp_path, on_error="skip").compute()
    messages = [str(w.message) for w in record if issubclass(w.category, SkippedFile)]
    assert messages
    assert f"bad.{kind}" in "".join(messages)
    times = 20 if kind == "csv.gz" else 1
    assert df.n.to_list()[-5:] == FRAME.n.to_list()[-5:]
    assert len(df) >= len(FRAME) * times
    if kind == "parquet" or damage is cut:
        assert len(df) < len(FRAME) * times * 2


def test_all_damaged_files_are_named_and_skipping_all_is_an_error(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1 is all there is")
    with pytest.raises(ReadError, match=r"(?s)a\.parquet.*b\.parquet"):
        read(tmp_path)
    with pytest.raises(ReadError):
        read(tmp_path, on_error="skip")
    (tmp_path / "c.parquet").write_bytes(b"")
    (tmp_path / "d.avro").write_bytes(b"{}")
    with pytest.raises(ReadError, match=r"not an Avro file: it starts with b'{}'"):
        read(tmp_path / "d.avro")
    with pytest.raises(ReadError, match=r"c\.parquet"):
        read(tmp_path / "c.parquet")


def test_a_file_that_changed_since_it_was_planned_is_an_error(tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet")
    planned = read(tmp_path / "a.parquet")
    FRAME.rename(columns={"n": "m"}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ReadError, match=r"a\.parquet"):
        planned.compute()


def test_a_bad_line_skips_only_its_partition(tmp_path):
    lines = FRAME.to_csv(index=False).splitlines()
    lines[4_000] = "1,2,3"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    FRAME.to_csv(tmp_path / "b.csv", index=False)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        df = read(tmp_path, on_error="skip").compute()
    assert len(df) == len(FRAME)
    messages = [str(w.message) for w in record if issubclass(w.category, SkippedFile)]
    assert "Expected 2 columns, got 3" in messages[0]
    assert "correct the line" in messages[0]
    assert "leave out" not in messages[0]


@pytest.mark.parametrize(("kind", "text"), [("csv", "a,b\n1,2\n1,2,3\n"), ("jsonl", "no\n")])
def test_the_advice_to_skip_is_not_given_to_a_call_that_skips(tmp_path, kind, text):
    (tmp_path / f"bad.{kind}").write_text(text)
    with pytest.raises(ReadError, match=r'on_error="skip"'):
        read(tmp_path)
    with pytest.raises(ReadError, match="correct the line") as caught:
        read(tmp_path, on_error="skip").compute()
    assert "leave out" not in str(caught.value)
    good = {"csv": "a,b\n1,2\n", "jsonl": '{"a": 1, "b": 2}\n'}[kind]
    (tmp_path / f"good.{kind}").write_text(good)
    with pytest.warns(SkippedFile, match="correct the line") as record:
        read(tmp_path, on_error="skip").compute()
    assert "leave out" not in str(record[0].message)


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_a_file_of_another_kind_is_an_error_with_a_next_step(tmp_path, kind):
    (tmp_path / f"a.{kind}").write_bytes(b"hello,world\n1,2\n" * 10)
    with pytest.raises(ReadError, match=r"not an (ORC|Avro) file.*pass format="):
        read(tmp_path / f"a.{kind}")
