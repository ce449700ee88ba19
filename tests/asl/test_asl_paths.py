"""Paths: lookup, syntax errors and insertion of results."""

from __future__ import annotations

import copy
import json

import pytest
from asl_corpus import outcome
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.asl.choice_rules import matches_pattern
from hyperplane.asl.errors import StateError
from hyperplane.asl.json_path import PathSyntax, parse_path
from hyperplane.asl.path_lookup import PathNotFound, find_value, json_equal, put_value
from hyperplane.asl.timestamps import format_timestamp, parse_timestamp

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def quoted(place):
    """Path to a location, in brackets."""
    parts = []
    for part in place:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        else:
            parts.append("['" + part.replace("\\", "\\\\").replace("'", "\\'") + "']")
    return "$" + "".join(parts)


def places(value, place=()):
    yield place, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*place, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*place, number))


@given(JSON)
def test_every_value_is_found_at_its_place(document):
    for place, value in places(document):
        path = parse_path(quoted(place))
        assert path.reference
        assert find_value(path, document) is value


@given(JSON)
def test_deep_steps_find_every_value_once(document):
    below = [value for place, value in places(document) if place]
    matches = find_value(parse_path("$..*"), document)
    assert sorted(map(repr, matches)) == sorted(map(repr, below))


@given(JSON, st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4), JSON)
def test_put_value_changes_only_the_value_at_its_path(document, names, value):
    before = copy.deepcopy(document)
    path = parse_path(quoted(names))
    try:
        after = put_value(path, document, value)
    except PathNotFound:
        holders = [document]
        for name in names[:-1]:
            if isinstance(holders[-1], dict) and name in holders[-1]:
                holders.append(holders[-1][name])
        assert any(not isinstance(holder, dict) for holder in holders)
        return
    assert find_value(path, after) is value
    assert document == before
    for place, old in places(before):
        inside = place[: len(names)] == tuple(names[: len(place)])
        if not inside:
            assert json_equal(find_value(parse_path(quoted(place)), after), old)


@given(JSON, st.data())
def test_an_item_of_a_list_is_replaced_in_place(document, data):
    lists = [(place, value) for place, value in places(document) if isinstance(value, list)]
    for place, value in lists:
        index = data.draw(st.integers(0, 5))
        path = parse_path(quoted((*place, index)))
        if index >= len(value):
            with pytest.raises(PathNotFound):
                put_value(path, document, "new")
            continue
        after = find_value(parse_path(quoted(place)), put_value(path, document, "new"))
        assert after == [*value[:index], "new", *value[index + 1 :]]


@given(st.text() | st.text(alphabet="$.[]()'\"*?@,:-0123456789ab\\ <=>!&|"))
def test_any_text_is_a_path_or_is_refused(text):
    for candidate in (text, "$" + text, f"$[{text}]", f"$[?({text})]"):
        path = outcome(parse_path, PathSyntax, candidate)
        if isinstance(path, PathSyntax):
            assert str(path)
            continue
        assert path.text == candidate
        value = outcome(find_value, PathNotFound, path, {"a": [1, {"b": None}], "b": "x"})
        assert path.definite or isinstance(value, (list, PathNotFound))


@pytest.mark.parametrize(
    ("text", "definite", "reference"),
    [
        ("$", True, True),
        ("$$.a['b'][0]", True, True),
        ("$.a[-1]", True, False),
        ("$..a", False, False),
        ("$.a[0,1]", False, False),
        ("$.a[:1]", False, False),
        ("$[*]", False, False),
        ("$.*", False, False),
        ("$[?(@.a)]", False, False),
    ],
)
def test_which_paths_are_definite_and_which_are_references(text, definite, reference):
    path = parse_path(text)
    assert (path.definite, path.reference) == (definite, reference)


def test_an_indefinite_path_without_a_match_is_an_empty_list_but_its_definite_part_must_exist():
    assert find_value(parse_path("$.l[*].x"), {"l": [{"y": 1}]}) == []
    for text in ("$.m[*]", "$.l.x[*]", "$.l[5].x[*]", "$.s[0:1]", "$.s[?(@.x)]"):
        with pytest.raises(PathNotFound):
            find_value(parse_path(text), {"l": [], "s": "text"})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (r"$.store\.book", ["store.book"]),
        (r"$.\stor\e.boo\k", ["store", "book"]),
        (r"$.foo.\.bar", ["foo", ".bar"]),
        (r"$.foo\@bar.baz\[\[.\?pretty", ["foo@bar", "baz[[", "?pretty"]),
        ("$.&Ж中.\U00010346", ["&Ж中", "\U00010346"]),
        ("$.ledgers[0][22][315].foo", ["ledgers", 0, 22, 315, "foo"]),
        ("$['store'][0]['book']", ["store", 0, "book"]),
        ("$.abc.['def ghi']", ["abc", "def ghi"]),
    ],
)
def test_reference_paths_of_amazons_specification(text, names):
    path = parse_path(text)
    assert path.reference
    assert [step.value for step in path.steps] == names


