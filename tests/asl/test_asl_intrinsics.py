"""Intrinsic functions: grammar, limits, and that they raise no other errors."""

from __future__ import annotations

import base64
import json

import pytest
from asl_corpus import outcome
from hypothesis import given
from hypothesis import strategies as st
from test_asl_paths import JSON

from hyperplane.asl.errors import StateError
from hyperplane.asl.intrinsic_calls import (
    FunctionCall,
    IntrinsicSyntax,
    JsonLiteral,
    TextLiteral,
    evaluate,
    parse_intrinsic,
)
from hyperplane.asl.intrinsic_functions import COUNTS, FUNCTIONS
from hyperplane.asl.json_path import JsonPath, parse_path
from hyperplane.asl.payload_templates import fill_template, find_syntax_error

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def escaped(text):
    for mark in "\\'{}":
        text = text.replace(mark, "\\" + mark)
    return text


TEXTS = st.text().map(lambda text: TextLiteral(escaped(text)))
LEAVES = (
    TEXTS
    | st.builds(JsonLiteral, NUMBERS | st.booleans() | st.none())
    | st.sampled_from(["$", "$.a", "$$.State['x)']", "$.l[?(@.a == 'b,')]", "$.l[0,1]"]).map(
        parse_path
    )
)
CALLS = st.recursive(
    st.just(FunctionCall("UUID", ())),
    lambda inner: st.builds(
        FunctionCall, st.just("Array"), st.lists(LEAVES | inner, max_size=3).map(tuple)
    ),
    max_leaves=3,
)


def count(call):
    return 1 + sum(count(inner) for inner in call.arguments if isinstance(inner, FunctionCall))


def written(argument, blank):
    """Format an expression as text."""
    if isinstance(argument, JsonPath):
        return argument.text
    if isinstance(argument, TextLiteral):
        return f"'{argument.raw}'"
    if isinstance(argument, JsonLiteral):
        return json.dumps(argument.value)
    inside = f"{blank},{blank}".join(written(inner, blank) for inner in argument.arguments)
    return f"States.{argument.name}({blank}{inside}{blank})"


@given(CALLS.filter(lambda call: count(call) <= 10), st.sampled_from(["", " ", "\n "]))
def test_formatted_expressions_are_parsed_unchanged(call, blank):
    assert repr(parse_intrinsic(written(call, blank))) == repr(call)


@given(st.text() | st.text(alphabet="States.Format(Array)',$\\{}0 "))
def test_any_text_is_an_expression_or_is_refused(text):
    for expression in (text, f"States.Array({text})", f"States.Format('{text}')", "States." + text):
        call = outcome(parse_intrinsic, IntrinsicSyntax, expression)
        if isinstance(call, IntrinsicSyntax):
            assert str(call)
            assert find_syntax_error(expression) or expression.startswith("$")
            continue
        result = outcome(evaluate, StateError, call, {}, {})
        assert getattr(result, "name", "States.IntrinsicFailure") == "States.IntrinsicFailure"


@given(st.text(), st.text())
def test_format_puts_texts_in_as_they_are(before, inside):
    call = parse_intrinsic(f"States.Format('{escaped(before)}{{}}', '{escaped(inside)}')")
    assert evaluate(call, {}, {}) == before + inside
    by_path = parse_intrinsic(f"States.Format('{escaped(before)}{{}}', $.x)")
    assert evaluate(by_path, {"x": inside}, {}) == before + inside


@given(JSON)
def test_json_round_trip(value):
    call = parse_intrinsic("States.StringToJson(States.JsonToString($))")
    assert repr(evaluate(call, value, {})) == repr(value)


@given(st.text())
def test_base64_round_trip(text):
    call = parse_intrinsic("States.Base64Decode(States.Base64Encode($))")
    assert evaluate(call, text, {}) == text
    assert base64.b64decode(evaluate(call.arguments[0], text, {})).decode() == text


