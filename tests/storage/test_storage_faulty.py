"""The store with injected faults fails as configured, and only then."""

from __future__ import annotations

import base64
import errno
import hashlib
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import creation_races
import faulty
import fsspec
import pandas as pd
import pytest
import servers
import store_errors
from creation_races import RACES
from faulty_objects import Objects
from hypothesis import given
from hypothesis import strategies as st
from scale import scaled

import hyperplane

LIKE = {"plain": (), "gcs": ("gcsfs",), "s3": ("s3fs",)}


def system_of(store):
    return fsspec.filesystem("faulty", **store.options)


def tried(system, count, name="bucket/{}"):
    """Write small objects once each in several threads; return the errors."""

    def write(number):
        try:
            system.pipe_file(name.format(number), str(number).encode())
        except Exception as error:  # noqa: BLE001 - each store raises its own
            return error
        return None

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(write, range(count)))


def test_without_faults_all_operations_succeed(faulty_store):
    store = faulty_store()
    frame = pd.DataFrame({"n": range(100)})
    frame.to_parquet(f"{store.url}/d e/ü.parquet", storage_options=store.options)
    found = pd.read_parquet(f"{store.url}/d e/ü.parquet", storage_options=store.options)
    pd.testing.assert_frame_equal(found, frame)
    system = system_of(store)
    system.pipe({"bucket/a": b"1", "bucket/f/b": b"22", "bucket/f/g/c": b"333"})
    assert system.find("bucket/f") == ["bucket/f/b", "bucket/f/g/c"]
    assert system.ls("bucket", detail=False) == ["bucket/a", "bucket/d e", "bucket/f"]
    assert system.glob("bucket/**/c") == ["bucket/f/g/c"]
    assert system.cat_file("bucket/f/g/c", 1, 2) == b"3"
    system.mv("bucket/a", "bucket/h/a")
    assert not system.exists("bucket/a")
    assert system.info("bucket/h/a")["size"] == 1
    system.rm("bucket/f", recursive=True)
    assert not system.exists("bucket/f")
    assert sorted(store.objects()) == ["bucket/d e/ü.parquet", "bucket/h/a"]
    for absent in ("bucket/f/b", "bucket/f", "bucket/h"):
        with pytest.raises(FileNotFoundError):
            system.cat_file(absent)
    with pytest.raises(OSError, match="not the name"):
        system.pipe_file("bucket/../../a", b"")
    assert pickle.loads(pickle.dumps(system)).cat_file("bucket/h/a") == b"1"


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_configured_fraction_of_calls_fails(faulty_store, share):
    store = faulty_store(transient=share, seed=1)
    calls = 1_000 if share < 0.1 else scaled(300, 1_000)
    errors = tried(system_of(store), calls)
    failed = [number for number, error in enumerate(errors) if error]
    assert 0.6 * share < len(failed) / calls < 1.4 * share
    journal = {call.path: call for call in store.journal()}
    assert len(journal) == calls
    refused = {path for path, call in journal.items() if call.outcome != "ok"}
    assert refused == {f"bucket/{number}" for number in failed}
    assert {journal[path].outcome for path in refused} == set(store_errors.TRANSIENT)
    assert set(store.objects()) == set(journal) - refused


def test_the_seed_determines_the_faults(faulty_store):
    def failures(seed):
        return list(map(repr, tried(system_of(faulty_store(transient=0.2, seed=seed)), 200)))

    assert failures(3) == failures(3) != failures(4)


def test_repeated_calls_succeed(faulty_store):
    store = faulty_store(transient=0.5)
    system = system_of(store)
    for number in range(100):
        for _ in range(50):
            try:
                system.pipe_file(f"bucket/{number}", b"x")
            except OSError:
                continue
            break
    assert len(store.objects()) == 100
    assert max(call.attempt for call in store.journal()) > 3


