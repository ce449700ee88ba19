"""The files of the records of runs."""

import datetime as dt
import errno
import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from threading import Barrier

import dask
import pytest

from hyperplane.errors import ConfigError, ReadError, RequestError
from hyperplane.history import RunRecord, TaskUsage, list_runs, read_run, store
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import RECORDS_FOLDER, copy_run, write_run


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


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free space on that disk"), (errno.EROFS, "let this user write the folder")],
)
def test_a_record_that_cannot_be_written_names_its_file_and_what_to_do(
    number, advice, folder, monkeypatch
):
    def fail(descriptor, *arguments, **options):
        os.close(descriptor)
        raise OSError(number, os.strerror(number))

    record = new_record()
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fdopen", fail)
        with pytest.raises(OSError, match=advice) as caught:
            write_run(record)
    assert caught.value.errno == number
    assert repr(str(folder / f"{record.name}.json")) in str(caught.value)
    assert "set XDG_STATE_HOME" in str(caught.value)
    assert list(folder.iterdir()) == []


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
    with pytest.raises(RequestError, match="name of a record, a cluster or a block"):
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


def test_the_same_record_is_written_once(folder):
    written = [write_run(new_record()) for _ in range(2)]
    assert written == [new_record()] * 2
    assert list_runs() == [new_record()]
    assert len(list(folder.iterdir())) == 1


def test_a_record_of_another_run_with_the_same_start_is_not_replaced():
    other = new_record().model_copy(update={"ended": 61.0})
    written = [write_run(new_record()), write_run(other)]
    assert sorted(record.ended for record in list_runs()) == [60, 61]
    assert [read_run(record.name) for record in written] == written


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
    with pytest.warns(UserWarning, match="weather.json is no record of a run and is left out"):
        assert [record.cluster for record in list_runs()] == ["flights"]
    with pytest.raises(ReadError, match="delete the file") as caught:
        read_run("weather")
    assert caught.value.url == str(damaged)


@pytest.mark.parametrize("time", ["Infinity", "NaN", "1e18", "-1"])
@pytest.mark.parametrize("name", ["started", "ended"])
def test_a_record_of_a_time_that_is_no_date_is_damaged(folder, name, time):
    kept = write_run(new_record(started=5))
    text = new_record().to_json()
    damaged = folder / f"{new_record().name}.json"
    damaged.write_text(
        text.replace(f'"{name}": {getattr(new_record(), name)}', f'"{name}": {time}')
    )
    assert damaged.read_text() != text
    with pytest.warns(UserWarning, match="is no record of a run"):
        assert list_runs() == [kept]
    with pytest.raises(ReadError, match="delete the file"):
        read_run(new_record().name)


