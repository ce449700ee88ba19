"""The files of the records of runs."""

import os
import time
from pathlib import Path

import dask
import pytest

from hyperplane.errors import ConfigError, ReadError, RequestError
from hyperplane.history import RunRecord, list_runs, read_run, store
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "hyperplane" / "history"


def new_record(cluster="flights", started=0.0):
    name = new_run_name(cluster, started)
    return RunRecord(name=name, cluster=cluster, started=started, ended=started + 60)


def test_runs_are_listed_newest_first():
    written = [new_record(started=number) for number in range(3)]
    for record in written:
        write_run(record)
    assert list_runs() == written[::-1]


def test_without_a_folder_there_are_no_runs(folder):
    assert list_runs() == []
    assert not folder.exists()
    with pytest.raises(RequestError, match="hyperplane history list shows them"):
        read_run("flights")


def test_a_run_is_found_by_its_name_its_time_and_its_cluster():
    old, new, other = new_record(), new_record(started=5), new_record("weather", started=9)
    for record in (old, new, other):
        write_run(record)
    assert read_run(old.name) == old
    assert read_run(old.name[: -len("-flights")]) == old
    assert read_run("flights") == new
    with pytest.raises(RequestError, match="did you mean flights"):
        read_run("flight")


@pytest.mark.parametrize("name", ["", "../secret", "a/b", ".hidden", None, 3, "a\0b"])
def test_other_names_are_refused(name):
    with pytest.raises(RequestError, match="name of a record or of a cluster"):
        read_run(name)


def test_only_the_user_can_read_the_files(folder):
    mask = os.umask(0)
    try:
        write_run(new_record())
    finally:
        os.umask(mask)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    write_run(new_record(started=1))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_record_is_replaced_by_one_of_its_name(folder):
    write_run(new_record())
    again = new_record().model_copy(update={"exit_reason": "closed"})
    write_run(again)
    assert list_runs() == [again]
    assert len(list(folder.iterdir())) == 1


def test_the_oldest_records_are_removed(folder):
    with dask.config.set({"hyperplane.history.keep": 2}):
        for number in range(5):
            write_run(new_record(started=number))
    assert [record.started for record in list_runs()] == [4, 3]


def test_no_records_are_kept_with_zero(folder):
    with dask.config.set({"hyperplane.history.keep": 0}):
        write_run(new_record())
    assert not folder.exists()


@pytest.mark.parametrize("keep", [-1, "many", 1.5, None])
def test_an_invalid_number_names_the_setting(keep):
    with (
        dask.config.set({"hyperplane.history.keep": keep}),
        pytest.raises(ConfigError, match=r"hyperplane\.history\.keep"),
    ):
        write_run(new_record())


def test_damaged_files_are_left_out_and_named(folder):
    write_run(new_record())
    damaged = folder / f"{new_run_name('weather', 1)}.json"
    damaged.write_text("{")
    assert [record.cluster for record in list_runs()] == ["flights"]
    with pytest.raises(ReadError, match="delete the file") as caught:
        read_run("weather")
    assert caught.value.url == str(damaged)


def test_an_error_leaves_no_draft(folder, monkeypatch):
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("full"))
    )
    with pytest.raises(OSError, match="full"):
        write_run(new_record())
    assert list(folder.iterdir()) == []


def test_old_drafts_are_removed_and_recent_ones_kept(folder):
    write_run(new_record())
    drafts = [folder / f"{new_run_name('other', 2)}.{pid}" for pid in (11, 12)]
    for draft in drafts:
        draft.write_text("{")
    old = time.time() - 2 * store._ABANDONED
    os.utime(drafts[0], (old, old))
    write_run(new_record(started=3))
    assert [draft.exists() for draft in drafts] == [False, True]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    write_run(new_record())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user"):
        write_run(new_record(started=1))
