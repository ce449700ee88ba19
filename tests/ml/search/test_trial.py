from concurrent.futures import ThreadPoolExecutor

import pytest

from hyperplane.errors import RequestError
from hyperplane.ml.search.trial import Trial, TrialResult, TrialStopped, run_trial


class _Channel:
    def __init__(self, prune_at=None):
        self.reports, self.prune_at = [], prune_at

    def report(self, value, step):
        self.reports.append((step, value))

    def should_prune(self):
        return self.prune_at is not None and self.reports[-1][0] >= self.prune_at


def _run(objective, prune_at=None):
    return run_trial(objective, Trial(0, {"x": 3}, _Channel(prune_at)))


def test_the_value_of_the_objective_is_the_result():
    result = _run(lambda params: params["x"] * 2)
    assert (result.state, result.value, result.error) == ("complete", 6.0, "")
    assert result.ended >= result.started


@pytest.mark.parametrize("value", [None, "3", float("nan"), [1, 2], True])
def test_other_values_fail(value):
    result = _run(lambda params: value)
    assert result.state == "failed"
    assert repr(value) in result.error


class _Broken(Exception):
    def __repr__(self):
        raise ValueError

    __str__ = __repr__


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), _Broken()])
def test_every_error_of_an_objective_fails_its_trial_only(error):
    def objective(params):
        raise error

    result = _run(objective)
    assert result.state == "failed"
    assert type(error).__name__ in result.error


def test_an_interrupt_of_the_main_thread_is_not_a_result():
    def objective(params):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(objective)
    with ThreadPoolExecutor() as threads:
        assert threads.submit(_run, objective).result().state == "failed"


def test_a_value_without_text_fails():
    result = _run(lambda params: _Broken())
    assert result.error == "the objective returned a value of type _Broken; expected a number"


def test_an_invalid_report_states_the_value():
    trial = Trial(0, {}, _Channel())
    with pytest.raises(RequestError) as caught:
        trial.report("high", -1)
    assert [fault.asked for fault in caught.value.faults] == ["'high'", "-1"]


def test_an_error_names_its_line():
    def objective(params):
        raise KeyError("rate")

    result = _run(objective)
    assert result.state == "failed"
    assert "KeyError" in result.error
    assert "test_trial.py" in result.error


@pytest.mark.parametrize("raises", [False, True])
def test_a_trial_that_stops_is_pruned(raises):
    def objective(params, trial):
        for step in range(10):
            trial.report(step * 2, step)
            if trial.should_prune():
                if raises:
                    raise TrialStopped
                return None
        return 99

    result = _run(objective, prune_at=4)
    assert (result.state, result.value) == ("pruned", 8.0)


def test_the_objective_cannot_change_the_values_of_the_search():
    trial = Trial(0, {"x": 3}, _Channel())
    run_trial(lambda params: params.pop("x"), trial)
    assert trial.params == {"x": 3}


def test_a_result_is_read_as_written(tmp_path):
    result = TrialResult("failed", None, 1.5, 2.5, "host:1", "ä")
    result.write(tmp_path / "trial-0.json")
    assert TrialResult.read(tmp_path / "trial-0.json") == result
    assert [file.name for file in tmp_path.iterdir()] == ["trial-0.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": 1}'])
def test_a_damaged_result_is_none(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert TrialResult.read(tmp_path / "a.json") is None
    assert TrialResult.read(tmp_path / "missing.json") is None
