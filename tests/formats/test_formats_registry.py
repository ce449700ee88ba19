"""Formats of other packages, and names and suffixes that are wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import pandas as pd
import pytest

from hyperplane import load, save, shard_rows
from hyperplane.calculator.measure import measure_files
from hyperplane.core import registry as core_registry
from hyperplane.dataframe import read
from hyperplane.errors import RequestError
from hyperplane.formats import registry
from hyperplane.formats.base import SizeEstimate, SupportsRead, SupportsSize
from hyperplane.formats.csv.format import CsvFormat

FRAME = pd.DataFrame({"n": range(5), "s": list("abcde")})


class PipeFormat:
    """A format of another package: CSV whose separator is "|"."""

    name = "pipe"
    suffixes = (".pipe", ".csv", ".parquet")
    read_options: tuple[str, ...] = ("na_values",)

    def plan_partitions(
        self, files: Sequence[Any], request: Any, options: Mapping[str, Any]
    ) -> Any:
        return CsvFormat().plan_partitions(files, request, {**options, "separator": "|"})

    def plan_shard(
        self, files: Sequence[Any], request: Any, options: Mapping[str, Any], index: int, count: int
    ) -> Any:
        return (
            replace(self.plan_partitions(files, request, options), parts=[])
            if index
            else (self.plan_partitions(files, request, options))
        )

    def estimate_size(self, files: Sequence[Any]) -> SizeEstimate:
        return SizeEstimate(12345 * len(files), "as the other package says")


class OtherParquet(PipeFormat):
    """A class that another package registers under the name of a built-in format."""

    name = "parquet"


@pytest.fixture(autouse=True)
def _other_packages(monkeypatch: pytest.MonkeyPatch) -> Any:
    points = {
        "pipe": f"{__name__}:PipeFormat",
        "parquet": f"{__name__}:OtherParquet",
        "broken": "no_such_package_at_all:Format",
    }
    group = "hyperplane.formats"
    entry_points = EntryPoints([EntryPoint(name, value, group) for name, value in points.items()])
    monkeypatch.setattr(
        core_registry, "entry_points", lambda group: entry_points.select(group=group)
    )
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "a.pipe", sep="|", index=False)
    return tmp_path / "a.pipe"


def test_another_package_adds_a_format(pipe: Path) -> None:
    assert read(pipe).compute().n.tolist() == [0, 1, 2, 3, 4]
    assert read(pipe, columns=["s"], filters=[("n", ">", 2)]).compute().s.tolist() == ["d", "e"]
    parts = [shard_rows(pipe, 2, index) for index in range(2)]
    assert [len(part) for part in parts] == [5, 0]
    assert measure_files(str(pipe)) == (12345, "as the other package says")


def test_an_added_format_accepts_only_its_options(pipe: Path) -> None:
    assert read(pipe, na_values="b").compute().s.isna().sum() == 1
    with pytest.raises(RequestError) as failed:
        read(pipe, separator=";")
    (fault,) = failed.value.faults
    assert (fault.where, fault.allowed) == ("separator", "no value for pipe files")
    assert fault.advice == "leave it out: separator applies to csv files only"


def test_an_added_format_can_be_selected_with_format(pipe: Path) -> None:
    other = pipe.rename(pipe.with_suffix(".dat"))
    assert read(other, format="pipe").compute().n.tolist() == [0, 1, 2, 3, 4]


def test_built_in_formats_read_their_files_despite_added_formats(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.to_parquet(tmp_path / "a.parquet")
    for path in tmp_path.iterdir():
        for format_given in (None, path.suffix[1:]):
            assert read(path, format=format_given).compute().n.tolist() == [0, 1, 2, 3, 4]
        assert len(shard_rows(path, 1, 0)) == 5
        assert measure_files(str(path))[1] != "as the other package says"


def test_an_added_format_is_not_imported_for_files_of_a_built_in_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")

    def fail(self: Any, point: Any) -> None:
        raise AssertionError(f"{point} is imported")

    monkeypatch.setattr(core_registry.Registry, "_load_entry_point", fail)
    assert len(read(tmp_path / "a.parquet")) == 5


def test_an_unknown_suffix_lists_all_suffixes_and_broken_formats(tmp_path: Path) -> None:
    (tmp_path / "a.unknown").write_text("a")
    with pytest.raises(RequestError) as failed:
        read(tmp_path / "a.unknown")
    unknown, broken = failed.value.faults
    assert ".pipe" in unknown.allowed
    assert ".orc" in unknown.allowed
    assert "no_such_package_at_all" in broken.allowed


def test_an_unknown_name_has_suggestions(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError) as failed:
        read(tmp_path / "a.parquet", format="parqet")
    (fault,) = failed.value.faults
    assert fault.where == "format"
    known = sorted([*registry.list_formats(SupportsRead, built_in=True)[0], "pipe"])
    assert fault.allowed == f"one of {', '.join(known)}"
    assert "parquet" in fault.advice


class RaisingFormat(PipeFormat):
    name = "wrong"

    def __init__(self) -> None:
        raise RuntimeError("not today")


class NoSuffixes:
    name = "wrong"


class NoSavedSuffixes(PipeFormat):
    name = "wrong"
    saved_suffixes = None


class EmptySavedSuffixes(PipeFormat):
    name = "wrong"
    saved_suffixes = ()


class TextAsSuffixes(PipeFormat):
    name = "wrong"
    suffixes: Any = ".pipe"


class OtherName(PipeFormat):
    name = "parquet"


@pytest.mark.parametrize(
    "wrong",
    [
        RaisingFormat,
        NoSuffixes,
        NoSavedSuffixes,
        EmptySavedSuffixes,
        TextAsSuffixes,
        OtherName,
    ],
)
def test_an_invalid_format_class_is_named_and_does_not_affect_other_formats(
    pipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: type
) -> None:
    group = "hyperplane.formats"
    points = {"wrong": wrong.__name__, "pipe": "PipeFormat"}
    entry_points = EntryPoints(
        [EntryPoint(name, f"{__name__}:{value}", group) for name, value in points.items()]
    )
    monkeypatch.setattr(
        core_registry, "entry_points", lambda group: entry_points.select(group=group)
    )
    assert read(pipe).compute().n.tolist() == [0, 1, 2, 3, 4]
    collection = dask.dataframe.from_pandas(FRAME, npartitions=1)
    save(collection, tmp_path / "run.v2")
    assert len(load(tmp_path / "run.v2")) == 5
    with pytest.raises(RequestError, match=f"test_formats_registry:{wrong.__name__}"):
        read(pipe, format="wrong")
    with pytest.raises(RequestError, match=f"test_formats_registry:{wrong.__name__}"):
        save(FRAME, tmp_path / "out", format="wrong")


@pytest.mark.parametrize("name", ["broken", "zarr", 3, ["csv"]])
def test_a_format_that_cannot_be_read_is_refused(tmp_path: Path, name: Any) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError) as failed:
        read(tmp_path / "a.parquet", format=name)
    assert {fault.where for fault in failed.value.faults} == {"format"}


def test_each_format_has_its_registered_name_and_different_suffixes() -> None:
    for interface in (SupportsRead, SupportsSize):
        formats, _ = registry.list_formats(interface, built_in=True)
        suffixes = [suffix for file_format in formats.values() for suffix in file_format.suffixes]
        assert len(suffixes) == len(set(suffixes))
        assert all(file_format.name == name for name, file_format in formats.items())


@pytest.mark.process
def test_listing_formats_imports_none_of_their_libraries() -> None:
    code = (
        "import sys\n"
        "from hyperplane.formats import base, registry\n"
        "registry.list_formats(base.SupportsRead)\n"
        "print([n for n in ('pandas', 'polars', 'pyarrow', 'fastavro') if n in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
