"""Reading machines: limits, lines, leniency, and only RequestError for any file."""

from __future__ import annotations

import json
from functools import partial

import asl_corpus
import pytest
from asl_corpus import outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled
from test_asl_paths import JSON, places

from hyperplane.asl import problems
from hyperplane.asl.checking import check_machine
from hyperplane.asl.reading import MAX_FILE_BYTES, read_machine
from hyperplane.asl.strict_json import JsonSyntaxError, parse_with_lines
from hyperplane.errors import RequestError

ALL = [(folder, name) for folder in ("valid", "invalid") for name in asl_corpus.names(folder)]
TINY = {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}
FUZZ = settings(
    max_examples=scaled(60, 300), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(JSON, st.sampled_from([None, 1, 3]))
def test_text_is_read_as_json_reads_it(value, indent):
    text = json.dumps(value, indent=indent, ensure_ascii=indent is None)
    scanned = parse_with_lines(f"\n {text}\n")
    assert repr(scanned.value) == repr(value)
    assert set(scanned.lines) == {place for place, _ in places(value)}
    lines = f"\n {text}\n".split("\n")
    for place, line in scanned.lines.items():
        if place and isinstance(place[-1], str) and indent:
            assert json.dumps(place[-1], ensure_ascii=False) in lines[line - 1]


@given(st.text(alphabet='{}[]:,"ab0-.e \n\\u') | st.text())
def test_any_text_is_json_for_both_readers_or_for_neither(text):
    expected = outcome(partial(json.loads, parse_constant=int), ValueError, text)  # refuses NaN
    parsed = outcome(parse_with_lines, JsonSyntaxError, text)
    if isinstance(parsed, JsonSyntaxError):
        assert 1 <= parsed.line <= text.count("\n") + 1
        assert isinstance(expected, ValueError)
    else:
        assert repr(parsed.value) == repr(expected)


@FUZZ
@given(st.sampled_from(ALL), st.data())
def test_a_damaged_file_is_refused_or_read_and_nothing_else(tmp_path, chosen, data):
    content = bytearray(asl_corpus.machine_of(*chosen).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 40)))
        content[start:end] = data.draw(st.binary(max_size=6) | st.sampled_from([b'"', b"{", b","]))
    _assert_read_or_refused(tmp_path, bytes(content))


@FUZZ
@given(st.sampled_from(ALL), JSON, st.data())
def test_a_machine_with_anything_anywhere_is_refused_or_read(tmp_path, chosen, value, data):
    try:
        document = json.loads(asl_corpus.machine_of(*chosen).read_bytes())
    except ValueError:
        return
    inner = [place for place, _ in places(document) if place]
    if not inner:
        return
    *parents, last = data.draw(st.sampled_from(inner))
    holder = document
    for part in parents:
        holder = holder[part]
    holder[last] = value
    _assert_read_or_refused(tmp_path, json.dumps(document).encode())


def _assert_read_or_refused(tmp_path, content):
    file = tmp_path / "fuzzed.asl.json"
    file.write_bytes(content)
    result = outcome(read_machine, RequestError, file)
    if isinstance(result, RequestError):
        assert result.faults
        assert all(fault.source or fault.where == "machine" for fault in result.faults)
    else:
        assert check_machine(result.document) == []


@given(JSON)
def test_checking_anything_finds_faults_and_nothing_else(value):
    assert check_machine(value)
    assert check_machine({"StartAt": value, "States": {"A": value, "B": {"Type": "Succeed"}}})


def test_a_large_file_is_refused_without_reading_all_of_it(tmp_path):
    file = tmp_path / "large.asl.json"
    file.write_text(json.dumps({**TINY, "Comment": "x" * MAX_FILE_BYTES}))
    with pytest.raises(RequestError, match="more than 1 MiB"):
        read_machine(file)
    file.write_text(json.dumps({**TINY, "Comment": "x" * (MAX_FILE_BYTES - 200)}))
    assert read_machine(file).document["StartAt"] == "A"