def test_an_error_leaves_no_draft(folder, monkeypatch):
    monkeypatch.setattr(RunRecord, "to_json", lambda self: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_run(new_record())
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("suffix", ["11", "draft"])  # "11" is that of an earlier version
def test_old_drafts_are_removed_and_recent_ones_kept(folder, suffix):
    write_run(new_record())
    drafts = [folder / f"{new_run_name('other', second)}.{suffix}" for second in (2, 3)]
    for draft in drafts:
        draft.write_text("{")
    old = time.time() - 2 * store._ABANDONED
    os.utime(drafts[0], (old, old))
    write_run(new_record(started=3))
    assert [draft.exists() for draft in drafts] == [False, True]


def test_a_name_that_another_writer_has_is_not_used(folder):
    write_run(new_record(started=9))
    draft = folder / f"{new_record().name}.draft"
    draft.write_text("{")  # of another process, which has not finished
    assert write_run(new_record()).name == "19700101-000000.000000-flights"
    assert draft.read_text() == "{"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    write_run(new_record())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user"):
        write_run(new_record(started=1))


def test_two_clusters_of_one_name_and_second_have_two_records():
    first, second = new_record(), new_record().model_copy(update={"started": 0.25})
    written = [write_run(first), write_run(second)]
    assert [record.name for record in written] == [
        "19700101-000000-flights",
        "19700101-000000.250000-flights",
    ]
    assert sorted(record.started for record in list_runs()) == [0, 0.25]


def new_block(block, started=0.0):
    name = new_run_name(block.replace("/", "."), started)
    return RunRecord(name=name, cluster="flights", block=block, started=started, ended=started + 1)


def test_no_record_of_many_in_one_second_is_lost_or_of_a_later_time():
    written = [write_run(new_block("loop", 7 + number / 200)) for number in range(150)]
    written.append(write_run(new_block("last", 7.9)))
    assert len({record.name for record in written}) == 151
    assert {record.name[:15] for record in written} == {"19700101-000007"}
    assert list_runs() == written[::-1]
    assert [read_run(record.name) for record in written] == written
    assert read_run("latest") == read_run("last") == written[-1]
    assert write_run(new_block("loop", 7 + 3 / 200)) == written[3]
    assert len(list_runs()) == 151


def test_of_many_in_one_second_the_oldest_are_removed():
    with dask.config.set({"hyperplane.history.keep": 3}):
        written = [write_run(new_block("loop", 7 + number / 20)) for number in range(20)]
    assert list_runs() == written[:-4:-1]


def test_a_time_names_one_run_also_if_others_began_in_its_second():
    first, second = write_run(new_record()), write_run(new_block("clean", 0.5))
    assert (second.name, read_run("19700101-000000.500000")) == (
        "19700101-000000.500000-clean",
        second,
    )
    assert read_run("19700101-000000") == first


def test_without_a_free_name_there_is_an_error_and_no_draft(folder, monkeypatch):
    monkeypatch.setattr(store, "_MOST_NAMES", 2)
    records = [new_record().model_copy(update={"ended": 60.0 + number}) for number in range(4)]
    for record in records[:3]:
        write_run(record)
    with pytest.raises(FileExistsError, match="2 records of other runs named like 19700101-000000"):
        write_run(records[3])
    assert len(list(folder.iterdir())) == 3


def test_runs_of_one_second_are_in_the_order_of_their_starts():
    # A block within another one is recorded first, so that its name has no microseconds.
    last, first = write_run(new_block("outer/inner", 7.5)), write_run(new_block("outer", 7.25))
    assert [record.name for record in (last, first)] == [
        "19700101-000007-outer.inner",
        "19700101-000007.250000-outer",
    ]
    assert list_runs() == [last, first]
    assert read_run("latest") == last
    with dask.config.set({"hyperplane.history.keep": 2}):
        other = write_run(new_block("other", 7.75))
    assert list_runs() == [other, last]


def test_blocks_whose_files_are_named_alike_are_not_confused():
    nested, dotted = write_run(new_block("a/b")), write_run(new_block("a.b", 5))
    assert (read_run("a/b"), read_run("a.b")) == (nested, dotted)
    write_run(new_block("clean/join", 9))
    for name in ("clean.join", "clean/joi"):
        with pytest.raises(RequestError, match=r"did you mean clean/join\?"):
            read_run(name)


def _write_many(number):
    for count in range(10):
        started = 1000.0 + count + number / 1000
        write_run(new_record(started=started))


def _write_many_as_one_process(number):
    # In containers the first process has the ID 1.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        _write_many(number)


@pytest.mark.process
@pytest.mark.parametrize("start", [_write_many, _write_many_as_one_process])
def test_several_processes_write_at_once(start):
    with ProcessPoolExecutor(4, get_context("fork")) as executor:
        list(executor.map(start, range(4)))
    records = list_runs()
    assert len(records) == len({record.name for record in records}) == 40


def test_several_threads_write_blocks_of_one_name_at_once():
    barrier = Barrier(8)

    def write(number):
        barrier.wait(60)
        # The starts may be the same, as with a clock of low resolution.
        return write_run(new_block("part", 7).model_copy(update={"ended": 8.0 + number}))

    with ThreadPoolExecutor(8) as executor:
        written = list(executor.map(write, range(8)))
    assert len({record.name for record in written}) == 8
    assert sorted(record.ended for record in list_runs()) == [8.0 + number for number in range(8)]


@pytest.mark.process
def test_retention_holds_with_several_processes():
    with (
        dask.config.set({"hyperplane.history.keep": 5}),
        ProcessPoolExecutor(4, get_context("fork")) as executor,
    ):
        list(executor.map(_write_many, range(4)))
        write_run(new_record(started=5000))
    assert len(list_runs()) == 5


def test_runs_are_selected_by_name_text_and_time():
    now = time.time()
    old = new_record(started=now - 9 * 86400)
    new = new_record("weather", started=now - 60).model_copy(
        update={
            "program": "etl.py",
            "pipeline": "nightly",
            "step": "clean",
            "tasks": (TaskUsage("read-parquet"),),
        }
    )
    for record in (old, new):
        write_run(record)
    for name in ("weather", "etl.py", "nightly", "nightly/clean", new.name):
        assert list_runs(name) == [new]
    assert list_runs(text="READ-PAR") == [new]
    assert list_runs(since="2 days") == [new]
    assert list_runs(until="2 days") == [old]
    day = dt.datetime.fromtimestamp(now - 5 * 86400)
    assert list_runs(since=day) == [new]
    assert list_runs(until=day.isoformat()) == [old]
    assert list_runs(limit=1) == [new]
    assert list_runs("flights", since="1 day") == []
    assert read_run("latest") == new


def test_all_faults_of_a_selection_are_reported():
    with pytest.raises(RequestError) as caught:
        list_runs(3, text=b"x", since="yesterday", until=7, limit=0)
    assert [fault.where for fault in caught.value.faults] == [
        "name", "text", "since", "until", "limit",
    ]  # fmt: skip


def test_a_copy_is_left_for_the_supervisor_of_a_job(folder, tmp_path, monkeypatch):
    copy_run(new_record())
    assert not folder.exists()
    monkeypatch.setenv(RECORDS_FOLDER, str(tmp_path / "attempt-1.runs"))
    copy_run(new_record())
    (file,) = (tmp_path / "attempt-1.runs").iterdir()
    assert RunRecord.from_json(file.read_bytes()) == new_record()
    assert file.stat().st_mode & 0o777 == 0o600
