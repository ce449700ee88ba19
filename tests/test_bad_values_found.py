"""Bad values that once ended in another library's error, in a long wait, or in silence."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
import hyperplane.array
import hyperplane.bag
import hyperplane.dataframe
import hyperplane.jobs
import hyperplane.utils
from hyperplane.errors import HyperplaneError, ReadError, RequestError

HUGE = 10**400
FRAME = pd.DataFrame({"a": [1, 2], "b": [1, 2]})
#: Nothing listens on port 9 of this machine.
NOWHERE = "http://127.0.0.1:9/x.csv"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    deep = "[" * 100_000
    for name, text in {
        "bad.skops": "x", "deep.json": deep, "deep.yaml": deep, "deep.jsonl": f"{deep}\n",
    }.items():  # fmt: skip
        Path(name).write_text(text)
    with dask.config.set(scheduler="sync"):
        yield


def frame() -> dd.DataFrame:
    return dd.from_pandas(FRAME, npartitions=1)


def step(**values: Any) -> Any:
    return hyperplane.jobs.Step(name="s", kind="command", **{"argv": ("true",), **values})


#: What is called -> what its error says. Several of one kind stand for their relatives.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "submit(None)": (lambda: hyperplane.jobs.submit(None), "path = 'None'"),
    "read_pipeline(3)": (lambda: hyperplane.jobs.read_pipeline(3), "path = '3'"),
    "load of a bad .skops": (lambda: hyperplane.load("bad.skops"), "damaged"),
    "load of nested brackets": (lambda: hyperplane.load("deep.json"), "damaged"),
    "load of nested lines": (lambda: hyperplane.load("deep.jsonl"), "damaged"),
    "read of nested lines": (lambda: hyperplane.dataframe.read("deep.jsonl"), "JSON array"),
    "read_records of nested lines": (
        lambda: hyperplane.bag.read_records("deep.jsonl").compute(), "no records",
    ),
    "read_pipeline of nested lists": (
        lambda: hyperplane.jobs.read_pipeline("deep.yaml"), "inside each other",
    ),
    "load of a zero byte": (lambda: hyperplane.load("file:///x\0"), "url = 'file"),
    "save to http": (lambda: hyperplane.save(FRAME, NOWHERE), "can be written to"),
    "MemoryPolicy": (lambda: hyperplane.MemoryPolicy(target=HUGE), "memory.target"),
    "closest_pool, cores": (lambda: hyperplane.closest_pool(HUGE, 1), "cores ="),
    "closest_pool, memory": (lambda: hyperplane.closest_pool(1, HUGE), "ram_gb ="),
    "load of a refused port": (lambda: hyperplane.load(NOWHERE), "nothing answers"),
    "read of a disk": (lambda: hyperplane.dataframe.read("/"), "not the whole"),
    "size_cluster of a disk": (lambda: hyperplane.size_cluster("/"), "data = '/'"),
    "save(format=0)": (lambda: hyperplane.save({"a": 1}, "x.json", format=0), "format = 0"),
    "num_workers of bytes": (lambda: hyperplane.plan_cluster(num_workers=b"1"), "num_workers"),
    "timeout=1e30": (lambda: hyperplane.plan_cluster(timeout=1e30), "timeout = 1e"),
    "full-width digits": (lambda: hyperplane.plan_cluster(num_workers="１"), "num_workers"),
    "no_workers_timeout=True": (
        lambda: hyperplane.plan_cluster(
            engine="kubernetes", engine_options={"no_workers_timeout": True}
        ),
        "no_workers_timeout = True",
    ),
    "pieces=10**400": (lambda: hyperplane.size_cluster("1GB", pieces=HUGE), "pieces = 1000"),
    "chunks=10**400": (lambda: step(chunks=HUGE), "chunks = 1000"),
    "decimals of a frame": (
        lambda: hyperplane.dataframe.read("x.parquet", decimals=FRAME), "'float' or 'exact'",
    ),
    "decimals of an empty frame": (
        lambda: hyperplane.dataframe.read("x.parquet", decimals=pd.DataFrame()), "decimals =",
    ),
    "cluster of an array": (lambda: step(argv={"a"}, cluster=np.array(1)), "cluster = array"),
    "ClusterRequest": (lambda: hyperplane.ClusterRequest(num_workers="x"), "num_workers = 'x'"),
    "ClusterRequest, no such key": (lambda: hyperplane.ClusterRequest(foo=1), "foo = 1"),
    "PoolSpec": (lambda: hyperplane.PoolSpec(name=1), "name = 1"),
    "blocksize=inf": (
        lambda: hyperplane.bag.read_records("x", blocksize=float("inf")), "blocksize = inf",
    ),
    "an encoding of a zero byte": (
        lambda: hyperplane.bag.read_records("x", encoding="\0"), "encoding = ",
    ),
    "chunks of 1e999": (
        lambda: hyperplane.array.rechunk(da.zeros((4, 6)), "1e999"), "chunks = '1e999'",
    ),
    "a type of many digits": (
        lambda: hyperplane.array.propose_chunks((4,), dtype="1" * 5000), "a type of NumPy",
    ),
    "split_out of billions": (
        lambda: hyperplane.dataframe.group_agg(frame(), "a", {"b": "sum"}, split_out=2**31),
        "split_out = 2,147,483,648",
    ),
    "a pipeline step of a table": (
        lambda: step(argv=pd.DataFrame(), retries="x"), "retries = 'x'",
    ),
    "WorkerSpec": (lambda: hyperplane.WorkerSpec("1", None, 1, 1), "nprocs = '1'"),
}  # fmt: skip

#: Arguments that are one of some words, or one of some columns, given an array or a table.
WORDS: list[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = [
    (hyperplane.dataframe.drop_duplicates, {"df": frame}, ("keep",)),
    (hyperplane.dataframe.sort_values, {"df": frame, "by": "a"}, ("na_position", "by")),
    (hyperplane.dataframe.join, {"left": frame, "right": frame, "on": "a"}, ("how", "on")),
    (hyperplane.dataframe.to_datetime, {"df": frame, "column": "a"}, ("unit", "errors")),
    (
        hyperplane.dataframe.top_n_per_group,
        {"df": frame, "by": "a", "column": "b", "n": 1},
        ("by", "column"),
    ),
    (
        hyperplane.dataframe.window_counts,
        {"df": frame, "time": "a", "every": "1D", "target": "b"},
        ("closed", "label", "by", "target"),
    ),
    (hyperplane.bag.read_records, {"urls": "x.jsonl"}, ("format", "blocksize")),
    (hyperplane.array.open_zarr_many, {"urls": "x"}, ("combine", "compat", "combine_attrs")),
    (hyperplane.array.propose_chunks, {"array": (4, 6)}, ("dtype",)),
    (hyperplane.utils.post_table, {}, ("message_dict",)),
]


@pytest.mark.parametrize("value", [FRAME, pd.DataFrame(), np.array([1, 2]), pd.NA], ids=repr)
def test_arrays_and_tables_are_no_words(value: Any) -> None:
    for function, good, names in WORDS:
        for name in names:
            arguments = {key: one() if one is frame else one for key, one in good.items()}
            with pytest.raises(HyperplaneError, match=name):
                function(**{**arguments, name: value})


@pytest.mark.parametrize("name", CALLS)
def test_errors_are_ours_and_come_soon(name: str) -> None:
    # Within five seconds on a machine that does nothing else; here the limit of a test holds.
    call, said = CALLS[name]
    with pytest.raises(HyperplaneError) as caught:
        call()
    assert said in str(caught.value)
    assert not Path("x.json").exists()


def test_numbers_beyond_all_rows_are_all_rows() -> None:
    made = hyperplane.dataframe.top_n_per_group(frame(), "a", "b", HUGE)
    assert len(made.compute()) == len(FRAME)
    assert hyperplane.closest_pool(1, np.float16(0.5)) == hyperplane.closest_pool(1, 0.5)
    assert hyperplane.bag.take(db.from_sequence([1, 2], npartitions=1), HUGE) == (1, 2)


def test_a_temporary_directory_that_is_no_folder() -> None:
    with (
        dask.config.set({"temporary-directory": float("nan")}),
        pytest.raises(hyperplane.StartFailed, match="temporary-directory = nan"),
    ):
        hyperplane.initialize_cluster(1, nprocs=1)


def test_faults_of_a_request_are_all_named() -> None:
    with pytest.raises(RequestError) as caught:
        hyperplane.ClusterRequest(num_workers=0, nprocs="x", logging="loud")
    assert [fault.where for fault in caught.value.faults] == ["num_workers", "nprocs", "logging"]


def archive(name: str, text: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        opened.writestr(name, text)
    return made.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", archive("schema.json", "{}")[:-30], archive("other.json", "{}"),
        archive("schema.json", "{"), archive("schema.json", "[]"), archive("schema.json", "{}"),
    ],
    ids=["empty", "text", "cut", "no schema", "no JSON", "a list", "no model"],
)  # fmt: skip
def test_a_bad_model_is_refused_without_the_import_of_its_libraries(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("skops", "skops.io", "sklearn"):  # an import of None fails
        monkeypatch.setitem(sys.modules, name, None)
    Path("bad.skops").write_bytes(data)
    with pytest.raises(ReadError, match=r"bad\.skops.* is damaged, or not what its name says"):
        hyperplane.load("bad.skops")
