"""Dask tokens of partitions: equal for the same rows, different for other stores and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest
from dask.tokenize import tokenize
from fsspec.implementations.memory import MemoryFileSystem

from hyperplane.dataframe import read
from hyperplane.formats.registry import load
from hyperplane.formats.request import ReadRequest
from hyperplane.objectstore.listing import find_files
from hyperplane.objectstore.locations import Store


class EndpointFileSystem(MemoryFileSystem):
    """A store whose address is an option, as that of S3 is."""

    protocol = "endpoint"

    def __init__(self, address: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.address = address

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("endpoint://", "memory://"))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {**super().info(path, **options), "ETag": "the same"}


@pytest.fixture(autouse=True)
def _endpoints() -> Any:
    fsspec.register_implementation("endpoint", EndpointFileSystem, clobber=True)
    for suffix in ("csv", "parquet"):
        with fsspec.open(f"endpoint://tokens/a.{suffix}", "wb") as file:
            frame = pd.DataFrame({"n": [1, 2]})
            if suffix == "csv":
                frame.to_csv(file, index=False)
            else:
                frame.to_parquet(file)
    yield
    fsspec.config.conf.pop("endpoint", None)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_endpoint_is_part_of_the_name(suffix: str) -> None:
    url = f"endpoint://tokens/a.{suffix}"
    names = [
        read(url, storage_options={"address": endpoint}).expr._name
        for endpoint in ("http://one", "http://two", "http://one")
    ]
    assert names[0] != names[1]
    assert names[0] == names[2]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_configured_endpoint_is_part_of_the_name(suffix: str) -> None:
    names = []
    for endpoint in ("http://one", "http://two", "http://one"):
        fsspec.config.conf["endpoint"] = {"address": endpoint}
        names.append(read(f"endpoint://tokens/a.{suffix}").expr._name)
    assert names[0] != names[1]
    assert names[0] == names[2]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_each_file_of_a_partition_has_the_token_of_its_store(suffix: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        frame = pd.DataFrame({"n": [1, 2]})
        path = tmp_path / f"{name}.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    (part,) = read(tmp_path, partition_size="100MB").expr.iterables[0]
    field = "ranges" if suffix == "csv" else "pieces"
    first, second = part.slices
    other = Store("memory", "memory://", {})
    moved = replace(second, file=replace(second.file, store=other))
    tokens = {
        tokenize(replace(part, **{field: pieces}))
        for pieces in ((first, second), (first, moved), (moved, first))
    }
    assert len(tokens) == 3
    assert tokenize(part) in tokens


@pytest.mark.parametrize("suffix", ["csv", "orc", "parquet"])
def test_each_shard_of_a_file_has_another_token(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    frame = pd.DataFrame({"n": range(6)})
    frame.to_csv(path, index=False) if suffix == "csv" else getattr(frame, f"to_{suffix}")(path)
    files, file_format = find_files(path), load(suffix)
    plans = [file_format.plan_shard(files, ReadRequest(), {}, idx, 3) for idx in (0, 1, 2, 2)]
    tokens = [tokenize(*plan.parts) for plan in plans]
    assert len(set(tokens)) == 3
    assert tokens[2] == tokens[3]