@pytest.mark.parametrize("levels", [32, 33, 5000])
def test_depth_is_limited_in_files_and_mappings_alike(tmp_path, levels):
    deep: object = 1
    for _ in range(levels - 3):
        deep = [deep]
    machine = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Result": deep, "End": True}}}
    file = tmp_path / "deep.asl.json"
    file.write_text(
        '{"StartAt": "A", "States": {"A": {"Type": "Pass", "End": true, "Result": '
        + "[" * (levels - 3) + "1" + "]" * (levels - 3) + "}}}"
    )  # fmt: skip
    for source in (machine, file):
        if levels <= 32:
            assert read_machine(source).document == machine
        else:
            with pytest.raises(RequestError, match=r"32 levels|not JSON|nests"):
                read_machine(source)


@pytest.mark.parametrize("source", [None, 5, b"x", ["a"]])
def test_other_sources_than_paths_and_mappings_are_refused(source):
    with pytest.raises(RequestError, match="a path or a mapping"):
        read_machine(source)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_a_mapping_that_is_not_json_is_refused(value):
    with pytest.raises(RequestError, match="JSON"):
        read_machine({**TINY, "Comment": value})


def test_missing_files_folders_and_invalid_names_are_refused(tmp_path):
    for source in (tmp_path / "none.asl.json", tmp_path, "nul\0byte"):
        with pytest.raises(RequestError, match="a file that can be read"):
            read_machine(source)


def test_the_name_of_a_machine_is_its_file_name_without_suffixes(tmp_path):
    file = tmp_path / "nightly.load.asl.json"
    file.write_text("\ufeff" + json.dumps(TINY), encoding="utf-8")
    assert read_machine(file).name == "nightly"
    assert read_machine(str(file)).name == "nightly"
    assert read_machine(TINY).name == "machine"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a" 1}', "'1' in place of a colon"),
        ('{"a": 1 "b": 2}', "'\"' in place of a comma or }"),
        ("{'a': 1}", '"\'" in place of a name in double quotes'),
        ("[1, nil]", "'n' in place of a value"),
        ('["a', "'\"' begins a text that has no end"),
        (r'["\x"]', r"'\\' begins an escape that JSON does not have"),
        (r'["\u12"]', "is not followed by four hexadecimal digits"),
        ('["a\tb"]', r"'\t' in a text, where JSON has an escape such as \n"),
    ],
)
def test_text_that_is_no_json_is_refused_with_what_is_wrong(text, why):
    with pytest.raises(JsonSyntaxError) as refused:
        parse_with_lines(text)
    assert str(refused.value).endswith(why)


@pytest.mark.parametrize("count", [3000, 12_000])
def test_many_unknown_states_are_not_compared_with_all_states(monkeypatch, count):
    compared = []

    def count_names(name, names):
        compared.append(len(names))
        return []

    monkeypatch.setattr(problems, "nearest", count_names)
    states = {f"State {each}": {"Type": "Pass", "Next": f"Stte {each}"} for each in range(count)}
    faults = check_machine({"StartAt": "State 0", "States": states})
    assert len(faults) > count
    assert sum(compared) <= 10_000


def test_a_document_that_is_not_json_has_one_fault():
    circle = {}
    circle["States"] = circle
    for document in ({**TINY, "Comment": {1, 2}}, circle, {"States": {5: {}, (1,): {}}}):
        assert [fault.allowed for fault in check_machine(document)] == ["JSON"]


def test_a_machine_does_not_change_with_the_mapping_it_was_read_from():
    source = json.loads(json.dumps(TINY))
    machine = read_machine(source)
    source["States"]["A"]["Type"] = "Fail"
    assert machine.document == TINY


def test_lenient_accepts_doubts_but_no_other_faults():
    path = asl_corpus.machine_of("invalid", "states-copied-example")
    machine = read_machine(path, lenient=True)
    assert len(machine.doubts) == 6
    assert machine.doubts[0].source == f"{path}:9"
    with pytest.raises(RequestError):
        read_machine(path)
    document = {**TINY, "States": {**TINY["States"], "B": {"Type": "Pass"}}}
    with pytest.raises(RequestError) as refused:
        read_machine(document, lenient=True)
    assert [fault.where for fault in refused.value.faults] == ["States.B.Next"]


def test_a_machine_without_a_start_has_no_unreachable_states():
    states = {name: {"Type": "Succeed"} for name in "AB"}
    for machine in ({"States": states}, {"StartAt": "C", "States": states}):
        assert [fault.where for fault in check_machine(machine)] == ["StartAt"]
