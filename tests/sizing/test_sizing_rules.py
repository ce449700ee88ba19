"""Sizing rules: weights of operations and aggregations."""

import pytest
import yaml

from hyperplane import config
from hyperplane.core import config_defaults
from hyperplane.errors import RequestError

SHIPPED = yaml.safe_load((config_defaults.folder() / "sizing.yaml").read_text())["hyperplane"][
    "sizing"
]
OPERATIONS = SHIPPED["operations"]


def test_the_multipliers_are_the_published_ones():
    assert config.sizing_rules().multipliers.model_dump() == {"light": 4, "medium": 8, "heavy": 48}


@pytest.mark.parametrize(("operation", "weight"), OPERATIONS.items())
def test_every_operation_has_its_weight_in_any_spelling(operation, weight):
    rules = config.sizing_rules()
    written = {
        operation,
        operation.upper(),
        operation.title(),
        operation.replace("_", "-"),
        operation.replace("_", " "),
        f"  {operation} ",
    }
    assert {rules.weight(each) for each in written} == {weight}


@pytest.mark.parametrize("weight", ["light", "medium", "heavy"])
def test_a_weight_is_accepted_as_an_operation(weight):
    assert config.sizing_rules().weight(weight.upper()) == weight


@pytest.mark.parametrize("written", ["groupby", "group_by", "group-by", "Group By", "GROUPBY"])
def test_group_by_in_every_spelling(written):
    rules = config.sizing_rules()
    assert rules.weight(written) == "medium"
    assert rules.is_aggregation(written)


@pytest.mark.parametrize("written", ["group-by apply", "groupby_apply"])
def test_group_by_apply_is_heavy_and_an_aggregation(written):
    rules = config.sizing_rules()
    assert rules.weight(written) == "heavy"
    assert rules.is_aggregation(written)


@pytest.mark.parametrize("operation", ["filter", "join", "light", "heavy", "set_index"])
def test_other_operations_are_not_aggregations(operation):
    assert not config.sizing_rules().is_aggregation(operation)


def test_every_aggregation_is_an_operation():
    rules = config.sizing_rules()
    for operation in SHIPPED["checks"]["aggregations"]:
        assert rules.weight(operation) in {"medium", "heavy"}


@pytest.mark.parametrize(
    ("operation", "nearest"),
    [("gruopby", "groupby"), ("joins", "join"), ("setindex", "set_index"), ("heavi", "heavy")],
)
def test_an_unknown_operation_is_an_error_that_proposes_the_nearest(operation, nearest):
    with pytest.raises(RequestError) as caught:
        config.sizing_rules().weight(operation)
    [fault] = caught.value.faults
    assert (fault.where, fault.asked) == ("operation", repr(operation))
    assert fault.allowed.startswith("light, medium or heavy, or one of read, ")
    assert all(name in fault.allowed for name in OPERATIONS)
    assert nearest in fault.advice


@pytest.mark.parametrize("operation", ["zzzzzz", "", None, 5])
def test_a_name_unlike_any_operation_is_an_error(operation):
    with pytest.raises(RequestError) as caught:
        config.sizing_rules().weight(operation)
    assert caught.value.faults[0].asked == repr(operation)
