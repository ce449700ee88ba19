"""``select`` and ``count_by`` equal plain Python, for bags and for files."""

import json
import math
import warnings
from collections import Counter

import dask.bag as db
import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.bag import count_by, read_records, select
from hyperplane.collections.bags import lines as lines_module
from hyperplane.errors import BadLinesWarning, RequestError

# Few values, so that some are equal, including all for which parsers are known to differ.
VALUES = st.sampled_from(
    [
        *(None, True, False, 0, 1, 2, -1, 1.0, 0.5, 2**53 + 1, 2**70, "a", "b", "ä", "", "1"),
        *("\ud83d\ude00", "\ud800", "x\0", "Inf", [], [1], [1.0], {}, {"id": 1}, {"id": "a"}),
        {"id": {"z": 1}},
    ]
)
NAMES = st.sampled_from(["n", "user", "user.id", "ü", "other"])
RECORDS = st.dictionaries(NAMES, VALUES, max_size=4)
PATHS = st.sampled_from(["n", "user", "user.id", "user.id.z", "ü", "none"])
WANTED = VALUES | st.lists(VALUES, max_size=3)
WHERE = st.dictionaries(PATHS, WANTED, max_size=2)


def at(record, path, default):
    """Return the field of exactly that name, or the nested field."""
    if path in record:
        return record[path]
    for part in path.split("."):
        if not isinstance(record, dict) or part not in record:
            return default
        record = record[part]
    return record


def meets(record, where):
    missing = object()
    for path, wanted in where.items():
        value = at(record, path, missing)
        if value is missing or not any(
            value == one for one in (wanted if isinstance(wanted, list) else [wanted])
        ):
            return False
    return True


def partitioned(records, count):
    """Return a bag with this number of partitions, some of them empty."""
    graph = {("p", i): records[i::count] for i in range(count)}
    return db.Bag(graph, "p", count), [r for i in range(count) for r in records[i::count]]


def exact(values):
    """Return values with their types, so that 1, 1.0 and True differ."""
    return json.dumps(values)


def counts_of(records, key):
    """Return pairs in the documented order, by pairwise comparison."""
    pairs = []
    for record in records:
        value = at(record, key, None)
        for pair in pairs:
            if pair[0] == value:
                pair[1] += 1
                break
        else:
            pairs.append([value, 1])
    return [tuple(pair) for pair in sorted(pairs, key=lambda pair: -pair[1])]


@settings(max_examples=scaled(12, 60))
@given(st.lists(RECORDS, max_size=30), st.integers(0, 40), WHERE, PATHS)
def test_any_bag(records, count, where, key):
    bag, ordered = partitioned(records, count)
    chosen = select(bag, where, {"x": key, "y": "n"}).compute(scheduler="sync")
    kept = [record for record in ordered if meets(record, where)]
    assert exact(chosen) == exact([{"x": at(r, key, None), "y": at(r, "n", None)} for r in kept])
    counted = count_by(bag, key).compute(scheduler="sync")
    assert exact(counted) == exact(counts_of(ordered, key))


def read(records):
    text = "".join(json.dumps(record) + "\n" for record in records)
    store = fsspec.filesystem("memory")
    store.pipe_file("/select/a.jsonl", text.encode())
    return read_records("memory://select/a.jsonl", blocksize=500)


