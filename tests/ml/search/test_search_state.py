"""Trials of a search in the database, without a cluster."""

import sqlite3
import time
from contextlib import closing

import matplotlib
import pytest

matplotlib.use("agg")
from matplotlib import pyplot

from hyperplane.errors import JobStoreError, RequestError, SearchFailed
from hyperplane.ml import Range, read_search
from hyperplane.ml.search import cluster_trials, search_storage
from hyperplane.ml.search.search import create_search, open_search
from hyperplane.ml.search.search_plan import SearchPlan, find_option_faults
from hyperplane.ml.search.search_result import make_result
from hyperplane.ml.search.search_storage import result_file
from hyperplane.ml.search.space import Choice
from hyperplane.ml.search.trial import TrialResult


def _plan(**options):
    values = {
        "parameters": {"x": Range(0.0, 4.0)},
        "method": "random",
        "direction": "minimize",
        "max_trials": 10,
        "max_failed": None,
        "early_stopping": False,
        "seed": 1,
    }
    return SearchPlan(**{**values, **options})


def _result(value, state="complete"):
    now = time.time()
    return TrialResult(state, value, now, now, "host:1", "boom" if state == "failed" else "")


def _run(search, count=None):
    values = []
    while (count is None or len(values) < count) and (asked := search.ask()):
        search.record(asked[0], _result(asked[1]["x"]))
        values.append(asked[1]["x"])
    return values


def _open(name, **options):
    return open_search(_plan(**options), name, search_storage.search_folder(name))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "bayesian"])
def test_a_search_goes_on_where_it_ended(method):
    name = f"state-{method}"
    first = _run(_open(name, method=method), 4)
    second = _run(_open(name, method=method))
    assert (len(first), len(second)) == (4, 6)
    assert len({*first, *second}) == 10
    assert _run(_open(name, method=method)) == []
    assert len(_run(_open(name, method=method, max_trials=12))) == 2
    assert len(read_search(name).history) == 12


def test_interrupted_trials_run_again_with_their_values():
    search = _open("state-interrupted")
    _run(search, 2)
    running = [search.ask(), search.ask()]
    again = _open("state-interrupted")
    assert [again.ask()[1] for _ in running] == [values for _, values in running]
    history = read_search("state-interrupted").history
    assert history["state"].to_list() == [
        "complete", "complete", "interrupted", "interrupted", "running", "running",
    ]  # fmt: skip


def test_a_result_that_a_worker_wrote_is_kept():
    search = _open("state-written")
    number, values = search.ask()
    result_file(search.folder, number).parent.mkdir(exist_ok=True)
    search.keep(number, _result(7.0))
    again = _open("state-written")
    assert values["x"] not in _run(again)
    row = read_search("state-written").history.set_index("trial").loc[number]
    assert (row["state"], row["value"]) == ("complete", 7.0)
    assert not result_file(search.folder, number).exists()


def test_a_task_that_dask_repeats_after_its_result_was_recorded_returns_it():
    # Dask repeats a task whose worker dies before the scheduler has released it.
    search = _open("state-repeated")
    number, values = search.ask()
    (search.folder / cluster_trials._TOKEN).write_text("topic")
    calls = []

    def run():
        return cluster_trials.run_as_task(
            lambda values: calls.append(values) or 1.0,
            number, values, "topic", str(search.folder), answered=False,
        )  # fmt: skip

    result = run()
    search.record(number, result)
    assert run() == result
    assert calls == [values]
    _open("state-repeated")
    assert list(search.folder.glob("trial-*")) == []


@pytest.mark.slow
def test_a_grid_runs_each_combination_once_over_several_calls():
    grid = {"parameters": {"x": Range(0, 3), "y": Choice(("a", (1, 2)))}, "method": "grid"}
    seen = []
    for _ in range(4):
        search = _open("state-grid", **grid)
        for _ in range(3):
            if (asked := search.ask()) is not None:
                seen.append(tuple(asked[1].values()))
                search.record(asked[0], _result(1.0))
    assert sorted(map(str, seen)) == sorted(str((x, y)) for x in range(4) for y in ("a", (1, 2)))


def test_random_search_in_lists_repeats_no_combination():
    search = create_search(_plan(parameters={"x": Choice(tuple(range(10)))}, max_trials=20))
    assert sorted(_run(search)) == list(range(10))


def test_a_seed_gives_the_same_values_again():
    assert _run(create_search(_plan())) == _run(create_search(_plan()))


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"direction": "maximize"}, ["direction"]),
        ({"parameters": {"x": Range(0.0, 5.0)}}, ["space"]),
        ({"direction": "maximize", "parameters": {"y": Range(0.0, 4.0)}}, ["direction", "space"]),
    ],
)
def test_a_name_belongs_to_one_search(options, where):
    _open("state-same")
    with pytest.raises(RequestError) as caught:
        _open("state-same", **options)
    assert [fault.where for fault in caught.value.faults] == where


def test_a_name_belongs_to_one_estimator_and_its_rows():
    common = {"objective": "a", "X": "b", "scoring": "accuracy"}
    _open("state-common", objective=common)
    _open("state-common", objective=common)
    for changed, where in (
        ({**common, "X": "c", "scoring": "r2"}, ["X", "scoring"]),
        ({}, ["objective"]),  # a function
    ):
        with pytest.raises(RequestError) as caught:
            _open("state-common", objective=changed)
        assert [fault.where for fault in caught.value.faults] == where


