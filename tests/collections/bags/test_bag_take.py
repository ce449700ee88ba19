"""``take`` finds the first records and computes as few partitions as possible."""

import dask.bag as db
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.bag import read_records, take
from hyperplane.collections.bags import lines as lines_module
from hyperplane.collections.bags import take as take_module
from hyperplane.errors import RequestError


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    monkeypatch.setattr(take_module, "count_threads", lambda: 4)


@settings(max_examples=scaled(12, 60))
@given(st.lists(st.lists(st.integers(), max_size=5), max_size=40), st.integers(0, 50))
def test_records_come_from_the_first_partitions(parts, n):
    bag = db.Bag({("p", i): part for i, part in enumerate(parts)}, "p", len(parts))
    even = [number for part in parts for number in part if number % 2 == 0]
    assert take(bag.filter(lambda number: number % 2 == 0), n) == tuple(even[:n])


def counting(count, find):
    """Return a bag of a hundred numbers, and the list of those that were read."""
    seen = []

    def keep(number):
        seen.append(number)
        return number in find

    bag = db.from_sequence(range(100), npartitions=count)
    return bag.filter(keep), seen


@pytest.mark.parametrize(
    ("find", "n", "looked_at"),
    [
        ({0}, 1, 1),  # one record of the first partition
        ({9}, 1, 10),  # the last of the first partition
        ({10}, 1, 10 + 1 + 10),  # the second wave: partitions 1 and 2
        ({0, 1, 10}, 2, 2),
        ({35}, 1, 10 + 20 + 6 + 3 * 10),  # the third: 3 to 6
        (set(), 1, 100),
        ({99}, 1, 100),
    ],
)
def test_numbers_of_computed_partitions_double_until_enough(find, n, looked_at):
    bag, seen = counting(10, find)
    assert take(bag, n) == tuple(sorted(find))[:n]
    assert len(seen) == looked_at
    assert len(set(seen)) == len(seen)


def test_at_most_one_partition_per_thread_is_computed_at_once(monkeypatch):
    waves = []
    compute = take_module.compute_heads
    monkeypatch.setattr(
        take_module,
        "compute_heads",
        lambda tasks, keys: waves.append(len(keys)) or compute(tasks, keys),
    )
    assert take(counting(20, set())[0], 1) == ()
    assert waves == [1, 2, 4, 4, 4, 4, 1]


def test_shared_tasks_run_at_most_twice():
    calls = []

    def expensive(part):
        calls.append(part)
        return part

    bag = db.from_sequence([list(range(50))], npartitions=1).map(expensive).flatten()
    parts = bag.repartition(10).filter(lambda number: number == 49)
    assert take(parts, 1) == (49,)
    assert len(calls) == 2


def test_a_file_is_read_no_further_than_needed(tmp_path, monkeypatch):
    read = []
    whole_lines = lines_module._read_whole_lines

    def counted(file, span):
        for place, chunk in whole_lines(file, span):
            read.append(len(chunk))
            yield place, chunk

    monkeypatch.setattr(lines_module, "_read_whole_lines", counted)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n' * 100_000)
    bag = read_records(tmp_path / "a.jsonl", blocksize="100kB")
    assert take(bag, 3) == ({"n": 1},) * 3
    assert len(read) == 1


def test_numpy_integers_and_persisted_bags_are_accepted():
    bag = db.from_sequence(range(10), npartitions=5).persist(scheduler="sync")
    assert take(bag, np.int64(4)) == (0, 1, 2, 3)


@pytest.mark.parametrize("n", [-1, 2.5, True, "3", None])
def test_wrong_numbers_are_reported(n):
    with pytest.raises(RequestError, match="a whole number from 0"):
        take(db.from_sequence([1]), n)
    with pytest.raises(RequestError, match="2 faults"):
        take([1], n)


def test_take_runs_with_a_process_scheduler(tmp_path):
    import dask

    bag = db.from_sequence(range(10), npartitions=5)
    with dask.config.set(scheduler="processes"):
        assert take(bag, 3) == (0, 1, 2)
