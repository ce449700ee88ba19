"""The job store in SQLite and in PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import dask.config
import pytest
from job_cases import bash, run_job
from scale import scaled

from hyperplane.errors import HyperplaneError, JobError, JobStoreError, RequestError
from hyperplane.jobs import supervisor_client
from hyperplane.jobs.store.job_records import (
    DONE,
    FAILED,
    IN_PROGRESS,
    OPEN,
    PENDING,
    Attempt,
    count_seconds,
)
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.store.jobs_home import open_store


def test_a_stored_job_is_read_unchanged(store, job):
    store.add(job)
    assert store.get(job.id) == job
    assert store.get(job.id[:20]) == job
    assert store.get_many([job.id, "unknown"]) == {job.id: job}
    assert store.find(name="the-job", statuses=[PENDING])[0] == job
    assert job.id in store.open_ids(job.machine)
    with pytest.raises(JobError, match="no such job"):
        store.get("unknown%")


def test_the_first_submission_of_a_resumed_job_is_kept(store, job):
    store.add(job)
    assert not store.reset(job, status=PENDING)  # it has not ended
    for _ in range(2):
        store.update(job.id, status=FAILED)
        began = time.time()
        assert store.reset(store.get(job.id), status=PENDING)
        again = store.get(job.id)
        assert (again.submitted, again.status) == (job.submitted, PENDING)
        assert again.requested == again.resumed >= began
    store.update(job.id, status=FAILED)
    assert store.remove_ended(job.id, lambda: None)
    store.add(job)
    assert store.get(job.id).resumed == 0


def test_the_seconds_of_earlier_runs_of_a_resumed_job_are_kept(store, job):
    store.add(job)
    # The third run was cancelled before it had begun.
    for times in ((100.0, 130.0), (200.0, 205.0), (0.0, 300.0)):
        read_before = store.get(job.id)
        store.update(job.id, status=FAILED, started=times[0], ended=times[1])
        assert store.reset(read_before, status=PENDING, started=0.0, ended=0.0)
    waiting = store.get(job.id)
    assert waiting.earlier_seconds == count_seconds(waiting, 400.0) == 35
    store.update(job.id, started=390.0)
    assert count_seconds(store.get(job.id), 400.0) == 45
    store.update(job.id, status=FAILED, ended=392.0)
    assert count_seconds(store.find(name="the-job")[0], 400.0) == 37
    assert store.remove_ended(job.id, lambda: None)
    store.add(job)
    assert count_seconds(store.get(job.id), 400.0) is None


def test_only_one_of_concurrent_updates_changes_a_status(store, job):
    store.add(job)

    def take(_):
        return store.update(job.id, if_status=[PENDING], status=IN_PROGRESS)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(take, range(8))) == [False] * 7 + [True]
    assert store.cancel_requests(OPEN) == []
    store.update(job.id, cancelled=True)
    assert store.cancel_requests(OPEN) == [job.id]


def test_attempts_are_stored_and_updated(store, job):
    store.add(job)
    first = Attempt(job.id, "one", -1, 1, started=1.0)
    second = Attempt(job.id, "one", -1, 2, started=2.0, log="a.log")
    for attempt in (second, first):
        store.save_attempt(attempt)
    ended = replace(first, status=FAILED, ended=3.0, exit_code=-9, reason="'", fault="memory")
    store.save_attempt(ended)
    assert store.attempts(job.id) == [ended, second]


def test_a_store_that_cannot_be_opened_is_reported_without_its_password():
    for url in ("nonsense", "mysql+nothing://a:geheim@b/c", "sqlite:////proc/no/such.db"):
        with pytest.raises(RequestError) as caught:
            JobStore(url)
        assert "geheim" not in str(caught.value)
        assert "a database that can be opened" in str(caught.value)


@pytest.mark.slow
@pytest.mark.service
def test_jobs_run_with_their_state_in_postgres(postgres, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__STORE", postgres)
    with dask.config.set({"hyperplane.jobs.store": postgres, "hyperplane.jobs.linger": 0.2}):
        job = run_job(bash("a", "echo hello"), bash("fan", "true", chunks=3))
        assert (job.status, len(job.attempts)) == (DONE, 4)
        assert open_store().get(job.id).status == DONE
        while supervisor_client.supervisor_pid() is not None:
            time.sleep(0.05)
        open_store().close()


def look_at_all(store, job):
    store.find()
    store.attempts("x")
    store.add(job)


def damaged_in(file, place, content):
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(content)


@pytest.mark.parametrize("how", ["no database", "cut off", "header", "pages", "empty pages"])
def test_a_damaged_store_is_reported_with_advice(tmp_path, monkeypatch, job, how):
    file = tmp_path / "damaged.db"
    url = f"sqlite:///{file}"
    if how == "no database":
        file.write_bytes(b"no database " * 1000)
    else:
        store = JobStore(url)
        for number in range(40):
            store.add(replace(job, id=f"{number:036}", run_id="x"))
        store.close()
        size = file.stat().st_size
        if how == "cut off":
            os.truncate(file, size // 2)
        elif how == "header":
            damaged_in(file, 0, b"SQLite format 9")
        else:
            for page in range(1, size // 4096):
                damaged_in(file, page * 4096, (b"\xff" if how == "pages" else b"\0") * 2000)
    with pytest.raises(JobStoreError) as caught:
        look_at_all(JobStore(url), job)
    message = str(caught.value)
    assert str(file) in message
    assert "move it away" in message
    assert "sqlalche" not in message.lower()
    assert "sqlite3." not in message
    assert not caught.value.passing


@pytest.mark.slow
def test_any_damage_raises_only_errors_of_hyperplane(tmp_path, job):
    file = tmp_path / "jobs.db"
    store = JobStore(f"sqlite:///{file}")
    for number in range(20):
        store.add(replace(job, id=f"{number:036}"))
        store.save_attempt(Attempt(f"{number:036}", "one", -1, 1, started=1.0))
    store.close()
    whole = file.read_bytes()
    draw = random.Random(1)
    for _ in range(scaled(60, 200)):
        content = bytearray(whole)
        for _ in range(draw.choice((1, 20, 400))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        file.write_bytes(content)
        for other in ("-wal", "-shm"):
            file.with_name(file.name + other).unlink(missing_ok=True)
        with suppress(HyperplaneError):
            use(JobStore(f"sqlite:///{file}"), job.machine)


def use(store, machine):
    for call in (
        store.find,
        partial(store.attempts, f"{3:036}"),
        partial(store.get, "0"),
        partial(store.update, f"{3:036}", status=DONE),
        partial(store.open_ids, machine),
        partial(store.save_attempt, Attempt(f"{3:036}", "two", -1, 1)),
        lambda: list(store.expire_pending(machine)),
    ):
        with suppress(HyperplaneError):
            call()
    store.close()


def test_sqlite_uses_no_wal_on_a_network_file_system(tmp_path, monkeypatch):
    def mode(name):
        JobStore(f"sqlite:///{tmp_path / name}").close()
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as opened:
            return opened.execute("PRAGMA journal_mode").fetchone()[0]

    assert mode("local.db") == "wal"
    monkeypatch.setattr("hyperplane.jobs.store.database.is_on_network", lambda path: True)
    assert [mode(name) for name in ("shared.db", "local.db")] == ["delete", "delete"]