@pytest.mark.parametrize("like", LIKE)
def test_injected_errors_have_the_types_of_the_libraries(faulty_store, like):
    servers.need(*LIKE[like])
    for kind in store_errors.TRANSIENT:
        store = faulty_store(like=like, transient=1, kinds=(kind,), retry_after=7)
        (error,) = tried(system_of(store), 1)
        expected_error = store_errors.make(kind, like, "faulty://bucket/0", 7)
        assert (type(error), str(error)) == (type(expected_error), str(expected_error))
        answer = getattr(error.__cause__, "response", None)
        if like == "s3" and kind.isdigit():
            assert answer["ResponseMetadata"]["HTTPHeaders"] == {"retry-after": "7"}
        else:
            assert answer is None
        assert type(pickle.loads(pickle.dumps(error))) is type(error)
    for kind, expected in (("403", OSError), ("404", FileNotFoundError), ("ENOSPC", OSError)):
        store = faulty_store(like=like, permanent=kind)
        (error,) = tried(system_of(store), 1)
        assert isinstance(error, expected)
        assert not store.objects()
    assert error.errno == errno.ENOSPC


def test_permanent_errors_last_until_the_faults_are_changed(faulty_store):
    store = faulty_store()
    system = system_of(store)
    system.pipe_file("bucket/a", b"1")
    store.set(permanent="403")
    with pytest.raises(PermissionError):
        system.pipe_file("bucket/a", b"2")
    assert system.cat_file("bucket/a") == b"1"
    store.set(permanent="404")
    with pytest.raises(FileNotFoundError):
        system.cat_file("bucket/a")
    store.set(permanent="ENOSPC", only="bucket/_*")
    system.pipe_file("bucket/a", b"3")
    with pytest.raises(OSError, match="No space"):
        system.pipe_file("bucket/_commit", b"")
    store.set(permanent=None)
    system.pipe_file("bucket/_commit", b"")


class Clock:
    """A ``time`` module that records sleeps, and whose clock only the test advances."""

    def __init__(self):
        self.now, self.slept = 1_000_000.5, []

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch):
    """Make tests independent of the machine's speed."""
    fake = Clock()
    monkeypatch.setattr(faulty, "time", fake)
    return fake


def test_writes_per_second_are_limited(faulty_store, clock):
    store = faulty_store(writes_per_second=20, kinds=("429",))
    for second in (1, 2):
        clock.now += 1
        errors = tried(system_of(store), 100)
        assert errors.count(None) == 20
        done = [call for call in store.journal() if call.outcome == "ok"]
        assert len(done) == 20 * second
    assert {call.outcome for call in store.journal()} == {"ok", "429"}


def test_the_configured_fraction_of_replies_is_slow(faulty_store, clock):
    store = faulty_store(slow=0.1, slow_seconds=0.05)
    tried(system_of(store), 100)
    assert len(store.journal()) == 100
    assert 3 <= len(clock.slept) <= 25
    assert set(clock.slept) == {0.05}


def grow_old(store, path):
    """Make an object appear old."""
    os.utime(Objects(store.root).counter(f"new {path}"), (0, 0))


def test_a_new_object_is_listed_late_and_read_at_once(faulty_store):
    store = faulty_store(listing_delay=1000)
    system = system_of(store)
    system.pipe_file("bucket/f/old", b"1")
    grow_old(store, "bucket/f/old")
    system.pipe_file("bucket/f/new", b"2")
    system.pipe_file("bucket/f/old", b"3")
    assert system.find("bucket") == ["bucket/f/old"]
    assert not system.exists("bucket/f/new")
    assert system.cat_file("bucket/f/new") == b"2"
    with system.open("bucket/f/new") as file:
        assert file.read() == b"2"
    grow_old(store, "bucket/f/new")
    assert system.find("bucket") == ["bucket/f/new", "bucket/f/old"]
    assert system.info("bucket/f/new")["size"] == 1


def test_writes_with_lost_responses_are_stored(faulty_store):
    store = faulty_store(lost=0.3)
    system = system_of(store)
    errors = tried(system, 200)
    lost = [call.path for call in store.journal() if call.outcome == "lost"]
    assert 30 < len(lost) == len(errors) - errors.count(None) < 100
    assert len(store.objects()) == len(store.writes()) == 200
    store.set(lost=0)
    with pytest.raises(FileExistsError):
        system.pipe_file(lost[0], b"again", mode="create")


