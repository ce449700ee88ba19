"""The structure of graphs: what it tells apart, and what it leaves out."""

from __future__ import annotations

import os
import subprocess
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.forecasts.collection_graph import materialize
from hyperplane.guard import graph_structure
from hyperplane.guard.graph_structure import (
    SourceSizes,
    find_paths,
    find_sources,
    find_structure,
)


def structure(collection):
    return find_structure(materialize(collection, {}).tasks)


def sources(collection):
    tasks = materialize(collection, {}).tasks.values()
    return SourceSizes([node for node in tasks if not node.dependencies])


def numbers(rows, columns=100, chunk=10):
    return da.ones((rows, columns), chunks=(chunk, columns))


def test_the_number_of_partitions_does_not_count():
    # A reduction of 100 chunks has levels that one of 20 does not have.
    found = {structure((numbers(rows) + 1).sum()) for rows in (20, 70, 1000)}
    assert len(found) == 1
    assert found != {""}


def test_another_operation_another_order_and_another_chunk_are_other_structures():
    found = [
        structure(each)
        for each in (
            (numbers(200) + 1).sum(),
            (numbers(200) + 1).mean(),
            (numbers(200).sum(axis=0) + 1).sum(),
            (numbers(200, chunk=20) + 1).sum(),
            (numbers(200, columns=50) + 1).sum(),
        )
    ]
    assert len(set(found)) == 5


def test_a_save_has_the_structure_of_others_and_reads_the_files_of_its_collection(tmp_path):
    for part in range(4):
        pd.DataFrame({"key": range(1000)}).to_parquet(tmp_path / f"{part}.parquet")
    table = dd.read_parquet(tmp_path)
    calls = [
        hyperplane.save(rows, f"memory://structure/{name}", compute=False)
        for rows, name in ((table, "a"), (table, "b"), (table.assign(n=1), "a"))
    ]
    found = [structure(later) for later in calls]
    assert found[0] == found[1] != found[2]
    nodes = materialize(calls[0], {}).tasks
    numbered = sorted(str(node.key).rpartition("-")[2] for node in find_sources(nodes))
    assert numbered == ["0", "1", "2", "3"]
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert SourceSizes(find_sources(nodes)).measure() == size
    assert find_sources(materialize(table, {}).tasks)


def make_rows(shape):
    return pd.DataFrame(np.ones(shape), columns=["a", "b"])


def test_tables_of_other_shapes_that_are_made_and_saved_are_other_structures():
    found = []
    for rows in (10, 20):
        table = dd.from_map(make_rows, [(rows, 2)] * 3, meta=make_rows((0, 2)))
        found.append(structure(hyperplane.save(table, "memory://structure/c", compute=False)))
    assert found[0] != found[1]


def frame(path, column="key", how="sum", function=None):
    table = dd.read_parquet(path)
    if function is not None:
        table = table.map_partitions(function, meta=table._meta)
    return getattr(table.groupby(column).value, how)()


@pytest.fixture
def folders(tmp_path):
    for name, files in (("first", 3), ("second", 5)):
        (tmp_path / name).mkdir()
        for part in range(files):
            table = pd.DataFrame({"key": [1, 2], "other": [1, 2], "value": [1.0, 2.0]})
            table.to_parquet(tmp_path / name / f"part-{part}.parquet")
    return [str(tmp_path / name) for name in ("first", "second")]


def test_names_of_files_do_not_count_and_columns_do(folders):
    first, second = folders
    assert structure(frame(first)) == structure(frame(second))
    assert structure(frame(first)) != structure(frame(first, "other"))
    assert structure(frame(first)) != structure(frame(first, how="max"))


def test_the_code_of_the_users_functions_counts(folders):
    def change(part):
        return part.assign(value=part.value + 1)

    def change_more(part):
        return part.assign(value=part.value + 2)

    change_more.__qualname__ = change.__qualname__
    one, other = (frame(folders[0], function=each) for each in (change, change_more))
    assert structure(one) == structure(frame(folders[1], function=change))
    assert structure(one) != structure(other)


def test_a_graph_of_too_many_groups_is_not_recognized(monkeypatch):
    monkeypatch.setattr(graph_structure, "MOST_GROUPS", 2)
    assert structure((numbers(200) + 1).sum()) == ""