@pytest.mark.parametrize("condition", [r"@.a\=b == 1", r"@.a\=b==1", "@['a=b']==1"])
def test_operators_in_names_of_a_filter_are_escaped(condition):
    assert find_value(parse_path(f"$[?({condition})]"), [{"a=b": 1}, {"a": 1}]) == [{"a=b": 1}]


def test_a_filter_applies_to_an_object_and_not_to_its_members():
    document = {"o": {"n": 1, "m": {"n": 2}}}
    assert find_value(parse_path("$.o[?(@.n == 1)]"), document) == [document["o"]]
    assert find_value(parse_path("$.o[?(@.n == 2)]"), document) == []


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("@.n == 1", 1), ("@.n != 1", 3), ("@.n >= 1", 2), ("@.n > 1", 1), ("@.n <= 1", 1),
        ("@.n == true", 1), ("@.n == null", 0), ("@.s == 'it\\'s'", 1), ('@.s < "j"', 1),
        ("!@.s", 3), ("@.n && !(@.n == 2)", 2), ("@.n == 2 || @.s", 2), ("1 == @.n", 1),
        ("@.n == 1e0", 1), ("@['n'] == 2.0", 1), ("@.n < 'a'", 0), ("@.n==1", 1), ("@.n!=1", 3),
        ("@.n>=1&&@.n<2", 1), ("@.n==2||@.s", 2), ("1<@.n", 1), ("@.n<=$[1].n", 2),
    ],
)  # fmt: skip
def test_conditions_of_filters(condition, count):
    items = [{"n": 1}, {"n": 2}, {"n": True}, {"s": "it's"}]
    assert len(find_value(parse_path(f"$[?({condition})]"), items)) == count


@given(st.text(alphabet="ab*\\", max_size=8), st.text(alphabet="ab*\\", max_size=10))
def test_patterns_match_like_a_slow_matcher(pattern, text):
    pieces, position = [], 0
    while position < len(pattern):
        step = 2 if pattern[position] == "\\" else 1
        pieces.append(pattern[position : position + step])
        position += step

    def slow(left, right):
        if not left:
            return not right
        if left[0] == "*":
            return any(slow(left[1:], right[at:]) for at in range(len(right) + 1))
        return right[:1] == left[0][-1] and slow(left[1:], right[1:])

    if any(piece[0] == "\\" and piece[1:] not in ("*", "\\") for piece in pieces):
        with pytest.raises(StateError, match=r"States\.Runtime"):
            matches_pattern(pattern, text)
    else:
        assert matches_pattern(pattern, text) is slow(pieces, text)


@pytest.mark.parametrize(
    ("pattern", "text"), [("ab*ba", "aba"), ("a*b*b", "ab"), ("a*b*bc", "abc"), ("**a", "b")]
)
def test_two_parts_of_a_pattern_do_not_match_the_same_character(pattern, text):
    assert not matches_pattern(pattern, text)


def test_a_pattern_of_many_stars_takes_no_time():
    assert not matches_pattern("*a" * 2000 + "*b", "a" * 20_000)


@pytest.mark.parametrize(
    "text",
    ["2026-02-30T00:00:00Z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T24:00:00Z",
     "2026-01-01T00:00:00+0100", "0001-01-01T00:00:00+23:59", "", 5, None],
)  # fmt: skip
def test_invalid_timestamps(text):
    assert parse_timestamp(text) is None


@given(st.datetimes(timezones=st.just(None) | st.timezones()).filter(lambda t: t.year > 1))
def test_a_timestamp_names_its_time(time):
    time = time.astimezone() if time.tzinfo is None else time
    shown = format_timestamp(time)
    read = parse_timestamp(shown)
    assert read is not None
    assert 0 <= (time - read).total_seconds() < 0.001
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("$.b.c", "the object at $ has no field 'b'"),
        ("$.a[0].n[0:1]", "the value at $.a[0].n is a number, not an array"),
        ("$.a[0].n.x", "the value at $.a[0].n is a number, not an object"),
        ("$.a[0].n[?(@.x)]", "the value at $.a[0].n is a number, not an object or an array"),
        ("$.a[0]['x y'].z", "the object at $.a[0]['x y'] has no field 'z'"),
        ("$.a[2].n", "the array at $.a has 1 item"),
        ("$[0]", "the value at $ is an object, not an array"),
        ("$$.a.b", "the value at $$.a is an array, not an object"),
    ],
)
def test_a_path_without_a_value_names_the_value_before_its_end(path, why):
    document = {"a": [{"n": 1, "x y": {}}]}
    with pytest.raises(PathNotFound) as caught:
        find_value(parse_path(path), document)
    assert str(caught.value) == f"{path} has no value: {why}"


def test_a_path_that_cannot_be_set_names_the_value_before_its_end():
    with pytest.raises(PathNotFound, match=r"cannot be set: the value at \$.a.b is a text"):
        put_value(parse_path("$.a.b.c"), {"a": {"b": "x"}}, 1)
    with pytest.raises(PathNotFound, match=r"cannot be set: the array at \$.a has 2 items"):
        put_value(parse_path("$.a[2]"), {"a": [1, 2]}, 1)
