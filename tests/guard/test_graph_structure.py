"""The structure of graphs: what it tells apart, and what it leaves out."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from hyperplane.forecasts.collection_graph import materialize
from hyperplane.guard import graph_structure
from hyperplane.guard.graph_structure import SourceSizes, find_structure


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


def frame(path, column="key", how="sum", function=None):
    dd = pytest.importorskip("dask.dataframe")
    table = dd.read_parquet(path)
    if function is not None:
        table = table.map_partitions(function, meta=table._meta)
    return getattr(table.groupby(column).value, how)()


@pytest.fixture
def folders(tmp_path):
    pd = pytest.importorskip("pandas")
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
