"""Files of artifacts: only the recorded one is opened. Previews of them are small and harmless."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from artifact_cases import NASTY, PNG, SVG, make_artifact, notebook
from html_pages import read_page
from job_cases import bash

from hyperplane.jobs import Artifact, Pipeline, parquet_previews, parquet_process
from hyperplane.jobs.artifact_files import ArtifactUnavailable, open_artifact
from hyperplane.jobs.artifact_html import MOST_ARTIFACTS, render_artifacts, render_preview
from hyperplane.jobs.artifact_previews import (
    CELL_LENGTH,
    COLUMNS,
    PICTURE_BYTES,
    ROWS,
    TEXT_BYTES,
    NoPreview,
    NotebookPreview,
    PicturePreview,
    TablePreview,
    TextPreview,
    read_preview,
)
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_html import render_job
from hyperplane.jobs.notebook_steps.notebook_html import render_notebook

pytestmark = pytest.mark.process


@pytest.fixture
def job(tmp_path):
    return new_job(Pipeline.from_steps("p", [bash("one", "true")], root=str(tmp_path)))


@pytest.fixture
def write(job, tmp_path):
    """Write a file, and return its record."""

    def write_file(name, content, **fields):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return make_artifact(job, path, **fields)

    return write_file


def read_all(artifact):
    with open_artifact(artifact) as opened:
        return opened.read()


def test_a_recorded_file_is_opened(write):
    assert read_all(write("a.txt", b"mine")) == b"mine"


def swap_file(path, secret):
    path.unlink()
    path.symlink_to(secret)


def swap_folder(path, secret):
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(secret.parent)


def move_folder(path, secret):
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(path.parent.with_name("moved"))


def overwrite(path, secret):
    path.write_bytes(b"else")


def replace_file(path, secret):
    status = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"else")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def remove(path, secret):
    path.unlink()


def make_pipe(path, secret):
    path.unlink()
    os.mkfifo(path)


def make_folder(path, secret):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "change",
    [
        swap_file, swap_folder, move_folder, overwrite, replace_file, remove, make_pipe, make_folder
    ],
)  # fmt: skip
def test_another_file_in_its_place_is_never_opened(write, tmp_path, change):
    artifact = write("a.txt", b"mine")
    secret = tmp_path / "private" / "a.txt"
    secret.parent.mkdir()
    secret.write_bytes(b"hunt")
    change(tmp_path / "data" / "a.txt", secret)
    with pytest.raises(ArtifactUnavailable):
        read_all(artifact)
    assert isinstance(read_preview(artifact), NoPreview)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "/etc/passwd"},
        {"url": "s3://bucket/a.txt"},
        {"url": "relative.txt"},
        {"url": "/"},
        {"url": "/a\0b"},
        {"identity": ""},
        {"identity": "1:2"},
        {"identity": "x:y:z:"},
        {"identity": "1:2:3:../../../etc/passwd"},
        {"identity": "1:2:3:/etc/passwd"},
    ],
)
def test_a_record_of_another_path_opens_nothing(write, fields):
    with pytest.raises(ArtifactUnavailable):
        read_all(replace(write("a.txt", b"mine"), **fields))


def test_a_path_with_dots_is_not_opened(write, tmp_path):
    artifact = write("a.txt", b"mine")
    dotted = f"{tmp_path}/data/../data/a.txt"
    with pytest.raises(ArtifactUnavailable):
        read_all(replace(artifact, url=dotted))


def write_parquet(path, table, **options):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def test_the_first_rows_of_parquet_are_shown(job, tmp_path):
    frame = {f"c{number}": range(1000) for number in range(30)}
    path = write_parquet(tmp_path / "a.parquet", pa.table({**frame, "c1": ["x" * 500] * 1000}))
    preview = read_preview(make_artifact(job, path))
    assert isinstance(preview, TablePreview)
    assert preview.titles == [f"c{number}" for number in range(COLUMNS)]
    assert len(preview.rows) == ROWS
    assert preview.rows[3][:2] == ["3", "x" * CELL_LENGTH + "…"]
    assert preview.note == "1,000 rows, 30 columns, of which 20 are shown"


def test_large_cells_of_parquet_are_not_read(job, tmp_path):
    table = pa.table({"day": [1, 2], "scan": [b"\0" * 20_000_000, os.urandom(20_000_000)]})
    path = write_parquet(tmp_path / "a.parquet", table, use_dictionary=False)
    preview = read_preview(make_artifact(job, path))
    assert preview.titles == ["day", "scan"]
    assert preview.rows == [["1", "(binary)"], ["2", "(binary)"]]


def write_long_list(path):
    array = pa.ListArray.from_arrays([0, 4_000_000], pa.array(np.zeros(4_000_000)))
    write_parquet(path, pa.table({"day": [1], "x": array}), compression="zstd")


def write_later_groups(path):
    schema = pa.schema({"day": pa.int64(), "x": pa.string()})
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        writer.write_table(pa.table({"day": [1], "x": ["a"]}))
        writer.write_table(pa.table({"day": [1] * 9, "x": ["y" * 4_000_000] * 9}))


def write_first_cell(path):
    write_parquet(path, pa.table({"day": [1] * 10_000, "x": ["y" * 40_000_000, *["z"] * 9_999]}))


def write_dictionary(path):
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 20, "int32"), ["y" * 40_000_000])
    table = pa.table({"day": [1] * 20, "x": values})
    write_parquet(path, table, dictionary_pagesize_limit=100_000_000, store_schema=False)


def write_prefixes(path):
    table = pa.table({"day": [1] * 20, "x": ["y" * 4_000_000] * 20})
    encodings = {"day": "PLAIN", "x": "DELTA_BYTE_ARRAY"}
    write_parquet(path, table, use_dictionary=False, column_encoding=encodings)


@pytest.mark.parametrize(
    "write_file",
    [write_long_list, write_later_groups, write_first_cell, write_dictionary, write_prefixes],
)
def test_columns_that_may_take_much_memory_are_not_read(job, tmp_path, monkeypatch, write_file):
    path = tmp_path / "a.parquet"
    write_file(path)
    read = []
    monkeypatch.setattr(
        parquet_previews,
        "_read_column",
        lambda file, groups, name, rows, _: read.append(name) or [name] * rows,
    )
    with path.open("rb") as opened:
        first = parquet_previews.read_first_rows(opened, ROWS, COLUMNS, CELL_LENGTH)
    assert read == ["day"]
    assert first["columns"][1][0] in ("(string)", "(list<element: double>)")


def to_varint(value, length=0):
    """Return a number as Thrift writes it, in at least as many bytes as are given."""
    value, data = 2 * value, []
    while value >= 128 or len(data) + 1 < length:
        data.append(value % 128 + 128)
        value //= 128
    return bytes([*data, value])


def write_false_footer(path):
    """Write a small file with a cell of 400 MB that its footer states as 1 kB."""
    table = pa.table({"day": [1], "x": pa.array(["y" * 400_000_000])})
    options = {"use_dictionary": False, "write_statistics": False, "compression": "zstd"}
    write_parquet(path, table, **options)
    size = pq.read_metadata(path).row_group(0).column(1).total_uncompressed_size
    assert size > 400_000_000
    true = to_varint(size)
    data, start = path.read_bytes(), -8 - int.from_bytes(path.read_bytes()[-8:-4], "little")
    footer = data[start:].replace(true, to_varint(1000, len(true)))
    assert footer != data[start:]
    path.write_bytes(data[:start] + footer)
    assert pq.read_metadata(path).row_group(0).column(1).total_uncompressed_size == 1000


@pytest.mark.slow
def test_a_false_footer_takes_no_more_memory(job, tmp_path):
    path = tmp_path / "a.parquet"
    write_false_footer(path)
    assert path.stat().st_size < 100_000
    script = (
        "import resource, sys\n"
        "from hyperplane.jobs.parquet_process import PreviewFailed, read_first_rows\n"
        "try:\n"
        "    read_first_rows(open(sys.argv[1], 'rb'), 10, 20, 80)\n"
        "except PreviewFailed as error:\n"
        "    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    )
    reason, *kilobytes = completed.stdout.splitlines()
    assert reason.endswith("as reading it takes more than 200 MB of memory")
    assert max(map(int, kilobytes)) < 300_000
    assert read_preview(make_artifact(job, path)) == NoPreview(reason)


def test_rows_of_a_file_are_read_once(job, tmp_path, monkeypatch):
    started = []
    run = subprocess.run
    monkeypatch.setattr(
        parquet_process.subprocess, "run", lambda *a, **k: started.append(a) or run(*a, **k)
    )
    path = write_parquet(tmp_path / "a.parquet", pa.table({"day": [1]}))
    previews = [read_preview(make_artifact(job, path)) for _ in range(3)]
    assert [each.rows for each in previews] == [[["1"]]] * 3
    assert len(started) == 1
    write_parquet(path, pa.table({"day": [23]}))
    assert read_preview(make_artifact(job, path)).rows == [["23"]]


@pytest.mark.parametrize("outcome", ["killed", "late", "busy"])
def test_a_reader_that_does_not_answer_is_no_preview(job, tmp_path, monkeypatch, outcome):
    program = tmp_path / "program.py"
    ends = {
        "killed": "import os; os.abort()", "late": "import time; time.sleep(99)",
        "busy": "import os, signal; os.kill(os.getpid(), signal.SIGXCPU)",
    }  # fmt: skip
    program.write_text(ends[outcome])
    monkeypatch.setattr(parquet_process, "_PROGRAM", program)
    monkeypatch.setattr(parquet_process, "_SECONDS", 0.5 if outcome == "late" else 60)
    path = write_parquet(tmp_path / "a.parquet", pa.table({"day": [1]}))
    reason = read_preview(make_artifact(job, path)).reason
    assert reason.endswith("of memory" if outcome == "killed" else "takes too long")


def test_values_of_a_dictionary_are_read_once(job, tmp_path):
    large = pa.DictionaryArray.from_arrays(pa.array([0] * 20, "int32"), ["y" * 10_000_000])
    path = tmp_path / "a.parquet"
    options = {"dictionary_pagesize_limit": 100_000_000, "store_schema": False}
    write_parquet(path, pa.table({"x": large}), **options)
    preview = read_preview(make_artifact(job, path))
    assert preview.rows == [["y" * CELL_LENGTH + "…"]] * ROWS


def test_columns_of_all_types_are_shown(job, tmp_path):
    table = pa.table(
        {
            "text": ["a", None],
            "large": pa.array(["b", "c"], pa.large_string()),
            "choice": pa.array(["d", "d"]).dictionary_encode(),
            "bytes": [b"e", b"f"],
            "flag": [True, False],
            "price": pa.array([1, 2], pa.decimal128(10, 2)),
            "time": pa.array([0, 1], pa.timestamp("ms", "UTC")),
            "nanoseconds": pa.array([1_500, None], pa.timestamp("ns")),
            "zone": pa.array([1_500, 0], pa.timestamp("ns", "Europe/Berlin")),
            "duration": pa.array([2_001, None], pa.duration("ns")),
            "clock": pa.array([1_999, None], pa.time64("ns")),
            "date": pa.array([1, None], pa.date32()),
            "half": pa.array([1.5, None], pa.float16()),
            "none": pa.nulls(2),
            "pair": [{"x": 1}, {"x": 2}],
            "a": [1, 2],
            "a.b": [3, 4],
        }
    )
    preview = read_preview(make_artifact(job, write_parquet(tmp_path / "a.parquet", table)))
    assert preview.titles == table.column_names
    assert preview.rows[0] == [
        "a", "b", "d", "b'e'", "True", "1.00", "1970-01-01 00:00:00+00:00",
        "1970-01-01 00:00:00.000001", "1970-01-01 01:00:00.000001+01:00", "0:00:00.000002",
        "00:00:00.000001", "1970-01-02", "1.5", "",
        "(struct<x: int64>)", "(int64)", "3",
    ]  # fmt: skip
    assert preview.rows[1][0] == ""


DELTA = ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]


@pytest.mark.parametrize("encoding", DELTA)
def test_columns_with_delta_encodings_are_shown(job, tmp_path, encoding):
    table = pa.table({"day": [1, 2, 3], "name": ["abc", "abd", None], "plain": ["x", "y", "z"]})
    path = tmp_path / "a.parquet"
    encodings = {"day": "DELTA_BINARY_PACKED", "name": encoding, "plain": "PLAIN"}
    write_parquet(path, table, use_dictionary=False, column_encoding=encodings)
    preview = read_preview(make_artifact(job, path))
    assert preview.rows == [["1", "abc", "x"], ["2", "abd", "y"], ["3", "", "z"]]


def test_files_of_duckdb_in_version_2_are_shown(job, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "a.parquet"
    options = "FORMAT parquet, PARQUET_VERSION V2, DICTIONARY_SIZE_LIMIT 1"
    duckdb.sql(
        f"copy (select 'name ' || n as name, n from range(1000) t(n)) to '{path}' ({options})"
    )
    assert set(DELTA) & set(pq.read_metadata(path).row_group(0).column(0).encodings)
    preview = read_preview(make_artifact(job, path))
    assert preview.rows == [[f"name {n}", str(n)] for n in range(ROWS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "size", "texts"),
    [
        ("DELTA_BYTE_ARRAY", 2_900_000, ["y"] * 20),
        ("DELTA_LENGTH_BYTE_ARRAY", 1_500_000, [chr(97 + number) for number in range(20)]),
    ],
)
def test_large_cells_with_delta_encodings_are_within_the_memory(
    job, tmp_path, encoding, size, texts
):
    path = tmp_path / "a.parquet"
    table = pa.table({"x": [text * size for text in texts]})
    write_parquet(path, table, use_dictionary=False, column_encoding=encoding)
    preview = read_preview(make_artifact(job, path))
    assert preview.rows == [[text * CELL_LENGTH + "…"] for text in texts[:ROWS]]


def test_a_column_that_cannot_be_read_leaves_the_others(job, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"day": [1, 2], "name": ["abc", "abd"]})
    write_parquet(path, table, use_dictionary=False, compression="none")
    data = path.read_bytes()
    assert data.count(b"abc") == data.count(b"\3\0\0\0abc") + 2  # two more in the statistics
    path.write_bytes(data.replace(b"\3\0\0\0abc", b"\3\0\0\7abc"))
    preview = read_preview(make_artifact(job, path))
    assert preview.rows == [[day, "(string, not readable)"] for day in "12"]


def test_a_footer_that_is_too_large_is_not_read(write):
    content = b"PAR1" + b"\0" * 100 + (9_000_000).to_bytes(4, "little") + b"PAR1"
    assert "ValueError" in read_preview(write("a.parquet", content)).reason


def test_rows_of_several_groups_are_shown(job, tmp_path):
    table = pa.table({"day": range(20)})
    path = write_parquet(tmp_path / "a.parquet", table, row_group_size=3)
    preview = read_preview(make_artifact(job, path))
    assert preview.rows == [[str(day)] for day in range(ROWS)]
    assert preview.note == "20 rows, 1 column"


def test_tables_without_rows_or_columns_are_shown(job, tmp_path):
    path = write_parquet(tmp_path / "a.parquet", pa.table({"day": pa.array([], pa.int64())}))
    assert read_preview(make_artifact(job, path))[:2] == (["day"], [])
    path = write_parquet(tmp_path / "b.parquet", pa.table({}))
    assert read_preview(make_artifact(job, path))[:2] == ([], [])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", 'a,b\n1,"x, y"\n2,z\n', (["a", "b"], [["1", "x, y"], ["2", "z"]])),
        ("a.csv", "\ufeffa;b\r\n1;2\r\n", (["a", "b"], [["1", "2"]])),
        ("a.tsv", "a\tb,c\n1\t2\n", (["a", "b,c"], [["1", "2"]])),
        ("a.csv", "a\n1,2\n", (["a", ""], [["1", "2"]])),
    ],
)
def test_the_first_rows_of_separated_values_are_shown(write, name, content, expected):
    assert read_preview(write(name, content.encode()))[:2] == expected


def test_of_a_long_file_with_separated_values_only_the_beginning_is_read(write):
    rows = "".join(f"{number},{'x' * 200}\n" for number in range(5000))
    preview = read_preview(write("a.csv", b"n,x\n" + rows.encode()))
    assert len(preview.rows) == ROWS
    assert all(len(cell) <= CELL_LENGTH + 1 for row in preview.rows for cell in row)
    wide = ",".join(map(str, range(1000)))
    assert len(read_preview(write("b.csv", wide.encode())).titles) == COLUMNS
    assert len(read_preview(write("c.csv", b"x" * 1_000_000)).titles[0]) <= CELL_LENGTH + 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b""),
        ("a.parquet", b"PAR1 and no more"),
        ("a.csv", b""),
        ("a.ipynb", b"{"),
        ("a.ipynb", b"[" * 100_000),
        ("a.ipynb", b'{"cells": 3}'),
        ("a.ipynb", b"[]"),
        ("a.png", b"<html><script>alert(1)</script>"),
        ("a.svg", b"<html>"),
        ("a.webp", b"RIFFxxxxAVI "),
        ("a.png", b"\x89PNG\r\n\x1a\n" + b"x" * PICTURE_BYTES),
        ("a.npy", b"\x93NUMPY"),
        ("a.html", b"<script>alert(1)</script>"),
        ("a.zip", b"PK"),
    ],
)
def test_what_is_damaged_or_of_another_kind_has_a_reason(write, name, content):
    preview = read_preview(write(name, content))
    assert isinstance(preview, NoPreview)
    assert preview.reason


def test_texts_are_shortened(write):
    assert read_preview(write("a.txt", b"x\xff")) == TextPreview("x\ufffd")
    long = read_preview(write("b.json", b"y" * 100_000))
    assert len(long.text) == TEXT_BYTES
    assert long.note
    output = Artifact("3f0c", "one", -1, 1, "output", "output")
    assert read_preview(output, "42") == TextPreview("42")
    assert len(read_preview(output, "z" * 100_000).text) == TEXT_BYTES


def test_pictures_are_known_by_their_content(write):
    assert read_preview(write("a.png", PNG)) == PicturePreview(PNG, "image/png")
    assert read_preview(write("a.svg", SVG)) == PicturePreview(SVG, "image/svg+xml")
    assert read_preview(write("b.png", SVG)) == NoPreview("it is no picture")


def read_html(content):
    """Read HTML strictly, in which only pictures that are part of it may be."""
    root = ET.fromstring(f"<div>{content}</div>")
    for element in root.iter():
        assert element.tag in ("div", "pre", "img", "table", "thead", "tbody", "tr", "th", "td")
        assert set(element.attrib) <= {"class", "src", "alt"}
        assert element.get("src", "data:image/").startswith("data:image/")
    return "".join(root.itertext()), [each.get("src") for each in root.iter("img")]


def test_a_notebook_is_shown_without_scripts(write):
    picture = base64.b64encode(PNG).decode()
    html = {"text/html": ["<script>alert(2)</script>"], "text/plain": ["<table>", " of 3 rows"]}
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["\x1b[31mred\x1b[0m\n", NASTY]},
        {"output_type": "display_data", "data": {"image/png": picture, "text/plain": "<Figure>"}},
        {"output_type": "display_data", "data": {"image/svg+xml": SVG.decode()}},
        {"output_type": "execute_result", "data": html},
        {"output_type": "display_data", "data": {"application/javascript": "alert(3)"}},
        {"output_type": "error", "ename": "E", "traceback": ["\x1b[0;31mValueError", "line 2"]},
    ]
    preview = read_preview(write("a.ipynb", notebook(*outputs)))
    assert isinstance(preview, NotebookPreview)
    text, pictures = read_html(render_preview(preview, "a.ipynb"))
    assert pictures == [f"data:image/png;base64,{picture}"]
    for expected in ("# Delays", NASTY, "In [3]:", "plot()", "red", "<table> of 3 rows", "line 2"):
        assert expected in text
    for hidden in ("alert(2)", "alert(3)", 'onload="alert', "\x1b"):
        assert hidden not in text


@pytest.mark.parametrize(
    "cells",
    [
        [None, 3, "x", {}, {"cell_type": "code"}, {"cell_type": 7, "source": 3}],
        [{"cell_type": "code", "source": {"a": 1}, "outputs": "x", "execution_count": "<b>"}],
        [{"cell_type": "code", "source": [1, "x"], "outputs": [None, {}, {"data": []}]}],
        [{"cell_type": "code", "outputs": [{"data": {"image/png": "%%%", "text/plain": 3}}]}],
        [{"cell_type": "code", "outputs": [{"data": {"image/png": ['"><script>'] * 3}}]}],
    ],
)
def test_cells_that_are_none_are_no_error(cells):
    read_html(render_notebook({"cells": cells}))


def test_a_large_notebook_is_shortened():
    picture = base64.b64encode(os.urandom(1_000_000)).decode()
    outputs = [{"output_type": "display_data", "data": {"image/png": picture}}] * 10
    cells = [{"cell_type": "code", "source": "x" * 1_000_000, "outputs": outputs}] * 300
    content = render_notebook({"cells": cells})
    assert len(content) < 8_000_000
    assert "and 200 more cells" in content


def test_a_notebook_with_many_outputs_is_shortened():
    output = {"output_type": "stream", "name": "stdout", "text": "<"}
    content = render_notebook({"cells": [{"cell_type": "code", "outputs": [output] * 300_000}]})
    assert len(content) < 10_000
    assert "and 299900 more outputs" in content
    output = {**output, "text": "x" * 20_000}
    cell = {"cell_type": "code", "source": "plot()", "outputs": [output] * 90}
    content = render_notebook({"cells": [cell] * 150})
    assert len(content) < 1_100_000
    assert "and 80 more outputs" in content
    assert "and 148 more cells" in content
    assert content.count("<div") == content.count("</div>")
    picture = base64.b64encode(b"x" * 1000).decode()
    output = {"output_type": "display_data", "data": {"image/png": picture}}
    content = render_notebook({"cells": [{**cell, "outputs": [output] * 90}] * 200})
    assert len(content) < 5_000_000


def test_artifacts_are_shown_in_a_notebook(write, job, tmp_path):
    frame = pd.DataFrame({NASTY: [NASTY, "fine"]})
    frame.to_parquet(tmp_path / "a.parquet")
    artifacts = [
        make_artifact(job, tmp_path / "a.parquet", rows=2),
        write("plot.png", PNG),
        write("unsafe.svg", SVG),
        write("big.png", b"\x89PNG\r\n\x1a\n" + b"x" * 300_000),
        Artifact(job.id, NASTY, 7, 1, NASTY, "file", url="javascript:alert(1)", created=1e300),
        Artifact(job.id, "two", -1, 1, "x.csv", "table", url="https://host/x.csv"),
    ]
    for content in (render_artifacts(artifacts), render_job(job, [], artifacts=artifacts)):
        page = read_page(content)
        assert page.text.count(NASTY) >= 3
        assert page.links["x.csv"] == "https://host/x.csv"
        assert NASTY not in page.links
        assert content.count("<img ") == 2
        assert 'src="data:image/svg+xml;base64,' in content
        assert f"{NASTY} [7]" in page.cells
    assert "no artifacts" in render_artifacts([])


def test_of_many_artifacts_the_first_are_shown(job):
    many = [Artifact(job.id, "one", -1, 1, f"{number}.csv", "table") for number in range(1000)]
    content = render_artifacts(many)
    assert f"and {1000 - MOST_ARTIFACTS} more artifacts" in content
    assert len(content) < 30_000
    read_page(content)


EPOCH = "1970-01-01 00:00:00"
NO_ZONE = "(timestamp[ms, tz=x/y], not readable)"


def invalid_text(texts):
    """Return a column of texts from bytes that need not be UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([0, 2**61], pa.timestamp("us")), [EPOCH, "(timestamp[us], not readable)"]),
        (pa.array([2**30, 0], pa.date32()), ["(date32[day], not readable)", "1970-01-01"]),
        (pa.array([0, 2**62], pa.timestamp("ns")), [EPOCH, "2116-02-20 23:53:38.427387"]),
        (invalid_text([b"a", b"\xff\xfe"]), ["a", "(string, not readable)"]),
        (pa.array([0] * 2, pa.timestamp("ms", "x/y")), [NO_ZONE] * 2),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_be_read_leaves_the_others(job, tmp_path, values, texts):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"good": [1, 2], "bad": values}), path)
    preview = read_preview(make_artifact(job, path))
    shown = [text[:CELL_LENGTH] for text in texts]
    assert preview.rows == [["1", shown[0]], ["2", shown[1]]]


def test_a_preview_obeys_lower_limits_of_the_system(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"good": ["a"]}), path)
    program = (
        "import resource, sys\n"
        "from hyperplane.jobs.parquet_process import read_first_rows\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (15, 15))\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"print(read_first_rows(open({str(path)!r}, 'rb'), 10, 20, 50).columns)\n"
    )
    command = [sys.executable, "-c", program]
    completed = subprocess.run(command, capture_output=True, check=True, text=True)
    assert completed.stdout == "[['a']]\n"
