import pytest
from scale import FULL

from hyperplane.errors import RequestError, SearchFailed
from hyperplane.ml import Range, read_search, tune

pytestmark = pytest.mark.process


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="other tests run chunks of a job: at full scale")
def test_concurrent_chunks_of_a_grid_take_different_values(tmp_path):
    def objective(values):
        (tmp_path / str(values["x"])).touch(exist_ok=False)
        return values["x"]

    count = 30
    result = tune(
        objective,
        {"x": Range(0, count - 1)},
        search="grid",
        name="chunks-race",
        runner="local",
        max_parallel=4,
    )
    assert set(result.history["state"]) == {"complete"}
    assert sorted(result.history["params.x"]) == list(range(count))
    assert result.history["worker"].nunique() == count
    assert result.best_params == {"x": count - 1}
    assert read_search("chunks-race").best_value == count - 1


@pytest.mark.slow
def test_chunks_of_a_job_draw_different_values_and_can_be_continued():
    def objective(values, trial):
        trial.report(values["x"], 0)
        return values["x"]

    space = {"x": Range(0.0, 1.0)}
    tune(objective, space, name="chunks-drawn", runner="local", max_trials=1, seed=1)
    result = tune(objective, space, name="chunks-drawn", runner="local", max_trials=2, seed=1)
    assert result.history["params.x"].nunique() == len(result.history) == 2


@pytest.mark.slow
def test_a_chunk_that_dies_runs_its_values_again(tmp_path):
    def objective(values):
        import os

        if not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), 9)
        return values["x"]

    result = tune(objective, {"x": [4, 5]}, search="grid", name="chunks-killed", runner="local")
    complete = result.history[result.history["state"] == "complete"]
    assert sorted(complete["params.x"]) == [4, 5]
    assert (result.history["state"] == "interrupted").sum() == 1


@pytest.mark.skipif(not FULL, reason="test_tuning.py has failed trials: at full scale")
def test_failed_trials_of_a_job_are_an_error():
    with pytest.raises(SearchFailed, match="ZeroDivisionError"):
        tune(lambda values: 1 / 0, {"x": [1]}, search="grid", name="chunks-failed", runner="local")


def test_a_job_needs_a_name_and_no_client():
    with pytest.raises(RequestError) as caught:
        tune(lambda values: 1, {"x": [1]}, runner="local", client=object())
    assert [fault.where for fault in caught.value.faults] == ["name", "client"]