@pytest.mark.parametrize("like", LIKE)
def test_a_creation_with_a_lost_response_is_stored(faulty_store, like):
    servers.need(*LIKE[like])
    store = faulty_store(like=like, lost=1, kinds=("reset",))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared below
        system_of(store).pipe_file("bucket/a", b"1", mode="create")
    assert isinstance(caught.value, FileExistsError) == (like != "plain")
    assert store.objects() == {"bucket/a": b"1"}
    assert [(call.op, call.outcome) for call in store.journal()] == [("create", "lost")]


def test_one_of_several_concurrent_creations_succeeds(faulty_store):
    store = faulty_store()
    names = [b"1" * 1_000, b"2" * 1_000, b"3" * 1_000]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(3, creation_races.meet, (spawn.Barrier(3),)) as pool:
        tasks = [(store.options["root"], name) for name in names]
        won = pool.starmap(creation_races.create, tasks, chunksize=1)
        pool.close()
        pool.join()
    assert sorted(race for races in won for race in races) == list(range(RACES))
    objects = store.objects()
    for name, races in zip(names, won, strict=True):
        assert all(objects[f"bucket/{race}"] == name for race in races)
    journal = store.journal()
    assert len(journal) == 3 * RACES
    assert len({call.pid for call in journal}) == 3
    # Each attempt has its own number across processes.
    tries = [(call.path, call.attempt) for call in journal]
    assert set(tries) == {(f"bucket/{race}", n) for race in range(RACES) for n in (1, 2, 3)}


def fails_in_the_middle(system, path):
    with system.open(path, "wb", block_size=10) as file:
        file.write(b"x" * 25)
        assert not system.exists(path)
        raise KeyError


def test_files_are_published_as_on_a_real_store(faulty_store):
    store = faulty_store()
    system = system_of(store)
    with pytest.raises(KeyError):
        fails_in_the_middle(system, "bucket/a")
    assert store.objects() == {"bucket/a": b"x" * 25}
    with pytest.raises(KeyError), system.transaction:
        fails_in_the_middle(system, "bucket/b")
    assert list(store.objects()) == ["bucket/a"]
    file = system.open("bucket/a", "xb")
    file.write(b"y")
    with pytest.raises(FileExistsError):
        file.close()
    file.closed = True  # otherwise it is uploaded again when it is garbage-collected
    assert store.objects() == {"bucket/a": b"x" * 25}


@pytest.mark.parametrize("like", ["gcs", "s3"])
@given(data=st.binary(max_size=100))
def test_check_sums_are_those_of_the_bytes(tmp_path_factory, like, data):
    system = system_of(faulty.Store(tmp_path_factory.mktemp("s") / "s", like=like))
    for value in (b"before", data):
        system.pipe_file("bucket/a", value)
        md5 = hashlib.md5(value)
        (listed,) = system.ls("bucket")
        checksum_key = {"gcs": "md5Hash", "s3": "ETag"}[like]
        text = base64.b64encode(md5.digest()).decode()
        expected = {"gcs": text, "s3": f'"{md5.hexdigest()}"'}[like]
        assert listed[checksum_key] == system.info("bucket/a")[checksum_key] == expected
        assert listed["size"] == len(value)


@pytest.mark.cluster
def test_workers_share_the_store(faulty_store, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    store = faulty_store(transient=0.3, like="plain")
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=2, num_workers=1, ram_gb_per_proc=1
    )
    with cluster, client:
        client.run(faulty.register)
        system = system_of(store)
        futures = client.map(lambda number: tried(system, 1, f"bucket/w{number}"), range(30))
        errors = [error for (error,) in client.gather(futures)]
    journal = store.journal()
    assert {call.pid for call in journal} == {journal[0].pid} != {os.getpid()}
    assert len(journal) == 30
    assert len(store.objects()) == errors.count(None) < 30
