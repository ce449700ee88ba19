import json

import pytest
import yaml
from pydantic.alias_generators import to_snake

from hyperplane.errors import RequestError
from hyperplane.ml import Range
from hyperplane.ml.search.space import Choice
from hyperplane.ml.search.tuning_spec import make_parameters, read_tuning_spec

SPEC = {
    "goal": "MINIMIZE",
    "maxTrials": 30,
    "maxParallelTrials": 3,
    "hyperparameterMetricTag": "loss",
    "enableTrialEarlyStopping": True,
    "params": [
        {"parameterName": "a", "type": "DOUBLE", "minValue": 0.1, "maxValue": 1,
         "scaleType": "UNIT_LOG_SCALE"},
        {"parameterName": "b", "type": "INTEGER", "minValue": 1, "maxValue": 8,
         "scaleType": "UNIT_LINEAR_SCALE"},
        {"parameterName": "c", "type": "CATEGORICAL", "categoricalValues": ["x", "y"]},
        {"parameterName": "d", "type": "DISCRETE", "discreteValues": [16, 32.0, 0.5]},
        {"parameterName": "e", "type": "DOUBLE", "minValue": 0.1, "maxValue": 1,
         "scaleType": "UNIT_REVERSE_LOG_SCALE"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda spec: spec,
        lambda spec: {"hyperparameters": spec},
        lambda spec: {"trainingInput": {"scaleTier": "BASIC", "hyperparameters": spec}},
    ],
)
def test_a_file_is_read_as_it_is(tmp_path, dump, wrap):
    file = tmp_path / "config"
    file.write_text(dump(wrap(SPEC)))
    spec = read_tuning_spec(file)
    assert (spec.direction, spec.maxTrials, spec.maxParallelTrials) == ("minimize", 30, 3)
    assert make_parameters(spec) == {
        "a": Range(0.1, 1.0, "log"),
        "b": Range(1, 8),
        "c": Choice(("x", "y")),
        "d": Choice((16, 32, 0.5)),
        "e": Range(0.1, 1.0, "reverse_log"),
    }


def test_keys_may_be_written_as_the_fields_of_the_api():
    def rename(value):
        if isinstance(value, list):
            return [rename(each) for each in value]
        return (
            {to_snake(key): rename(each) for key, each in value.items()}
            if isinstance(value, dict)
            else value
        )

    renamed = rename(SPEC)
    assert "max_parallel_trials" in renamed
    assert read_tuning_spec({"training_input": {"hyperparameters": renamed}}) == read_tuning_spec(
        SPEC
    )


def test_every_key_has_an_effect_or_is_refused():
    spec = read_tuning_spec({**SPEC, "maxFailedTrials": 4, "algorithm": "RANDOM_SEARCH",
                             "resumePreviousJobId": "earlier"})  # fmt: skip
    assert (spec.maxFailedTrials, spec.method, spec.resumePreviousJobId) == (4, "random", "earlier")
    assert (spec.enableTrialEarlyStopping, spec.hyperparameterMetricTag) == (True, "loss")


def test_defaults_are_those_of_cloud_ml():
    spec = read_tuning_spec({"params": SPEC["params"][2:3]})
    assert (spec.direction, spec.method, spec.maxTrials) == ("maximize", "bayesian", 1)
    assert (spec.maxParallelTrials, spec.maxFailedTrials) == (1, 0)
    assert spec.hyperparameterMetricTag == "training/hptuning/metric"
    assert not spec.enableTrialEarlyStopping


def test_all_faults_are_listed_with_their_paths():
    wrong = {
        "maxTrials": 0,
        "goal": "BEST",
        "trials": 3,
        "params": [{"parameterName": "a", "type": "DOUBLE", "minValue": "low"}, {"type": "TEXT"}],
    }
    with pytest.raises(RequestError) as caught:
        read_tuning_spec({"trainingInput": {"hyperparameters": wrong}})
    prefix = "trainingInput.hyperparameters."
    assert {fault.where.removeprefix(prefix) for fault in caught.value.faults} == {
        "maxTrials", "goal", "trials",
        "params.0.minValue", "params.1.type", "params.1.parameterName",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "key"),
    [
        ({"type": "DOUBLE", "minValue": 1}, "maxValue"),
        ({"type": "DOUBLE", "minValue": 2, "maxValue": 1}, "maxValue"),
        ({"type": "INTEGER", "minValue": 1.5, "maxValue": 3}, "minValue"),
        ({"type": "DOUBLE", "minValue": 0, "maxValue": 1, "scaleType": "UNIT_LOG_SCALE"},
         "minValue"),
        ({"type": "DOUBLE", "minValue": float("nan"), "maxValue": 1}, "minValue"),
        ({"type": "DOUBLE", "minValue": -1.7e308, "maxValue": 1.7e308}, "maxValue"),
        ({"type": "DISCRETE", "discreteValues": [float("inf")]}, "discreteValues.0"),
        ({"type": "CATEGORICAL"}, "categoricalValues"),
        ({"type": "DISCRETE", "discreteValues": []}, "discreteValues"),
        ({"type": "CATEGORICAL", "categoricalValues": ["a"], "discreteValues": [1]},
         "discreteValues"),
    ],
)  # fmt: skip
def test_a_parameter_names_its_fault(parameter, key):
    with pytest.raises(RequestError) as caught:
        read_tuning_spec({"params": [{"parameterName": "p", **parameter}]})
    assert [fault.where for fault in caught.value.faults] == [f"spec.params.0.{key}"]