def test_limits_of_counts_are_numbers():
    faults = find_option_faults(name=None, seed=None, max_trials=0, max_failed=-1)
    assert [fault.allowed for fault in faults] == [
        "a whole number, 1 or more", "a whole number, 0 or more",
    ]  # fmt: skip


def test_a_search_that_runs_is_locked():
    with (
        search_storage.exclusive("state-locked"),
        pytest.raises(RequestError) as caught,
        search_storage.exclusive("state-locked"),
    ):
        pass
    assert [fault.where for fault in caught.value.faults] == ["name"]


def test_values_that_were_taken_and_not_stored_run_again():
    grid = {"parameters": {"x": Choice((1, 2))}, "method": "grid"}
    search = _open("state-taken", **grid)
    assert search.enqueue_all() == 2
    search.study.ask().set_user_attr("chunk", "job/0")  # and the process is killed
    assert search.settle_chunk("job/0") is False
    assert sorted(search.ask(f"job/{chunk}")[1]["x"] for chunk in range(2)) == [1, 2]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(b"no database" * 200), "is damaged"),
        (lambda file: file.mkdir(), "unable to open"),
        (lambda file: _change(file, "CREATE TABLE studies (a INTEGER)"), "cannot keep searches"),
        (lambda file: _change(file, "CREATE TABLE version_info (a INTEGER)"), "cannot keep"),
    ],
)
def test_another_database_is_one_error(tmp_path, monkeypatch, damage, message):
    file = tmp_path / "searches.db"
    damage(file)
    monkeypatch.setattr(search_storage, "database_url", lambda: f"sqlite:///{file}")
    for call in (lambda: read_search("any"), lambda: _open("any")):
        with pytest.raises(JobStoreError, match=message) as caught:
            call()
        assert caught.value.store == str(file)


def _change(file, statement):
    with closing(sqlite3.connect(file)) as database:
        database.execute(statement)


def test_the_folder_of_a_search_is_private():
    assert search_storage.search_folder("state-private").stat().st_mode & 0o077 == 0


def test_five_failures_at_first_end_the_search():
    search = create_search(_plan(max_trials=20))
    for _ in range(4):
        search.record(search.ask()[0], _result(None, "failed"))
    with pytest.raises(SearchFailed) as caught:
        search.record(search.ask()[0], _result(None, "failed"))
    assert (caught.value.failed, caught.value.last) == (5, "boom")


def test_failures_after_a_success_do_not_end_the_search():
    search = create_search(_plan(max_trials=20))
    search.record(search.ask()[0], _result(1.0))
    for _ in range(19):
        search.record(search.ask()[0], _result(None, "failed"))
    assert search.ask() is None


def test_max_failed_ends_the_search():
    search = create_search(_plan(max_failed=1))
    search.record(search.ask()[0], _result(1.0))
    search.record(search.ask()[0], _result(None, "failed"))
    with pytest.raises(SearchFailed, match=r"^2 trials failed; "):
        search.record(search.ask()[0], _result(None, "failed"))
    search = create_search(_plan(max_failed=0))
    with pytest.raises(SearchFailed, match=r"^1 trial failed; "):
        search.record(search.ask()[0], _result(None, "failed"))


def test_a_search_begins_with_the_trials_of_a_previous_one():
    values = _run(_open("state-previous"), 3)
    plan, folder = _plan(max_trials=2), search_storage.search_folder("state-next")
    for _ in range(2):  # the second call copies nothing again
        search = open_search(plan, "state-next", folder, "state-previous")
        _run(search, 1)
    history = read_search("state-next").history
    assert len(history) == 5
    assert history["params.x"].to_list()[:3] == values
    with pytest.raises(RequestError) as caught:
        open_search(plan, "state-next", folder, "state-missing")
    assert [fault.where for fault in caught.value.faults] == ["resumePreviousJobId"]


def test_the_best_trial_and_its_picture():
    search = create_search(_plan(direction="maximize", parameters={"x": Choice(((1,), (2, 2)))}))
    for value, state in ((1.0, "complete"), (5.0, "failed")):
        number, _ = search.ask()
        search.record(number, _result(value, state))
    result = make_result(search.study.trials, "maximize", search.plan.parameters)
    assert result.best_value == 1.0
    assert result.best_params["x"] in ((1,), (2, 2))
    assert result.history["error"].to_list() == ["", "boom"]
    axes = result.plot()
    assert axes.get_xlabel() == "trial"
    assert "best value 1" in axes.get_title(loc="left")
    assert result.plot(axes) is axes
    with pytest.raises(RequestError, match="ax = 'x'"):
        result.plot("x")
    # In a notebook its inline backend shows the figures of pyplot.
    assert axes.figure.number in pyplot.get_fignums()
    pyplot.close(axes.figure)


def test_a_search_without_complete_trials_has_no_best():
    result = make_result(create_search(_plan()).study.trials, "minimize")
    assert (result.best_value, result.best_params, len(result.history)) == (None, {}, 0)
    pyplot.close(result.plot().figure)