@settings(max_examples=scaled(30, 150))
@given(
    st.lists(RECORDS, max_size=20), st.lists(st.integers(0, 9)), WHERE, PATHS, st.integers(1, 400)
)
def test_files_in_chunks_of_any_size(records, repeats, where, key, step):
    records = [
        record for record, times in zip(records, repeats, strict=False) for _ in range(times)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK_BYTES", step)
        bag = read(records)
        kept = [record for record in records if meets(record, where)]
        assert exact(select(bag, where).compute(scheduler="sync")) == exact(kept)
        of_all, of_kept = count_by(bag, key), count_by(select(bag, where, {"k": key}), "k")
        assert exact(of_all.compute(scheduler="sync")) == exact(counts_of(records, key))
        assert exact(of_kept.compute(scheduler="sync")) == exact(counts_of(kept, key))


def test_where_and_key_may_be_functions():
    bag = db.from_sequence(range(20), npartitions=3)
    assert select(bag, lambda n: n > 17).compute(scheduler="sync") == [18, 19]
    assert count_by(bag, lambda n: n % 3 == 0).compute(scheduler="sync") == [(False, 13), (True, 7)]
    records = db.from_sequence([{"n": 1}, {"n": 5}, {}])
    assert select(records, {"n": lambda n: n > 2}).compute(scheduler="sync") == [{"n": 5}]


def test_sets_and_lists_are_alternatives_and_null_differs_from_missing():
    bag = db.from_sequence([{"n": 1}, {"n": None}, {}, {"n": [1]}])
    assert select(bag, {"n": {1, 2}}).compute(scheduler="sync") == [{"n": 1}]
    assert select(bag, {"n": None}).compute(scheduler="sync") == [{"n": None}]
    assert select(bag, {"n": [[1]]}).compute(scheduler="sync") == [{"n": [1]}]


def test_conditions_on_a_field_and_on_its_nested_field_match_no_record():
    bag = read([{"user": "x"}] * 3 + [{"user": {"id": 1}}])
    assert select(bag, {"user.id": 1, "user": "x"}).compute(scheduler="sync") == []
    assert select(bag, {"user": "x", "user.id": 1}).compute(scheduler="sync") == []
    only_text = read([{"user": "x"}] * 3)
    assert select(only_text, {"user.id": 1, "user": "x"}).compute(scheduler="sync") == []


def test_nan_is_one_value_and_lists_are_counted_by_their_items():
    values = [math.nan, float("nan"), [1, {"a": 2}], [1.0, {"a": 2}], {1, 2}, {2, 1}, {2, 1}]
    bag = db.from_sequence([{"v": value} for value in values], npartitions=3)
    counted = count_by(bag, "v").compute(scheduler="sync")
    assert counted[0] == ({1, 2}, 3)
    assert counted[2] == ([1, {"a": 2}], 2)
    assert math.isnan(counted[1][0])
    assert counted[1][1] == 2


def test_counts_support_take_and_run_in_processes():
    words = ["the", "cat", "the", "dog", "the", "end", "dog"]
    counts = count_by(db.from_sequence(words, npartitions=4).map(lambda w: {"w": [w]}), "w")
    assert counts.take(2) == ((["the"], 3), (["dog"], 2))
    assert {k[0]: v for k, v in counts.compute(scheduler="threads")} == Counter(words)


ODD_LINES = [
    *(b'{"n": 1, "x": Inf}', b'{"n": 1, "x": -NaN}', b'{"n": 1, "x": NaN}', b'{"n": 1}{"n": 1}'),
    *(b'{"n":\n1}', b'{"n": 1\n}', b'{"n": 1}\n,{"n": 1}', b'{"n": 2, "n": 1}', b'{"n": 1}\0}'),
    *(b'{"n": 1, "m": {"x":1,"x":2}}', b'{"n": 1, "x": "\xff"}', b' {"n": 1} ', b'{"n": 01}'),
    *(b'{"n": 1, "x": [Inf]}', b'{"n": 1, "x": "[Inf]"}', b'{"n": 1, "x": %s}' % (b"1" * 5000)),
    # As many objects as lines, but not one object on each line.
    *(b'{"n": 1, "x": [{},\n{}]}\n{"n": 1}{"n": 1}', b'{"x": {}\n,"n": 1}\n{"n": 1}{"n": 1}'),
    *(b'{"n": 1}{"n":\n1}', b'{"n": 1, "\\u006e": 1}', b'{"n": 1, "x": "\\ud800"}', b"{}", b""),
]


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: repr(line[:40]))
def test_a_line_that_only_some_parsers_accept_is_treated_as_in_python(tmp_path, line):
    (tmp_path / "a.jsonl").write_bytes(b'{"n": 1}\n%s\n{"n": 1}\n' % line * 20)
    bag = read_records(tmp_path / "a.jsonl", limit=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadLinesWarning)
        good = bag.compute(scheduler="sync")
        ones = [record for record in good if record.get("n") == 1]
        assert len(ones) >= 40
        assert dict(count_by(bag, "n").compute(scheduler="sync"))[1] == len(ones)
        chosen = select(bag, {"n": 1})
        assert exact(chosen.compute(scheduler="sync")) == exact(ones)
        counted = count_by(chosen, "x").compute(scheduler="sync")
        assert sum(count for _, count in counted) == len(ones)


@pytest.mark.parametrize("values", [["a", "ä", ""], [1, -(2**63), 2**63 - 1], [True, False]])
def test_plain_values_are_counted_without_python(monkeypatch, values):
    bag = read([{"a": {"b": value}, "c": value, "d": [1]} for value in values for _ in range(9)])
    monkeypatch.setattr("hyperplane.collections.bags.count_by._count_in_batches", None)
    monkeypatch.setattr("hyperplane.collections.bags.json_columns.MAX_MATCH_SHARE", 1)
    expected = [(value, 9) for value in values]
    assert exact(count_by(bag, "a.b").compute(scheduler="sync")) == exact(expected)
    some = count_by(select(bag, {"c": values[1:]}, {"x": "a.b"}), "x")
    assert exact(some.compute(scheduler="sync")) == exact(expected[1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "where and fields"),
        ({"where": 5}, "a function of a record"),
        ({"where": {5: 1}}, "names of fields as text"),
        ({"fields": "n"}, r"write fields=\['n'\]"),
        ({"fields": ["n", "n"]}, "each name once"),
        ({"fields": []}, "with at least one field"),
        ({"fields": [5]}, "names of fields as text"),
        ({"where": 5, "fields": 5}, "2 faults"),
    ],
)
def test_wrong_arguments_are_reported(arguments, message):
    with pytest.raises(RequestError, match=message):
        select(db.from_sequence([{}]), **arguments)


def test_wrong_keys_and_bags_are_reported():
    with pytest.raises(RequestError, match="2 faults"):
        count_by([], 5)
    with pytest.raises(RequestError, match=r"dask\.bag\.Bag"):
        select([], {"a": 1})