def test_the_digest_has_no_texts(folders):
    found = structure(frame(folders[0]))
    assert len(found) == 24
    assert set(found) <= set("0123456789abcdef")


def test_bytes_of_files_are_counted_once(folders, tmp_path):
    size = sum(file.stat().st_size for file in (tmp_path / "first").iterdir())
    found = sources(frame(folders[0]))
    assert found.has_files
    assert found.measure() == size


def test_of_many_sources_some_are_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_structure, "MOST_SOURCES", 10)
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(1000))

    def read(path, part):
        return path, part

    of_one = [dask.delayed(read)(str(file), part) for part in range(100)]
    assert sources(dask.delayed(list)(of_one)).measure() == 1000
    files = []
    for part in range(100):
        files.append(tmp_path / f"part-{part}")
        files[-1].write_bytes(bytes(50))
    of_many = [dask.delayed(read)(str(path), 0) for path in files]
    assert sources(dask.delayed(list)(of_many)).measure() == 5000


def test_data_in_the_graph_counts():
    array = da.from_array(np.ones((1000, 10)), chunks=(100, 10))
    found = sources(array.sum())
    assert not found.has_files
    assert found.measure() == pytest.approx(80_000, rel=0.2)


def test_texts_that_are_no_files_have_no_bytes():
    parts = [dask.delayed(len)(f"/no/such/file {part}") for part in range(3)]
    assert sources(dask.delayed(sum)(parts)).measure() == 0


#: Prints the digest of a user's function with a set, and of a large set among the arguments.
PROGRAM = """
import dask
from hyperplane.forecasts.collection_graph import materialize
from hyperplane.guard.graph_structure import find_structure

def choose(part, names):
    return part in {"a", "b", "c", "d", "e"} or any(part in {"f", "g", "h"} for _ in names)

choose.__module__ = "program"
names = {f"name{letter}{other}" for letter in "abcdefghijklmnopqrst" for other in "abcdefghijklm"}
parts = [dask.delayed(choose)(part, names, dask_key_name=f"choose-{part}") for part in "xyz"]
print(find_structure(materialize(dask.delayed(sum)(parts, dask_key_name="sum"), {}).tasks))
"""


@pytest.mark.process
def test_the_order_of_sets_does_not_count():
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) == 24


def test_members_of_a_set_in_a_function_count():
    def choose(part):
        return part in {"a", "b"}

    def choose_others(part):
        return part in {"a", "c"}

    choose_others.__qualname__ = choose.__qualname__
    one, other = (structure(dask.delayed(each)("x")) for each in (choose, choose_others))
    assert one != other


def structure_of_text(*texts):
    return structure(dask.delayed(len)(list(texts)))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("2026-11-27", "2026-11-28"),
        ("2026-11-27T10:00:00Z", "2026-12-01 23:30:00.5+01:00"),
        ("20261127", "20261128"),
        ("day == '2026-11-27' and count > 10", "day == '2026-11-28' and count > 12.5"),
        ("orders_20261127", "orders_20261128"),
        ("2026-11", "2026-12"),
        ("2026-W48", "2026-W49"),
        ("09:30", "10:30:15"),
        ("17", "-1.5e3"),
    ],
)
def test_dates_and_numbers_in_texts_do_not_count(text, other):
    assert structure_of_text(text, "key") == structure_of_text(other, "key")
    assert structure_of_text(text, "key") != structure_of_text(other, "value")


@pytest.mark.parametrize(
    ("text", "other"),
    [("x1", "x2"), ("ward-7", "ward-8"), ("1h", "2h"), ("1.2.3", "1.2.4"), ("a > 1", "b > 1")],
)
def test_numbers_in_names_count(text, other):
    assert structure_of_text(text) != structure_of_text(other)


def test_urls_are_no_local_files(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(70))
    urls = ["https://example.org/data", "s3://bucket/data", "simplecache::s3://bucket/data"]
    node = materialize(dask.delayed(len)([*urls, f"file://{file}"]), {}).tasks
    assert [path for each in node.values() for path in find_paths(each)] == [str(file)]
    assert not sources(dask.delayed(len)(urls)).has_files
    assert sources(dask.delayed(len)([*urls, f"file://{file}"])).measure() == 70


def test_data_beside_a_url_is_no_input():
    empty = pd.DataFrame({"key": [1]})
    assert sources(dask.delayed(len)("s3://bucket/data", empty)).measure() == 0
