"""Shares of lists of files."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from counting_store import fresh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane import RequestError, shard_files


@pytest.fixture
def folder(tmp_path):
    for number in range(23):
        (tmp_path / f"part-{number}.csv").write_text("a" * number)
    return tmp_path


def ordered(folder):
    return [str(folder / f"part-{number}.csv") for number in range(23)]


@pytest.mark.parametrize("n", [1, 2, 7, 23, 30])
def test_shares_are_those_of_array_split_in_natural_order(folder, n):
    expected = [list(part) for part in np.array_split(np.array(ordered(folder)), n)]
    assert [shard_files(folder / "*.csv", n, idx) for idx in range(n)] == expected


def test_the_order_of_the_list_does_not_matter(folder):
    shuffled = ordered(folder)
    random.Random(0).shuffle(shuffled)
    for by in ("count", "bytes"):
        for idx in range(4):
            of_list = shard_files([*shuffled, *shuffled], 4, idx, by=by)
            assert of_list == shard_files(folder, 4, idx, by=by)


def test_names_that_differ_only_in_leading_zeros_have_an_order(tmp_path):
    paths = [tmp_path / name for name in ("a-1", "a-01", "a-001")]
    for path in paths:
        path.write_text("")
    assert shard_files(paths, 3, 0) == shard_files(paths[::-1], 3, 0) == [str(paths[2])]


@settings(max_examples=scaled(20, 100), suppress_health_check=list(HealthCheck))
@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=20), n=st.integers(1, 12))
def test_shares_by_bytes_are_contiguous_and_near_the_mean(sizes, n):
    store = fresh()
    for number, size in enumerate(sizes):
        store.pipe_file(f"/d/{number}.bin", b"x" * size)
    shares = [shard_files("tally://d/*", n, idx, by="bytes") for idx in range(n)]
    files = [url for share in shares for url in share]
    assert files == [f"tally:///d/{number}.bin" for number in range(len(sizes))]
    length = dict(zip(files, sizes, strict=True))
    for share in shares:
        nbytes = sum(length[url] for url in share)
        assert abs(nbytes - sum(sizes) / n) <= max(sizes)


def test_a_file_belongs_to_the_share_of_its_middle_byte(tmp_path):
    for name, size in (("a", 1), ("b", 10), ("c", 1)):
        (tmp_path / name).write_text("x" * size)
    assert shard_files(tmp_path, 2, 0, by="bytes") == [str(tmp_path / "a")]


def test_shares_by_bytes_differ_from_shares_by_count(folder):
    sizes = [len(shard_files(folder, 4, idx, by="bytes")) for idx in range(4)]
    assert sum(sizes) == 23
    assert sizes[0] > 2 * sizes[3]


def test_the_environment_determines_the_share(folder, monkeypatch):
    monkeypatch.setenv("CLOUD_RUN_TASK_INDEX", "2")
    monkeypatch.setenv("CLOUD_RUN_TASK_COUNT", "3")
    assert shard_files(folder) == shard_files(folder, 3, 2)


def test_all_faults_are_reported_together(folder):
    with pytest.raises(RequestError) as raised:
        shard_files(folder, 0, "one", by="size")
    assert [fault.where for fault in raised.value.faults] == ["idx", "n_machines", "by"]
    with pytest.raises(RequestError, match="none were found"):
        shard_files(folder / "*.parquet", 2, 0)


@pytest.mark.parametrize("by", ["count", "bytes"])
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_new_file_does_not_change_shares_of_a_frozen_listing(folder, tmp_path, by, place):
    frozen = tmp_path / "run.json" if place == "disk" else f"memory://frozen/{tmp_path.name}.json"
    files = ordered(folder)
    shares = [shard_files(folder / "*.csv", 3, 0, by=by, frozen=frozen)]
    (folder / "part-00.csv").write_text("a" * 1000)
    shares += [shard_files(folder / "*.csv", 3, idx, by=by, frozen=frozen) for idx in (1, 2)]
    assert [file for share in shares for file in share] == files
    assert shares[0] != shard_files(folder / "*.csv", 3, 0, by=by)


def test_shards_that_start_concurrently_have_one_listing(folder, tmp_path):
    def share(idx):
        (folder / f"new-{idx}.csv").write_text("a")
        return shard_files(folder / "*.csv", 8, idx, frozen=tmp_path / "run.json")

    with ThreadPoolExecutor(8) as pool:
        files = [file for share_files in pool.map(share, range(8)) for file in share_files]
    assert len(files) == len(set(files))
    frozen = json.loads((tmp_path / "run.json").read_text())["files"]
    assert sorted(files) == sorted(file for file, _ in frozen)
    assert set(ordered(folder)) <= set(files)


def test_the_fault_of_a_frozen_listing_shows_no_secrets(folder, tmp_path):
    listing = {"asked": ["https://me:pass@host/a.csv?signature=key"], "files": []}
    (tmp_path / "run.json").write_text(json.dumps(listing))
    with pytest.raises(RequestError) as raised:
        shard_files(folder / "*.csv", 3, 0, frozen=tmp_path / "run.json")
    (fault,) = raised.value.faults
    assert fault.allowed.endswith("it lists https://host/a.csv")


def test_a_frozen_listing_of_other_urls_is_refused(folder, tmp_path):
    shard_files(folder / "*.csv", 3, 0, frozen=tmp_path / "run.json")
    with pytest.raises(RequestError, match="a listing of the same urls"):
        shard_files(folder / "part-1*.csv", 3, 0, frozen=tmp_path / "run.json")
    for text in ("", "{}", "[1]", '{"asked": 1, "files": 2}'):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(RequestError, match="a new file name"):
            shard_files(folder / "*.csv", 3, 0, frozen=tmp_path / "other.json")
