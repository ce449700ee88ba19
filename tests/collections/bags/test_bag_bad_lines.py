"""Bad lines: warnings, errors and ``bad_records``."""

import pickle

import dask.bag as db
import pytest

from hyperplane.bag import bad_records, read_records, select
from hyperplane.errors import BadLines, BadLinesWarning, RequestError


def content(good, bad):
    return '{"n": 1}\n' * good + "oops\n" * bad


@pytest.mark.parametrize(
    ("good", "bad", "limit", "passes"),
    [
        (999, 10, 0.01, True),
        (999, 11, 0.01, False),
        (9_900, 100, 0.01, True),
        (9_900, 101, 0.01, False),
        (6, 6, 0.01, True),
        (5, 6, 0.01, False),
        (0, 1, 0.01, False),
        (1000, 1, 0, False),
        (0, 5, 1, True),
        (100, 0, 0, True),
    ],
)
def test_the_limit_is_a_fraction_and_few_bad_lines_are_allowed(tmp_path, good, bad, limit, passes):
    (tmp_path / "a.jsonl").write_text(content(good, bad))
    bag = read_records(tmp_path / "a.jsonl", limit=limit)
    if not passes:
        with pytest.raises(BadLines) as caught:
            bag.compute(scheduler="sync")
        assert (caught.value.line, caught.value.bad) == (good + 1, bad)
        assert caught.value.lines == good + bad
        assert caught.value.file.endswith("a.jsonl")
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    elif bad:
        lines = f"{bad} of {good + bad} lines left out of .*jsonl; the first is line {good + 1} of"
        with pytest.warns(BadLinesWarning, match=f"{lines} .*not JSON .*: 'oops'"):
            assert len(bag.compute(scheduler="sync")) == good
    else:
        assert len(bag.compute(scheduler="sync")) == good


def test_a_divided_file_has_the_line_in_errors_and_the_byte_in_warnings(tmp_path):
    (tmp_path / "a.jsonl").write_text(content(10_000, 1))
    url = tmp_path / "a.jsonl"
    with pytest.warns(BadLinesWarning, match=r"the first is near byte \d+ of"):
        read_records(url, blocksize="20kB").compute(scheduler="sync")
    with pytest.raises(BadLines, match=r"line 10001 of .*a\.jsonl"):
        read_records(url, blocksize="20kB", limit=0).compute(scheduler="sync")
    [bad] = bad_records(read_records(url, blocksize="20kB")).compute(scheduler="sync")
    assert bad["line"] == 10_001
    assert bad["text"] == "oops"


def test_json_arrays_and_indented_json_have_advice(tmp_path):
    for text in ('[{"a": 1},\n {"a": 2}]', '{\n "a": 1\n}\n'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(BadLines, match="write one object per line"):
            read_records(tmp_path / "a.json").compute(scheduler="sync")


def test_the_threaded_scheduler_warns(tmp_path):
    (tmp_path / "a.jsonl").write_text(content(50, 2))
    with pytest.warns(BadLinesWarning, match="2 of 52 lines"):
        read_records(tmp_path / "a.jsonl").compute(scheduler="threads")


def test_arrow_and_python_count_the_same_bad_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text(content(90, 10))
    bag = read_records(tmp_path / "a.jsonl")
    with pytest.warns(BadLinesWarning, match="10 of 100 lines"):
        assert len(select(bag, {"n": 1}).compute(scheduler="sync")) == 90


def test_bad_lines_of_several_files_name_their_files(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(content(2, 1))
    bad_lines = bad_records(select(read_records(str(tmp_path / "*.jsonl")), {"n": 1})).compute(
        scheduler="sync"
    )
    assert [(bad["file"][-7:], bad["line"]) for bad in bad_lines] == [
        ("a.jsonl", 3),
        ("b.jsonl", 3),
    ]


def test_only_bags_of_files_have_bad_records():
    with pytest.raises(RequestError, match="read directly from files"):
        bad_records(db.from_sequence([1]))
