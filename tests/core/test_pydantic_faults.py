"""Conversion of pydantic's validation errors into faults."""

import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

import hyperplane
from hyperplane.core.pydantic_faults import (
    faults_from_validation,
    text_like,
    with_known_names,
    with_model_keys,
)
from hyperplane.errors import Fault, UnknownKey


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["a", "b"] = "a"


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: Annotated[int, Field(ge=1, lt=10)] = 1
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    either: str | float | None = None
    labels: dict[str, str] | str | None = None
    inner: Inner = Inner()
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    code: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    region: Annotated[str, text_like("^[a-z-]+[0-9]$", "a region, such as us-east-1")] = "a1"
    odd: int = 1
    flag: bool = False
    title: Annotated[str, Field(min_length=1)] = "a"
    either_inner: Inner | str | None = None
    inners: Annotated[tuple[Inner, ...], Field(max_length=9)] = ()
    by_name: dict[str, Inner | None] = {}

    @field_validator("odd")
    @classmethod
    def _is_odd(cls, value):
        if value % 2 == 0:
            raise ValueError("an odd number")
        return value


def _faults(prefix="", **values):
    with pytest.raises(ValidationError) as caught:
        Model(**values)
    return faults_from_validation(caught.value, prefix)


@pytest.mark.parametrize(
    ("values", "where", "asked", "allowed"),
    [
        ({"count": 0}, "count", "0", "at least 1"),
        ({"count": 10}, "count", "10", "less than 10"),
        ({"count": 1.5}, "count", "1.5", "a whole number"),
        ({"count": "x"}, "count", "'x'", "a whole number"),
        ({"share": 0}, "share", "0", "more than 0.0"),
        ({"share": 2}, "share", "2", "at most 1.0"),
        ({"share": "x"}, "share", "'x'", "a number"),
        ({"flag": "maybe"}, "flag", "'maybe'", "True or False"),
        ({"code": 5}, "code", "5", "text"),
        ({"code": "A"}, "code", "'A'", "text that matches ^[a-z]+$"),
        ({"region": "A"}, "region", "'A'", "a region, such as us-east-1"),
        ({"odd": 2}, "odd", "2", "an odd number"),
        (
            {"names": "a"},
            "names",
            "'a'",
            'a list, such as ["a", "b"] ([a,b] in YAML and on the command line)',
        ),
        ({"names": 5}, "names", "5", "a list"),
        ({"names": []}, "names", "[]", "at least 1 item"),
        ({"title": ""}, "title", "''", "at least 1 character"),
        ({"names": [1]}, "names.0", "1", "text"),
        ({"inner": 5}, "inner", "5", "an object of type Inner"),
        ({"inner": {"kind": "c"}}, "inner.kind", "'c'", "one of 'a' or 'b'"),
        ({"inner": {"kine": "a"}}, "inner.kine", "'a'", "no such key"),
        ({"either": [1]}, "either", "[1]", "text, or a number"),
        ({"labels": 5}, "labels", "5", "a mapping, or text"),
        ({"labels": {"a": 1}}, "labels.a", "1", "text"),
        ({"other": 1}, "other", "1", "no such key"),
    ],
)
def test_each_invalid_value_is_one_fault(values, where, asked, allowed):
    [fault] = _faults(**values)
    assert (fault.where, fault.asked, fault.allowed) == (where, asked, allowed)


def test_faults_are_in_the_order_of_the_fields_with_the_prefix():
    faults = _faults("site.model", odd=2, count=0, other=1)
    wheres = [fault.where for fault in faults]
    assert wheres == ["site.model.count", "site.model.odd", "site.model.other"]


def test_a_long_value_is_truncated():
    [fault] = _faults(count="x" * 500)
    assert len(fault.asked) == 80
    assert fault.asked.endswith("...")


@pytest.mark.parametrize(
    ("where", "prefix", "advice"),
    [
        ("site.prot", "site", "did you mean port?"),
        ("prot", "", "did you mean port?"),
        ("site.zzz", "site", ""),
    ],
)
def test_the_fault_of_an_unknown_key_lists_the_known_keys(where, prefix, advice):
    fault = Fault(where, "1", "no such key", source="a.yaml")
    found = with_known_names(fault, ["host", "port"], prefix)
    assert found == UnknownKey(where, "1", "one of host, port", advice, "a.yaml")


@pytest.mark.parametrize("where", ["site.port", "site.port.0.zzz"])
def test_the_fault_of_a_known_key_is_unchanged(where):
    fault = Fault(where, "1", "no such key")
    assert with_known_names(fault, ["host", "port"], "site") is fault


@pytest.mark.parametrize(
    ("values", "where", "allowed", "advice"),
    [
        ({"inner": {"kine": 1}}, "inner.kine", "one of kind", "did you mean kind?"),
        ({"inners": [{}, {"a": 1}]}, "inners.1.a", "one of kind", ""),
        ({"by_name": {"x": {"kine": 1}}}, "by_name.x.kine", "one of kind", "did you mean kind?"),
        ({"cont": 1}, "cont", f"one of {', '.join(Model.model_fields)}", "did you mean count?"),
        ({"a.b": 1}, "a.b", f"one of {', '.join(Model.model_fields)}", ""),
    ],
)
@pytest.mark.parametrize("prefix", ["", "site"])
def test_the_fault_of_an_unknown_key_lists_the_keys_of_its_model(
    values, where, allowed, advice, prefix
):
    [fault] = _faults(prefix, **values)
    full = f"{prefix}.{where}".removeprefix(".")
    assert with_model_keys(fault, Model, prefix) == UnknownKey(full, "1", allowed, advice)


def test_other_faults_do_not_list_the_keys_of_a_model():
    [fault] = _faults(inner={"kind": "c"})
    assert with_model_keys(fault, Model) is fault


def test_no_message_of_the_package_shows_a_regular_expression():
    package = Path(hyperplane.__file__).parent
    found = [
        str(file)
        for file in package.rglob("*.py")
        if re.search(r"(Field|StringConstraints)\([^)]*\bpattern=r?f?\"", file.read_text())
    ]
    assert found == []
