"""Every public function with bad values: an error of this package soon, or a right answer."""

from __future__ import annotations

import datetime as dt
import decimal
import faulthandler
import inspect
import math
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.bag as db
import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scale import scaled

import hyperplane
import hyperplane.array
import hyperplane.bag
import hyperplane.dataframe
import hyperplane.jobs
import hyperplane.storage
import hyperplane.utils
from hyperplane import notebook_common, planning, units
from hyperplane.asl.checking import check_machine
from hyperplane.asl.items import object_reader
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import HyperplaneError
from hyperplane.jobs import wake

#: Seconds that an answer may take; more than the five of a machine that does nothing else.
LIMIT = 30.0


class Odd:
    """An object that nobody expects."""

    def __repr__(self) -> str:
        return "<odd>"


NUMBERS = [
    -1, 0, 1, 2, 3, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e30, 1e308, math.nan,
    math.inf, -math.inf, True, False, 1j, decimal.Decimal("1.5"), decimal.Decimal("nan"),
    np.int64(1), np.uint64(2**64 - 1), np.float16(0.5), np.float64("nan"), np.bool_(True),
    np.array(1), np.array([1, 2]), np.datetime64("NaT"), pd.NA, pd.NaT, pd.Timedelta("1s"),
]  # fmt: skip
TEXTS = [
    "", " ", "\0", "a\0b", "\ud800", "\n", "１", "٣", "nan", "-1", "1e999", "1" * 5000, "x" * 5000,
    "../..", "/", "~", ".", "//", "/dev/null", "/proc/self/mem", "file:///", "file://x\0",
    "http://127.0.0.1:9/x", "s3:", "nope://x", "::", "a::b", "*", "[", "{", "{}", "{x", "%s",
    "16_16", "a", "b", "medium", "parquet", "1s", "1h", "100MB", "local", "' OR 1=1 --",
    "x.parquet", "x.json", "x.yaml", "'", '"', "\\", "🙂", "é", "-", "--help", "None", "true",
    b"", b"1", b"\xff", bytearray(b"x"), memoryview(b"x"),
]  # fmt: skip
OBJECTS: list[Any] = [
    None, [], [None], [[]], ["a", None], (), ("a",), (1, 2), {}, {"a": 1}, {1: 2}, {None: None},
    set(), {"a"}, frozenset(), range(3), Odd(), Odd, object, Ellipsis, len, lambda: 1, print,
    dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.timedelta(1), Path(), Path("/nowhere/x"),
    pd.DataFrame(), pd.Series([1]), pd.DataFrame({"a": [1]}), np.zeros((0, 3)), slice(None),
    iter(()), {"a": {"b": []}}, [1, "a"], ["a", "a"], ["a", "b"], threading.Lock(), type,
]  # fmt: skip


def table() -> dd.DataFrame:
    times = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
    return dd.from_pandas(
        pd.DataFrame({"a": [1, 2, 2], "b": [0.5, 1.5, 2.5], "t": times}), npartitions=1
    )


def records() -> db.Bag:
    return db.from_sequence([{"a": 1}, {"a": 2}], npartitions=1)


def step(**values: Any) -> Any:
    return hyperplane.jobs.Step(**{"name": "s", "kind": "command", "argv": ("true",), **values})


def numbers() -> da.Array:
    return da.zeros((4, 6), chunks=2)


def steps() -> None:
    """The body of a job."""


#: A machine of one state that does nothing.
MACHINE = {"StartAt": "a", "States": {"a": {"Type": "Succeed"}}}

