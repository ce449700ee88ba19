"""Bad values that once caused an error of another library, a long wait, or no error."""

from __future__ import annotations

import asyncio
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
import hyperplane.storage
import hyperplane.utils
from hyperplane.asl.items import object_reader
from hyperplane.errors import HyperplaneError, ReadError, RequestError
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.jobs_home import open_store

HUGE = 10**400
FRAME = pd.DataFrame({"a": [1, 2], "b": [1, 2], "t": pd.to_datetime(["2020", "2021"])})
#: A port of this machine without a listener.
NOWHERE = "http://127.0.0.1:9/x.csv"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    deep = "[" * 100_000
    for name, text in {
        "bad.skops": "x", "deep.json": deep, "deep.yaml": deep, "deep.jsonl": f"{deep}\n",
        "t.csv": "a,b\n1,2\n", "t.jsonl": '{"a": 1}\n',
    }.items():  # fmt: skip
        Path(name).write_text(text)
    with dask.config.set(scheduler="sync"):
        yield


def frame() -> dd.DataFrame:
    return dd.from_pandas(FRAME, npartitions=1)


def step(**values: Any) -> Any:
    return hyperplane.jobs.Step(name="s", kind="command", **{"argv": ("true",), **values})


def read(**options: Any) -> dd.DataFrame:
    return hyperplane.dataframe.read("t.csv", **options)


def counts(**options: Any) -> Any:
    return hyperplane.dataframe.window_counts(frame(), "t", "1D", "b", **options)


def pool(**values: Any) -> hyperplane.PoolSpec:
    good = {"cores": 2, "ram_gb": 4, "allocatable_cores": 2, "allocatable_ram_gb": 3}
    return hyperplane.PoolSpec(name="p", **{**good, **values})


