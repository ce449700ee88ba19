"""Run numbers, and the jobs that names, numbers and prefixes of ids refer to."""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import pytest

from hyperplane.errors import HyperplaneError, JobError
from hyperplane.jobs import JobHandle, Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_names import find_job, find_jobs
from hyperplane.jobs.job_summary import summarize_jobs
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.store.jobs_home import open_store


def make_job(pipeline, at=0.0, **more):
    step = Step(name="one", kind="command", argv=("true",))
    job = new_job(Pipeline.from_steps(pipeline, [step]))
    return replace(job, submitted=4e9 + at, **more)


@pytest.fixture
def add(store):
    def add(pipeline, at=0.0, **more):
        job = make_job(pipeline, at, **more)
        store.add(job)
        return job.id

    return add


def submit_many(url, barrier, jobs):
    store = JobStore(url)
    barrier.wait()
    for job in jobs:
        store.add(job)


@pytest.mark.slow
def test_processes_that_submit_at_the_same_time_get_different_numbers(store):
    # With spawn: a connection to a server must not be shared with a child.
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    url = store._engine.url.render_as_string(hide_password=False)
    jobs = [[make_job("concurrent") for _ in range(25)] for _ in range(4)]
    processes = [context.Process(target=submit_many, args=(url, barrier, each)) for each in jobs]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert sorted(job.number for job in store.find(pipeline="concurrent")) == [*range(1, 101)]


def test_runs_are_found_by_pipeline_and_number(store, add):
    first, second = add("nightly tidy", 1), add("nightly tidy", 2)
    other = add("nightly", 3)
    for text in ("nightly tidy #1", "nightly tidy#1", first, first[:20]):
        assert find_job(store, text).id == first
    assert find_job(store, " nightly tidy ").id == second
    assert find_job(store, "nightly#1").id == other
    assert find_job(store, "latest").id == other
    assert find_job(store, "nightly tidy #2").run_name == "nightly tidy #2"
    assert store.find(pipeline="nightly tidy")[0].as_dict()["number"] == 2
    listed = find_jobs(store, ["nightly tidy#2", second, "nightly tidy#1"])
    assert [job.id for job in listed] == [second, first]
    with pytest.raises(JobError, match=r"nightly#8: no such job(.|\n)*nightly#9: no such job"):
        find_jobs(store, ["nightly#8", first, "nightly#9"])


def test_names_of_jobs_unicode_names_and_names_with_special_characters(store, add):
    names = ("Prüfung 夜", "a%_b", 'with "quotes" \\', "tab#3", "emoji 🚀")
    ids = {name: add(name, at) for at, name in enumerate(names)}
    for name, id_ in ids.items():
        assert find_job(store, name).id == id_
        assert find_job(store, f"{name} #1").id == id_
    named = add("unnamed", 9, name="my.job")
    assert find_job(store, "my.job").id == named
    with pytest.raises(JobError, match="no such job"):
        find_job(store, "PRÜFUNG 夜")
    with pytest.raises(JobError, match="no such job"):
        find_job(store, "axxb")


def test_a_name_that_is_also_the_beginning_of_an_id_is_ambiguous(store, add):
    older = add("other", 1, id="abcd1111-test-of-names")
    newer = add("abcd1111", 2)
    with pytest.raises(JobError, match="several jobs match") as caught:
        find_job(store, "abcd1111")
    assert older in str(caught.value)
    assert newer in str(caught.value)
    assert find_job(store, "abcd1111#1").id == newer
    add(older, 3)
    assert find_job(store, older).id == older  # an id has priority over an equal name


def test_a_pipeline_named_latest_is_not_confused_with_the_newest_job(store, add):
    named = add("latest", 101)
    assert find_job(store, "latest").id == named
    newest = add("another", 102)
    with pytest.raises(JobError, match="several jobs match") as caught:
        find_job(store, "latest")
    assert named in str(caught.value)
    assert newest in str(caught.value)
    assert find_job(store, "latest#1").id == named


def test_the_latest_job_of_an_empty_store_is_not_proposed(tmp_path):
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    with pytest.raises(JobError, match="has submitted none") as caught:
        find_job(store, "latest")
    assert "did you mean" not in str(caught.value)
    store.close()


