"""Files that are replaced between ``read`` and ``compute`` are errors that name them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import fsspec
import pandas as pd
import pytest

from hyperplane import shard_rows
from hyperplane.dataframe import read
from hyperplane.errors import ReadError, SkippedFile
from hyperplane.formats.text_samples import find_next_line

SHORT, LONG = "abc", "abcdefghi"


def write_avro(frame: pd.DataFrame, path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]
    with path.open("wb") as opened:
        schema = {"type": "record", "name": "row", "fields": fields}
        fastavro.writer(opened, schema, frame.to_dict("records"), sync_interval=1000)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "parquet": lambda frame, path: frame.to_parquet(path, row_group_size=100),
    "orc": lambda frame, path: frame.to_orc(path),
    "avro": write_avro,
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "csv.gz": lambda frame, path: path.write_bytes(
        gzip.compress(frame.to_csv(index=False).encode())
    ),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


def write(path: Path, text: str, rows: int = 1000) -> Path:
    frame = pd.DataFrame({"n": range(rows), "s": [f"{text} {n}" for n in range(rows)]})
    WRITERS[path.name.partition(".")[2]](frame, path)
    return path


def read_any(path: Path, where: str, **options: Any) -> Any:
    """Read a local file, or its copy in a memory store."""
    return read(str(path) if where == "disk" else copy(path), **options)


def copy(path: Path) -> str:
    url = f"memory://replaced/{path.name}"
    with fsspec.open(url, "wb") as opened:
        opened.write(path.read_bytes())
    return url


@pytest.mark.parametrize("where", ["disk", "store"])
@pytest.mark.parametrize(("before", "after"), [(SHORT, LONG), (LONG, SHORT)], ids=["long", "short"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_replaced_by_another_is_an_error(
    tmp_path: Path, kind: str, before: str, after: str, where: str
) -> None:
    path = write(tmp_path / f"a.{kind}", before)
    planned = read_any(path, where)
    assert len(planned) == 1000
    size = path.stat().st_size
    write(path, after)
    copy(path)
    with pytest.raises(ReadError, match=r"a\..* when the read was planned|a\..*header has") as e:
        planned.compute()
    assert path.name in e.value.url
    if where == "disk":
        assert f"it had {size} bytes" in str(e.value)
        assert f"now has {path.stat().st_size} bytes; read it again" in str(e.value)
    assert len(read_any(path, where)) == 1000


@pytest.mark.parametrize("kind", WRITERS)
def test_a_removed_file_is_an_error_that_says_so(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"a.{kind}", SHORT)
    planned = read(str(path))
    path.unlink()
    with pytest.raises(
        ReadError, match=rf"/a\.{kind}: .*no longer there; read it again$"
    ) as caught:
        planned.compute()
    assert caught.value.url == str(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_replaced_file_is_skipped_with_a_warning(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"a.{kind}", SHORT)
    write(tmp_path / f"b.{kind}", SHORT)
    planned = read(str(tmp_path), on_error="skip", partition_size=None)
    write(path, LONG)
    with pytest.warns(SkippedFile, match=r"a\..* when the read was planned"):
        assert len(planned.compute()) == 1000


@pytest.mark.parametrize("where", ["disk", "store"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "avro"])
def test_rows_appended_after_the_plan_are_not_read(tmp_path: Path, kind: str, where: str) -> None:
    path = write(tmp_path / f"a.{kind}", SHORT)
    planned = read_any(path, where)
    if kind == "avro":
        fastavro = pytest.importorskip("fastavro")
        with path.open("a+b") as opened:
            fastavro.writer(opened, None, [{"n": -1, "s": "later"}])
    else:
        with path.open("a") as opened:
            opened.write("-1,later\n" if kind == "csv" else '{"n": -1, "s": "later"}\n')
    copy(path)
    assert planned.compute()["n"].to_list() == list(range(1000))
    assert read_any(path, where).compute()["n"].to_list() == [*range(1000), -1]


@pytest.mark.parametrize("where", ["disk", "store"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_appended_after_a_last_line_without_line_end_are_not_read(
    tmp_path: Path, kind: str, line_end: str, where: str
) -> None:
    path = write(tmp_path / f"a.{kind}", SHORT)
    path.write_bytes(path.read_bytes().strip().replace(b"\n", line_end.encode()))
    planned = read_any(path, where)
    later = "-1,later" if kind == "csv" else '{"n": -1, "s": "later"}'
    with path.open("ab") as opened:
        opened.write(f"{line_end}{later}".encode())
    copy(path)
    assert planned.compute()["n"].to_list() == list(range(1000))


@pytest.mark.parametrize("where", ["disk", "store"])
def test_a_last_line_that_has_grown_is_an_error(tmp_path: Path, where: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n1")
    planned = read_any(path, where)
    path.write_text("n\n1\n12\n")
    copy(path)
    with pytest.raises(ReadError, match="when the read was planned, and now has"):
        planned.compute()


def test_rows_of_a_file_that_was_empty_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", SHORT)
    (tmp_path / "b.jsonl").touch()
    planned = read(tmp_path)
    write(tmp_path / "b.jsonl", SHORT)
    assert len(planned.compute()) == 1000
    assert len(read(tmp_path).compute()) == 2000


@pytest.mark.parametrize("kind", WRITERS)
def test_an_outdated_size_of_a_file_that_is_not_open_is_not_an_error(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / f"a.{kind}", SHORT)
    old = path.stat()
    planned = read(write(path, LONG))
    find = Path.stat

    def find_old(self: Path, **options: Any) -> Any:
        return old if self == path else find(self, **options)

    monkeypatch.setattr(Path, "stat", find_old)
    assert planned.compute()["s"].iloc[-1] == f"{LONG} 999"


@pytest.mark.parametrize("where", ["disk", "store"])
def test_a_longer_file_with_a_line_end_at_the_old_end_is_an_error(
    tmp_path: Path, where: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "1\n" * 100)
    planned = read_any(path, where)
    path.write_text("n\n" + "2\n" * 200)
    copy(path)
    with pytest.raises(ReadError, match="when the read was planned, and now has"):
        planned.compute()


def test_a_range_that_ends_before_the_file_is_checked_on_disk(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", SHORT, rows=100_000)
    planned = read(path, partition_size="100kB")
    assert planned.npartitions > 3
    write(path, LONG, rows=100_000)
    with pytest.raises(ReadError, match="when the read was planned"):
        planned.partitions[1].compute()


def test_the_same_content_with_another_time_is_read(tmp_path: Path) -> None:
    for kind in WRITERS:
        path = write(tmp_path / f"a.{kind}", SHORT)
        planned = read(path)
        path.write_bytes(path.read_bytes())
        assert len(planned.compute()) == 1000


def test_a_file_truncated_while_a_shard_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv", SHORT)

    def find_and_cut(*arguments: Any) -> int:
        start = find_next_line(*arguments)
        path.write_bytes(path.read_bytes()[:-10])
        return start

    monkeypatch.setattr("hyperplane.formats.text_samples.find_next_line", find_and_cut)
    with pytest.raises(ReadError, match="when the read was planned"):
        shard_rows(path, 2, 1, multiline=False)