def in_jobs(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function with the job store in the current folder."""
    with dask.config.set({"hyperplane.jobs.home": str(Path("jobs").absolute())}):
        return function(*arguments, **named)


def looks(**options: Any) -> Any:
    return asyncio.run(hyperplane.notebook_common.checkjobs([], **options))


def zarrs() -> str:
    """A folder that is not a Zarr group but contains one."""
    da.zeros((4,), chunks=2).to_zarr("folder/x.zarr")
    return "folder"


def other_urls_than(function: Callable[..., Any], urls: Any, **options: Any) -> Any:
    """Call a function of shards again, with other URLs than those that its file lists."""
    function("t.csv", **options)
    return function(urls, **options)


#: Description -> call and a part of its message. Each call represents several similar ones.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "submit(None)": (lambda: hyperplane.jobs.submit(None), "path = None:"),
    "read_pipeline(3)": (lambda: hyperplane.jobs.read_pipeline(3), "path = 3:"),
    "load of a bad .skops": (lambda: hyperplane.load("bad.skops"), "damaged"),
    "load of nested brackets": (lambda: hyperplane.load("deep.json"), "damaged"),
    "load of nested lines": (lambda: hyperplane.load("deep.jsonl"), "damaged"),
    "size of nested lists": (lambda: hyperplane.size_cluster("deep.json"), "readable files"),
    "size of nested lines": (lambda: hyperplane.size_cluster("deep.jsonl"), "readable files"),
    "read of nested lines": (lambda: hyperplane.dataframe.read("deep.jsonl"), "JSON array"),
    "read_records of nested lines": (
        lambda: hyperplane.bag.read_records("deep.jsonl").compute(), "are bad",
    ),
    "read_pipeline of nested lists": (
        lambda: hyperplane.jobs.read_pipeline("deep.yaml"), "nested lists",
    ),
    "load of a zero byte": (lambda: hyperplane.load("file:///x\0"), "url = 'file"),
    "save to http": (lambda: hyperplane.save(FRAME, NOWHERE), "writable"),
    "MemoryPolicy": (lambda: hyperplane.MemoryPolicy(target=HUGE), "memory.target"),
    "closest_pool, cores": (lambda: hyperplane.closest_pool(HUGE, 1), "cores ="),
    "closest_pool, memory": (lambda: hyperplane.closest_pool(1, HUGE), "ram_gb ="),
    "load of a refused port": (lambda: hyperplane.load(NOWHERE), "nothing answers"),
    "read of a disk": (lambda: hyperplane.dataframe.read("/"), "not the whole"),
    "size_cluster of a disk": (lambda: hyperplane.size_cluster("/"), "data = '/'"),
    "save(format=0)": (lambda: hyperplane.save({"a": 1}, "x.json", format=0), "format = 0"),
    "num_workers of bytes": (lambda: hyperplane.plan_cluster(num_workers=b"1"), "num_workers"),
    "timeout=1e30": (lambda: hyperplane.plan_cluster(timeout=1e30), "timeout = 1e"),
    "utc=array": (
        lambda: hyperplane.dataframe.to_datetime("t.csv", "a", utc=np.zeros((0, 3)), format="%Y"),
        "utc = array",
    ),
    "shard_files(0.5) with a listing": (
        lambda: other_urls_than(hyperplane.shard_files, 0.5, n_machines=2, idx=0, frozen="f"),
        "the same urls",
    ),
    "plan_shards of a surrogate with a plan": (
        lambda: other_urls_than(hyperplane.plan_shards, "\ud800", n_machines=2, plan="p"),
        "the existing plan",
    ),
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
    "ClusterRequest, no such key": (lambda: hyperplane.ClusterRequest(foo=1), "foo=1: unknown"),
    "PoolSpec": (lambda: hyperplane.PoolSpec(name=1), "name = 1"),
    "blocksize=inf": (
        lambda: hyperplane.bag.read_records("x", blocksize=float("inf")), "blocksize = inf",
    ),
    "blocksize with a decimal comma": (
        lambda: hyperplane.bag.read_records("x", blocksize="1,5MB"), "write 1.5MB",
    ),
    "partition_size with a decimal comma": (
        lambda: hyperplane.dataframe.read("x", partition_size="1,5MB"), "write 1.5MB",
    ),
    "memory with a decimal comma": (
        lambda: hyperplane.array.propose_chunks((4,), dtype="f8", memory="1,5 GB"),
        "write 1.5 GB",
    ),
    "memory of a pod with a decimal comma": (
        lambda: hyperplane.plan_cluster(
            engine="kubernetes", engine_options={"memory_overhead": "1,5Gi"}
        ),
        "write 1.5Gi",
    ),
    "an encoding of a zero byte": (
        lambda: hyperplane.bag.read_records("x", encoding="\0"), "encoding = ",
    ),
    "chunks of 1e999": (
        lambda: hyperplane.array.rechunk(da.zeros((4, 6)), "1e999"), "chunks = '1e999'",
    ),
    "a type of many digits": (
        lambda: hyperplane.array.propose_chunks((4,), dtype="1" * 5000), "a NumPy dtype",
    ),
    "split_out of billions": (
        lambda: hyperplane.dataframe.group_agg(frame(), "a", {"b": "sum"}, split_out=2**31),
        "split_out = 2,147,483,648",
    ),
    "a pipeline step of a table": (
        lambda: step(argv=pd.DataFrame(), retries="x"), "retries = 'x'",
    ),
    "WorkerSpec of no number": (
        lambda: hyperplane.WorkerSpec(float("nan"), 1, 1, 1), "nprocs = nan",
    ),
    "WorkerSpec of no whole number": (lambda: hyperplane.WorkerSpec(1, 1, 1, 1, 0.5), "ngpus = 0"),
    "WorkerSpec beyond all": (lambda: hyperplane.WorkerSpec(1, HUGE, 1, 1), "nthreads = 1000"),
    "WorkerSpec.from_gb of text": (
        lambda: hyperplane.WorkerSpec.from_gb(1, 0, "x", 1), "2. ram_gb_per_proc = 'x'",
    ),
    "WorkerSpec.from_gb of infinity": (
        lambda: hyperplane.WorkerSpec.from_gb(1, 1, float("inf"), 1), "ram_gb_per_proc = inf",
    ),
    "PoolSpec of a truth value": (lambda: pool(cores=True), "cores = True"),
    "PoolSpec of bytes": (lambda: pool(ram_gb=b"1"), "ram_gb = b'1'"),
    "PoolSpec of a pool's name": (lambda: pool(gpus="1_0"), "gpus = '1_0'"),
    "nprocs of a pool's name": (
        lambda: hyperplane.plan_cluster(nprocs="16_16"), "nprocs = '16_16'",
    ),
    "a time of a dot": (lambda: hyperplane.plan_cluster(timeout="."), "timeout = '.'"),
    "a time of a unit": (lambda: hyperplane.plan_cluster(idle_timeout="s"), "idle_timeout = 's'"),
    "an age of a blank": (
        lambda: hyperplane.storage.clean("x.json", older_than=" "), "older_than = ' '",
    ),
    "missing_shards at http": (lambda: hyperplane.storage.missing_shards(NOWHERE), "only be read"),
    "clean at http": (lambda: hyperplane.storage.clean(NOWHERE), "only be read"),
    "load of a folder of Zarr stores": (lambda: hyperplane.load(zarrs()), "not a Zarr group"),
    "limit of read_records": (
        lambda: hyperplane.bag.read_records("t.jsonl", limit=HUGE), "limit = 1000",
    ),
    "columns of an array": (lambda: read(columns=np.array(1)), "columns = array(1)"),
    "columns of lists": (lambda: read(columns=[[]]), "columns = []"),
    "dtypes of no column": (lambda: read(dtypes={1: "str"}), "dtypes = 1"),
    "dtypes of digits": (lambda: read(dtypes="1" * 5000), "dtypes = '111"),
    "parse_dates of lists": (lambda: read(parse_dates=[[]]), "parse_dates = []"),
    "parse_dates of no format": (lambda: read(parse_dates={"a": 1}), "parse_dates = a: 1"),
    "filters of lists": (lambda: read(filters=[([], "==", 1)]), "filters"),
    "filters of an array": (
        lambda: read(filters=[("a", np.array([1, 2]), 1)]), "filters[0] = array([1, 2])",
    ),
    "categories of a number": (lambda: counts(categories={"b": 1}), "categories['b'] = 1"),
    "categories of lists": (lambda: counts(categories=[[]]), "categories['b'] = [[]]"),
    "a width of very many digits": (
        lambda: hyperplane.dataframe.window_counts(frame(), "t", "1" * 200_000, "b"), "every = ",
    ),
    "format of to_datetime": (
        lambda: hyperplane.dataframe.to_datetime(frame(), "a", format=object), "format = <class",
    ),
    "ids of checkjobs": (
        lambda: asyncio.run(hyperplane.notebook_common.checkjobs(np.array(1))), "ids = ndarray",
    ),
    "steps of a number": (lambda: hyperplane.jobs.Pipeline.from_steps("p", 3), "steps = 3"),
    "root of bytes": (
        lambda: hyperplane.jobs.Pipeline.from_steps("p", [step()], root=b"/"), "root = b'/'",
    ),
    "parameters of to_asl": (
        lambda: hyperplane.jobs.Pipeline.from_steps("p", [step()]).to_asl("x"), "parameters = str",
    ),
    "an id that no file can hold": (lambda: in_jobs(hyperplane.jobs.JobHandle, "\ud800"), "UTF-8"),
    "a name that no file can hold": (
        lambda: in_jobs(hyperplane.jobs.list_jobs, name="\ud800"), "text = '\\ud800'",
    ),
    "an output of numbers": (
        lambda: asyncio.run(hyperplane.notebook_common.set_current_job_output(1)), "json.dumps",
    ),
    "verbose of a table": (
        lambda: asyncio.run(hyperplane.notebook_common.set_current_job_output("x", FRAME)),
        "verbose = ",
    ),
    "loop of checkjobs": (lambda: looks(loop=pd.NA), "loop = <NA>"),
    "interval of checkjobs": (lambda: looks(loop=True, interval="x"), "interval = 'x'"),
    "objects of no folder": (lambda: object_reader(3), "root = 3"),
    "data of other digits": (lambda: hyperplane.size_cluster("１"), "data = '１'"),
    "data of a pool's name": (lambda: hyperplane.size_cluster("16_16"), "data = '16_16'"),
    "cores of a truth value": (
        lambda: hyperplane.jobs.Resources(cores=np.True_), "cores = np.True_",
    ),
    "coords of a number": (
        lambda: hyperplane.array.open_zarr_many("x", coords=1), "coords = 1: expected one of",
    ),
    "requirements of bytes": (
        lambda: hyperplane.jobs.Pipeline.from_steps("p", [step()], requirements=b"1"),
        "requirements = b'1'",
    ),
    "a pool of bytes": (lambda: hyperplane.jobs.Resources(pool=b"1"), "pool = b'1'"),
    "axes of text": (lambda: hyperplane.size_cluster("1GB").plot("x"), "ax = 'x'"),
    "WorkerSpec": (lambda: hyperplane.WorkerSpec("1", None, 1, 1), "nprocs = '1'"),
}  # fmt: skip

#: Arguments that are one of a set of words or columns, given an array or a dataframe.
WORDS: list[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = [
    (hyperplane.dataframe.drop_duplicates, {"df": frame}, ("keep",)),
    (hyperplane.dataframe.sort_values, {"df": frame, "by": "a"}, ("na_position", "by")),
    (hyperplane.dataframe.join, {"left": frame, "right": frame, "on": "a"}, ("how", "on")),
    (
        hyperplane.dataframe.join_asof,
        {"left": frame, "right": frame, "on": "a"},
        ("direction", "on", "by"),
    ),
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
    (hyperplane.dataframe.read, {"urls": "t.csv"}, ("format",)),
    (hyperplane.shard_rows, {"url": "t.csv", "n_machines": 1, "idx": 0}, ("format",)),
    (hyperplane.storage.missing_shards, {"url": "x.parquet"}, ("run",)),
]


@pytest.mark.parametrize("value", [FRAME, pd.DataFrame(), np.array([1, 2]), pd.NA], ids=repr)
def test_arrays_and_dataframes_as_names_are_refused(value: Any) -> None:
    for function, good, names in WORDS:
        for name in names:
            arguments = {
                key: argument() if argument is frame else argument for key, argument in good.items()
            }
            with pytest.raises(HyperplaneError, match=name):
                function(**{**arguments, name: value})


@pytest.mark.parametrize("name", CALLS)
def test_bad_values_raise_hyperplane_errors_soon(name: str) -> None:
    # Takes less than five seconds on an idle machine; the timeout of the test applies.
    call, message = CALLS[name]
    with pytest.raises(HyperplaneError) as caught:
        call()
    assert message in str(caught.value)
    assert not Path("x.json").exists()


def test_odd_but_valid_numbers_are_accepted() -> None:
    top = hyperplane.dataframe.top_n_per_group(frame(), "a", "b", HUGE)
    assert len(top.compute()) == len(FRAME)
    assert hyperplane.closest_pool(1, np.float16(0.5)) == hyperplane.closest_pool(1, 0.5)
    assert hyperplane.jobs.Resources(cores=np.array(2)) == hyperplane.jobs.Resources(cores=2)
    assert list(read(na_values=np.array(2)).compute()["b"].isna()) == [True]
    assert hyperplane.bag.take(db.from_sequence([1, 2], npartitions=1), HUGE) == (1, 2)


@pytest.mark.parametrize("folder", [float("nan"), "a\0b", ""], ids=["nan", "zero byte", "nothing"])
def test_an_invalid_temporary_directory_is_an_error_of_the_start(folder: Any) -> None:
    with (
        dask.config.set({"temporary-directory": folder}),
        pytest.raises(hyperplane.StartFailed, match="expected the path of a folder, as text"),
    ):
        hyperplane.initialize_cluster(1, nprocs=1)


def test_all_faults_of_a_request_are_reported() -> None:
    with pytest.raises(RequestError) as caught:
        hyperplane.ClusterRequest(num_workers=0, nprocs="x", logging="loud")
    assert [fault.where for fault in caught.value.faults] == ["num_workers", "nprocs", "logging"]


def archive(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr(name, text)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", archive("schema.json", "{}")[:-30], archive("other.json", "{}"),
        archive("schema.json", "{"), archive("schema.json", "[]"), archive("schema.json", "{}"),
    ],
    ids=["empty", "text", "cut", "no schema", "no JSON", "a list", "no model"],
)  # fmt: skip
def test_a_damaged_model_is_refused_without_importing_its_libraries(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("skops", "skops.io", "sklearn"):  # an import of None fails
        monkeypatch.setitem(sys.modules, name, None)
    Path("bad.skops").write_bytes(data)
    with pytest.raises(
        ReadError, match=r"bad\.skops.* is damaged, or its content does not match its suffix"
    ):
        hyperplane.load("bad.skops")


def test_the_reason_of_a_damaged_table_has_one_line() -> None:
    Path("bad.csv").write_text("a\n1\n2,3\n")
    with pytest.raises(ReadError, match=r"Expected 1 fields in line 3, saw 2\); save it again"):
        hyperplane.load("bad.csv")


@pytest.mark.parametrize("value", ["1", True, float("nan"), HUGE, 1e30, [1], np.array([1, 2])])
def test_invalid_timeouts_of_wait_are_refused(value: Any, tmp_path: Path) -> None:
    pipeline = hyperplane.jobs.Pipeline.from_steps("p", [step()])
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs")}):
        job = new_job(pipeline)
        open_store().add(job)
        handle = hyperplane.jobs.JobHandle(job.id)
        for waiting in (handle.wait, handle.result):
            with pytest.raises(RequestError, match="timeout = "):
                waiting(value)
        with pytest.raises(RequestError, match=r"(?s)lines = .*step = "):
            handle.logs(step=[], lines=-1)
        assert handle.logs(lines=np.int64(1)) == ""
        open_store().update(job.id, status="done", ended=1.0)
        assert handle.wait(-1.0) == handle.wait(np.float64("inf")) == "done"