def test_ambiguous_prefixes_list_the_candidates(store, add):
    ids = [add("p.ambiguous", at, id=f"e0e0e0-{at}") for at in range(7)]
    with pytest.raises(JobError) as caught:
        find_job(store, "e0e0e0")
    assert sum(id_ in str(caught.value) for id_ in ids) == 5
    assert "and more" in str(caught.value)
    assert "p.ambiguous #" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("nihgtly.unknown", "did you mean nightly.unknown?"),
        ("nightly.unknown#777", "the newest run is nightly.unknown #"),
        ("nightly.unknown#99999999999999999999", "'hyperplane job list' shows"),
        ("nightly.unknown#0", "'hyperplane job list' shows"),
        ("#1", "'hyperplane job list' shows"),
        ("x" * 10_000, "'hyperplane job list' shows"),
        ("  ", "'hyperplane job list' shows"),
        ("", "'hyperplane job list' shows"),
    ],
)
def test_unknown_names_are_errors_with_advice(store, add, text, advice):
    add("nightly.unknown", id=f"5ca1ab1e-{time.time_ns()}")
    with pytest.raises(JobError, match="no such job") as caught:
        find_job(store, text)
    assert advice in str(caught.value)


def test_text_that_no_database_can_hold_is_an_error(store):
    for text in ("\ud800", "nul\0", "\ud800 #1"):
        with pytest.raises(HyperplaneError):
            find_job(store, text)


def test_names_never_mean_jobs_of_other_users(store, add):
    add("of.others", 5, machine="eve@elsewhere")
    with pytest.raises(JobError, match=r"no such job of .*give the run number or the id"):
        find_job(store, "of.others")
    assert find_job(store, "of.others#1").machine == "eve@elsewhere"
    mine = add("of.others", 4)
    assert find_job(store, "of.others").id == mine


def test_jobs_of_earlier_versions_have_no_number_and_are_found(tmp_path):
    file = tmp_path / "jobs.db"
    store = JobStore(f"sqlite:///{file}")
    old = make_job("p")
    store.add(old)
    store.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE hyperplane_job_numbers")
        connection.execute("DROP TABLE hyperplane_pipeline_counters")
    store = JobStore(f"sqlite:///{file}")
    assert [(job.id, job.number, job.run_name) for job in store.find()] == [
        (old.id, None, old.name)
    ]
    assert find_job(store, "p").id == old.id
    new = replace(make_job("p"), submitted=5e9)
    store.add(new)
    assert find_job(store, "p").id == find_job(store, "p#1").id == new.id
    store.close()


def test_a_damaged_definition_is_listed_and_found_by_its_id(store, add):
    id_ = add("damaged.later")
    store.update(id_, definition="{no json")
    job = find_job(store, id_[:20])
    assert (job.number, job.pipeline_name, job.run_name) == (1, "", job.name)
    without = replace(make_job("p"), definition="[]")
    store.add(without)
    assert find_job(store, without.id).number is None


@pytest.fixture
def jobs_of_python():
    jobs = [make_job("of.python", at, status="done", ended=5e9) for at in (1, 2)]
    for job in jobs:
        open_store().add(job)
    yield jobs
    with open_store()._engine.begin() as connection:
        for job in jobs:
            connection.exec_driver_sql(f"DELETE FROM hyperplane_jobs WHERE id = '{job.id}'")


def test_python_calls_accept_names(jobs_of_python):
    first, second = jobs_of_python
    assert JobHandle("of.python").id == second.id
    assert JobHandle("of.python #1").id == first.id
    assert summarize_jobs(["of.python#1", "of.python"])[1]
    with pytest.raises(JobError, match=r"did you mean of\.python"):
        JobHandle("of.pyhton")


def test_only_ended_jobs_are_removed_in_one_transaction(store, add):
    ended, running = add("of.removal", status="done"), add("of.removal", status="in progress")
    calls = []
    assert not store.remove_ended(running, lambda: calls.append(running))
    assert store.remove_ended(ended, lambda: calls.append(ended))
    assert not store.remove_ended(ended, lambda: calls.append(ended))
    assert calls == [ended]
    assert [job.id for job in store.find(pipeline="of.removal")] == [running]

    def fail():
        raise OSError("cannot move")

    store.update(running, status="failed")
    with pytest.raises(OSError, match="cannot move"):
        store.remove_ended(running, fail)
    assert store.get(running).number == 2
    store.remove_ended(running, lambda: None)
    assert store.get(add("of.removal")).number == 3


def test_a_short_prefix_names_no_job_of_another_machine(store, add):
    other = add("nightly", machine="bob@other")
    with pytest.raises(JobError, match="no such job"):
        find_job(store, other[:4])
    assert find_job(store, other[:8]).id == find_job(store, other).id == other