@given(st.lists(st.integers(-3, 3) | st.sampled_from([True, False, 1.0, "1", None]), max_size=20))
def test_unique_keeps_the_first_of_each(items):
    def key(item):
        return repr(item) if isinstance(item, (bool, str)) or item is None else float(item)

    expected = list({key(item): item for item in reversed(items)})
    unique = evaluate(parse_intrinsic("States.ArrayUnique($)"), items, {})
    assert sorted(map(str, map(key, unique))) == sorted(map(str, expected))


@given(st.lists(st.integers()), st.integers(1, 9))
def test_partitions_contain_all_items_in_order(items, size):
    parts = evaluate(
        parse_intrinsic("States.ArrayPartition($.l, $.n)"), {"l": items, "n": size}, {}
    )
    assert [item for part in parts for item in part] == items
    assert all(len(part) == size for part in parts[:-1])


@pytest.mark.parametrize("name", FUNCTIONS)
@given(values=st.lists(JSON, min_size=3, max_size=3))
def test_no_argument_makes_a_function_fail_in_another_way(name, values):
    few, many = COUNTS[name]
    for number in range(few, (3 if many is None else many) + 1):
        inside = ", ".join(f"$[{index}]" for index in range(number))
        call = parse_intrinsic(f"States.{name}({inside})")
        result = outcome(evaluate, StateError, call, values, {})
        if isinstance(result, StateError):
            assert result.name == "States.IntrinsicFailure"
            assert result.cause.startswith(f"States.{name}: ")


def test_random_numbers_are_reproducible_with_a_seed_and_less_than_the_end():
    call = parse_intrinsic("States.MathRandom($.a, $.b, $.seed)")
    drawn = [evaluate(call, {"a": 0, "b": 3, "seed": seed}, {}) for seed in range(60)]
    assert drawn == [evaluate(call, {"a": 0, "b": 3, "seed": seed}, {}) for seed in range(60)]
    assert set(drawn) == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("States.Hash($.long, 'MD5')", "more than 10000"),
        ("States.Base64Encode($.long)", "more than 10000"),
        ("States.Base64Decode('a')", "not Base64"),
        ("States.Base64Decode('/w==')", "not Base64"),
        ("States.Base64Encode($.half)", "surrogate"),
        ("States.StringToJson($.deep)", "too deep"),
        ("States.StringToJson('1e999')", "too large"),
        ("States.JsonMerge($.o, $.o, true)", "deep merges"),
        ("States.MathRandom(3, 3)", "not less"),
        ("States.ArrayPartition($.l, 0)", "1 or more"),
        ("States.Format($.o)", "not a text"),
        ("States.Format('{}{}', 'a', $.none)", "has no value"),
    ],
)
def test_invalid_arguments_of_functions(text, cause):
    data = {"long": "x" * 10_001, "half": "\ud800", "deep": "[" * 100_000, "o": {}, "l": []}
    with pytest.raises(StateError, match=cause) as failed:
        evaluate(parse_intrinsic(text), data, {})
    assert failed.value.name == "States.IntrinsicFailure"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("States.Formt('a')", "unknown function States.Formt; did you mean States.Format?"),
        ("States.format('a')", "unknown function States.format; did you mean States.Format?"),
        ("States.Hash('a')", "States.Hash has 1 argument, expected 2"),
        ("States.Format()", "States.Format has 0 arguments, expected at least 1"),
    ],
)
def test_functions_that_there_are_not_and_wrong_numbers_of_arguments(text, message):
    with pytest.raises(IntrinsicSyntax) as refused:
        parse_intrinsic(text)
    assert str(refused.value) == message


def test_filling_a_template_changes_neither_the_template_nor_the_input():
    template, data = {"a.$": "$.l", "b": [{"c.$": "$"}]}, {"l": [1]}
    filled = fill_template(template, data, {})
    assert filled == {"a": [1], "b": [{"c": {"l": [1]}}]}
    assert (template, data) == ({"a.$": "$.l", "b": [{"c.$": "$"}]}, {"l": [1]})