#: Each function with what makes a good call of it; the fuzz replaces some of that.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "plan_cluster": (hyperplane.plan_cluster, {"num_workers": 1}),
    "MemoryPolicy": (hyperplane.MemoryPolicy, {}),
    "ClusterRequest": (hyperplane.ClusterRequest, {"num_workers": 1}),
    "PoolSpec": (
        hyperplane.PoolSpec,
        {"name": "p", "cores": 2, "ram_gb": 4, "allocatable_cores": 2, "allocatable_ram_gb": 3},
    ),
    "WorkerSpec": (
        hyperplane.WorkerSpec,
        {"nprocs": 1, "nthreads": 1, "ram_per_proc": 10**9, "cores_per_worker": 1},
    ),
    "initialize_cluster": (hyperplane.initialize_cluster, {"num_workers": 1}),
    "quickstart": (hyperplane.quickstart, {"num_workers": 1, "size": "16_16"}),
    "start": (hyperplane.start, {"plan": None}),
    "get_cluster": (hyperplane.get_cluster, {"name": "x"}),
    "get_pool": (hyperplane.get_pool, {"name": "16_16"}),
    "closest_pool": (hyperplane.closest_pool, {"cores": 1, "ram_gb": 1}),
    "fit_workers": (hyperplane.fit_workers, {"pool": "16_16"}),
    "size_cluster": (hyperplane.size_cluster, {"data": "1GB"}),
    "shard": (hyperplane.shard, {"index": 0, "count": 2}),
    "shard_files": (hyperplane.shard_files, {"urls": "x", "n_machines": 2, "idx": 0}),
    "shard_rows": (hyperplane.shard_rows, {"url": "x", "n_machines": 2, "idx": 0}),
    "output_path": (hyperplane.output_path, {"template": "x_{idx}.csv", "idx": 0, "n": 2}),
    "save": (hyperplane.save, {"obj": {"a": 1}, "url": "x.json"}),
    "load": (hyperplane.load, {"url": "x.json"}),
    "clean": (hyperplane.storage.clean, {"url": "x.json"}),
    "missing_shards": (hyperplane.storage.missing_shards, {"url": "x.json"}),
    "read": (hyperplane.dataframe.read, {"urls": "x.parquet"}),
    "group_agg": (hyperplane.dataframe.group_agg, {"df": table, "by": "a", "agg": {"b": "sum"}}),
    "value_counts": (hyperplane.dataframe.value_counts, {"df": table, "columns": "a"}),
    "top_n_per_group": (
        hyperplane.dataframe.top_n_per_group, {"df": table, "by": "a", "column": "b", "n": 1},
    ),
    "drop_duplicates": (hyperplane.dataframe.drop_duplicates, {"df": table}),
    "sort_values": (hyperplane.dataframe.sort_values, {"df": table, "by": "a"}),
    "join": (hyperplane.dataframe.join, {"left": table, "right": table, "on": "a"}),
    "to_datetime": (hyperplane.dataframe.to_datetime, {"df": table, "column": "a"}),
    "repartition": (hyperplane.dataframe.repartition, {"df": table}),
    "window_agg": (
        hyperplane.dataframe.window_agg,
        {"df": table, "time": "t", "every": "1D", "agg": {"b": "sum"}},
    ),
    "window_counts": (
        hyperplane.dataframe.window_counts,
        {"df": table, "time": "t", "every": "1D", "target": "a"},
    ),
    "explain": (lambda df: hyperplane.dataframe.explain(df), {"df": table}),
    "read_records": (hyperplane.bag.read_records, {"urls": "x.jsonl"}),
    "select": (hyperplane.bag.select, {"bag": records}),
    "take": (hyperplane.bag.take, {"bag": records, "n": 1}),
    "count_by": (hyperplane.bag.count_by, {"bag": records, "key": "a"}),
    "to_dataframe": (hyperplane.bag.to_dataframe, {"bag": records}),
    "bad_records": (hyperplane.bag.bad_records, {"bag": records}),
    "read_pipeline": (hyperplane.jobs.read_pipeline, {"path": "x.yaml"}),
    "submit": (hyperplane.jobs.submit, {"pipeline": None}),
    "list_jobs": (hyperplane.jobs.list_jobs, {}),
    "resume": (hyperplane.jobs.resume, {"job_id": "x"}),
    "JobHandle": (hyperplane.jobs.JobHandle, {"job_id": "x"}),
    "Step": (step, {}),
    "checkjobs": (notebook_common.checkjobs, {"ids": "x"}),
    "cancel_pipeline_job": (notebook_common.cancel_pipeline_job, {"jobID": "x"}),
    "get_a_job_output": (notebook_common.get_a_job_output, {"jobID": "x"}),
    "set_current_job_output": (notebook_common.set_current_job_output, {"s": "x"}),
    "submit_pipeline_job": (notebook_common.submit_pipeline_job, {"pipelineYamlPath": "x.yaml"}),
    "cancel_pipeline_jobs": (notebook_common.cancel_pipeline_jobs, {"jobID": "x"}),
    "quickstart_dask": (notebook_common.quickstart_dask, {"num_workers": 1, "size": "medium"}),
    "cancel": (hyperplane.jobs.cancel, {"job_id": "x"}),
    "Pipeline": (hyperplane.jobs.Pipeline, {"name": "p", "steps": [], "root": "/"}),
    "Resources": (hyperplane.jobs.Resources, {}),
    "job": (lambda **options: hyperplane.job(**options)(steps), {"name": "p"}),
    "open_zarr_many": (hyperplane.array.open_zarr_many, {"urls": "x.zarr"}),
    "propose_chunks": (hyperplane.array.propose_chunks, {"array": numbers}),
    "rechunk": (hyperplane.array.rechunk, {"array": numbers, "chunks": 2}),
    "get_service_url": (hyperplane.utils.get_service_url, {"name": "x"}),
    "post_message": (hyperplane.utils.post_message, {"message": "x"}),
    "post_table": (hyperplane.utils.post_table, {"message_dict": {"a": 1}}),
    "read_machine": (read_machine, {"source": MACHINE}),
    "check_machine": (check_machine, {"document": MACHINE}),
    "run_machine": (run_machine, {"machine": read_machine(MACHINE), "input": {}, "tasks": {}}),
    "object_reader": (object_reader, {"root": "."}),
    "get_dask_cluster": (notebook_common.get_dask_cluster, {"dask_cluster_name": "x"}),
}  # fmt: skip
#: More arguments of functions whose signature does not name them.
MORE = {
    "plan_cluster": list(hyperplane.ClusterRequest.model_fields),
    "initialize_cluster": list(hyperplane.ClusterRequest.model_fields),
    "ClusterRequest": list(hyperplane.ClusterRequest.model_fields),
    "PoolSpec": list(hyperplane.PoolSpec.model_fields),
    "Step": list(hyperplane.jobs.Step.model_fields),
    "Pipeline": list(hyperplane.jobs.Pipeline.model_fields),
    "Resources": list(hyperplane.jobs.Resources.model_fields),
    "job": ["name", "requirements", "working_dir", "env", "timeout", "schedule", "on_failure"],
}
#: Arguments that make a call wait by their meaning, or that are functions of the caller.
SKIPPED = {
    ("checkjobs", "loop"), ("checkjobs", "interval"),
    ("run_machine", "sleep"), ("run_machine", "now"), ("run_machine", "on_event"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No cluster and no supervisor; what is saved goes into a folder of this test."""
    monkeypatch.chdir(tmp_path)

    def stopped(*_: Any, **__: Any) -> Any:
        raise hyperplane.EngineError("test", "nothing is started here")

    for module, name in ((planning.registry, "load"),):
        real = getattr(module, name)

        def loaded(asked: Any, real: Callable[..., Any] = real) -> Any:
            engine = real(asked)
            monkeypatch.setattr(type(engine), "start", stopped)
            monkeypatch.setattr(type(engine), "connect", stopped)
            return engine

        monkeypatch.setattr(module, name, loaded)
    monkeypatch.setattr(wake, "tell", lambda *_: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs"), "scheduler": "sync"}):
        yield


def arguments_of(name: str) -> list[str]:
    function, _ = CALLS[name]
    own = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return [one for one in [*own, *MORE.get(name, [])] if (name, one) not in SKIPPED]


def call_of(name: str, draw: random.Random) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function, and arguments of which some are bad."""
    function, good = CALLS[name]
    arguments = {
        key: one() if one in (table, records, numbers) else one for key, one in good.items()
    }
    names = arguments_of(name)
    for key in draw.sample(names, min(len(names), draw.choice((1, 1, 1, 2, 3)))):
        kind = draw.choice((NUMBERS, TEXTS, OBJECTS))
        arguments[key] = draw.choice(kind)
    return function, arguments


def shown(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={repr(value)[:100]}" for key, value in arguments.items())


@pytest.mark.parametrize("name", CALLS)
def test_bad_values_are_refused_in_our_words(name: str) -> None:
    draw = random.Random(f"{name} {os.environ.get('HYPERPLANE_TEST_SEED', '')}")
    wrong = []
    for _ in range(scaled(8, 1000)):
        function, arguments = call_of(name, draw)
        began = time.monotonic()
        faulthandler.dump_traceback_later(5 * LIMIT, exit=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(**arguments)
        except HyperplaneError as error:
            str(error)
        except Exception as error:  # noqa: BLE001 - any of these is what is looked for
            # A name that a function does not have is Python's own matter.
            if "unexpected keyword" not in str(error):
                said = f"{type(error).__name__}: {str(error)[:150]}"
                wrong.append(f"{name}({shown(arguments)}) -> {said}")
        finally:
            faulthandler.cancel_dump_traceback_later()
        took = time.monotonic() - began
        if took > LIMIT:
            wrong.append(f"{name}({shown(arguments)}) took {took:.1f} s")
    assert not wrong, f"{len(wrong)} calls\n" + "\n".join(wrong[:40])


def test_quantities_of_memory() -> None:
    for value in (*TEXTS, "1e400GB", "-1GB", "1" * 400 + "GB"):
        if isinstance(value, str):
            try:
                assert units.parse_bytes(value) >= 0
            except ValueError as error:
                assert "quantity of memory" in str(error)  # noqa: PT017


def test_every_public_function_is_tried() -> None:
    tried = {function for function, _ in CALLS.values()}
    known = {
        hyperplane.job, hyperplane.jobs.Pipeline, hyperplane.pools, hyperplane.dataframe.explain,
        hyperplane.utils.is_jhub, notebook_common.get_current_job_output,
        notebook_common.get_previous_job_runs, notebook_common.is_jhub,
    }  # fmt: skip
    modules = (
        hyperplane, hyperplane.array, hyperplane.dataframe, hyperplane.bag, hyperplane.jobs,
        hyperplane.storage, hyperplane.utils, notebook_common,
    )  # fmt: skip
    for module in modules:
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                assert found in tried | known, f"{module.__name__}.{name}"