def test_a_name_occurs_once():
    with pytest.raises(RequestError, match="once"):
        read_tuning_spec({"params": SPEC["params"][2:3] * 2})


def test_faults_of_keys_and_of_values_are_listed_together():
    wrong = {"maxTrials": 0, "algorithm": "GRID_SEARCH", "params": [
        {"parameterName": "a", "type": "DOUBLE", "minValue": 2, "maxValue": 1},
        {"parameterName": "a", "type": "CATEGORICAL"}, {"parameterName": "b", "type": "TEXT"},
    ]}  # fmt: skip
    with pytest.raises(RequestError) as caught:
        read_tuning_spec(wrong)
    assert {fault.where.removeprefix("spec.") for fault in caught.value.faults} == {
        "maxTrials", "params", "params.0.maxValue", "params.0.type", "params.1.categoricalValues",
        "params.2.type",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["a b", "--a", "a=1", "a\0"])
def test_a_name_can_be_an_argument(name):
    with pytest.raises(RequestError) as caught:
        read_tuning_spec({"params": [{**SPEC["params"][2], "parameterName": name}]})
    assert [fault.where for fault in caught.value.faults] == ["spec.params.0.parameterName"]


def test_a_grid_with_too_many_combinations_is_refused():
    many = {"parameterName": "n", "type": "INTEGER", "minValue": 1, "maxValue": 1e9}
    with pytest.raises(RequestError, match="1,000,000 combinations"):
        read_tuning_spec({"algorithm": "GRID_SEARCH", "params": [many]})


def test_a_grid_has_no_doubles():
    with pytest.raises(RequestError) as caught:
        read_tuning_spec({**SPEC, "algorithm": "GRID_SEARCH"})
    assert [fault.where for fault in caught.value.faults] == [
        "spec.params.0.type", "spec.params.4.type",
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["[1", "- a", "!!python/object/apply:os.getcwd []", "\x00"])
def test_another_file_is_one_fault(tmp_path, content):
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(RequestError) as caught:
        read_tuning_spec(file)
    assert [fault.where for fault in caught.value.faults] == ["spec"]


@pytest.mark.parametrize("spec", [None, 3, "no/such/file.yaml"])
def test_another_value_is_one_fault(spec):
    with pytest.raises(RequestError) as caught:
        read_tuning_spec(spec)
    assert [fault.where for fault in caught.value.faults] == ["spec"]


def test_a_file_with_aliases_is_refused_before_they_are_expanded(tmp_path):
    lines = ["a0: &a0 [1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    file = tmp_path / "config.yaml"
    file.write_text("\n".join([*lines, "params: *a11"]))
    with pytest.raises(RequestError, match="at most 100,000 values; its YAML aliases"):
        read_tuning_spec(file)
    file.write_text("params: &a [*a]")
    with pytest.raises(RequestError, match="its YAML aliases"):
        read_tuning_spec(file)


def test_a_file_may_have_an_alias(tmp_path):
    file = tmp_path / "config.yaml"
    entry = "type: DOUBLE, minValue: &low 1, maxValue: 2"
    file.write_text(
        f"params: [{{parameterName: a, {entry}}}, "
        "{parameterName: b, type: DOUBLE, minValue: *low, maxValue: 3}]"
    )
    assert [entry.minValue for entry in read_tuning_spec(file).params] == [1, 1]
