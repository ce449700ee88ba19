"""Tuning profiles."""

import json

import pytest

from hyperplane.errors import RequestError
from hyperplane.spec.tuning import Tuning, TuningProfile, TuningSection

GB = 10**9

FAST = {
    "server": {"distributed": {"worker": {"profile": {"enabled": False}}}},
    "one_process": {"dataframe.shuffle.method": "tasks"},
    "environ": {"POLARS_MAX_THREADS": "{nthreads}", "MALLOC_ARENA_MAX": 2, "NOT_THIS": None},
}


def test_nested_settings_are_flattened_and_variables_are_text():
    profile = TuningProfile(**FAST)
    assert profile.server == {"distributed.worker.profile.enabled": False}
    assert profile.one_process == {"dataframe.shuffle.method": "tasks"}
    assert profile.environ == {"POLARS_MAX_THREADS": "{nthreads}", "MALLOC_ARENA_MAX": "2"}


def test_underscores_in_keys_become_hyphens():
    profile = TuningProfile(server={"distributed": {"admin": {"system_monitor": {"interval": 1}}}})
    assert profile.server == {"distributed.admin.system-monitor.interval": 1}


def test_empty_mappings_and_null_are_valid_values():
    profile = TuningProfile(server={"a": {"b": {}, "c": None}})
    assert profile.server == {"a.b": {}, "a.c": None}


@pytest.mark.parametrize(("processes", "expected"), [(1, "tasks"), (2, None), (15, None)])
def test_clients_of_one_process_have_separate_settings(processes, expected):
    tuning = Tuning.of(
        "fast", TuningProfile(**FAST), processes=processes, nthreads=3, memory=4 * GB
    )
    assert tuning.client.get("dataframe.shuffle.method") == expected
    assert tuning.environ["POLARS_MAX_THREADS"] == "3"


@pytest.mark.parametrize(("processes", "expected"), [(1, 1), (4, 4), (10, 10), (50, 10)])
def test_servers_get_the_number_of_processes_at_most_ten(processes, expected):
    profile = TuningProfile(server={"a": "{processes}", "b": "processes", "c": 1})
    tuning = Tuning.of("mine", profile, processes=processes, nthreads=1, memory=4 * GB)
    assert tuning.server == {"a": expected, "b": "processes", "c": 1}


@pytest.mark.parametrize(
    ("memory", "expected"), [(GB, 62_500_000), (16 * GB, 10**9), (64 * GB, 2**30)]
)
def test_buffers_have_a_sixteenth_of_the_memory_at_most_one_gibibyte(memory, expected):
    profile = TuningProfile(server={"a": "{buffer}", "b": ["{buffer}"]})
    tuning = Tuning.of("mine", profile, processes=2, nthreads=1, memory=memory)
    assert tuning.server == {"a": expected, "b": ["{buffer}"]}


def test_tuning_round_trips_through_json():
    tuning = Tuning.of("fast", TuningProfile(**FAST), processes=1, nthreads=2, memory=4 * GB)
    assert Tuning(**json.loads(json.dumps(tuning.model_dump()))) == tuning


def test_summary_and_full_text():
    tuning = Tuning.of("fast", TuningProfile(**FAST), processes=1, nthreads=2, memory=4 * GB)
    assert tuning.summary() == "fast: 4 settings; the profile dask has none"
    assert str(tuning).splitlines() == [
        "tuning   fast",
        "servers  distributed.worker.profile.enabled: False",
        "clients  dataframe.shuffle.method: tasks",
        "workers  POLARS_MAX_THREADS=2",
        "workers  MALLOC_ARENA_MAX=2",
    ]
    assert tuning._repr_html_().count("<tr>") == 5
    direct = Tuning(name="near", direct_to_workers=True)
    assert direct.summary() == "near: 1 setting; the profile dask has none"
    assert str(direct).splitlines()[1] == "clients  direct_to_workers: True"
    assert Tuning().summary() == "dask: Dask's defaults"


def test_the_profile_dask_always_exists_and_is_empty():
    section = TuningSection(profile="fast", profiles={"fast": FAST, "dask": FAST})
    assert list(section.profiles) == ["fast", "dask"]
    assert section.find("dask") == ("dask", TuningProfile())
    assert section.find(None) == ("fast", TuningProfile(**FAST))


def test_profile_names_ignore_case_and_hyphens():
    section = TuningSection(profile="my-own", profiles={"my_own": FAST})
    assert section.find(" My-Own ")[0] == "my_own"


def test_an_unknown_profile_is_a_fault_that_proposes_the_nearest():
    section = TuningSection(profile="fast", profiles={"fast": FAST})
    with pytest.raises(RequestError) as caught:
        section.find("fst")
    [fault] = caught.value.faults
    assert (fault.where, fault.asked, fault.allowed) == ("tuning", "'fst'", "one of fast, dask")
    assert fault.advice.startswith("did you mean fast")
