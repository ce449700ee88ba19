"""Valid calls of every public function, for tests that replace some of their arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import dask.bag as db
from bad_values import Call, FreshArgument, table
from matplotlib import pyplot

import hyperplane
import hyperplane.array
import hyperplane.bag
import hyperplane.dataframe
import hyperplane.jobs
import hyperplane.storage
import hyperplane.utils
from hyperplane import notebook_common
from hyperplane.asl.checking import check_machine
from hyperplane.asl.items import object_reader
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.jobs.store.jobs_home import open_store

REQUEST = tuple(hyperplane.ClusterRequest.model_fields)
TABLE = FreshArgument(table)
RECORDS = FreshArgument(lambda: db.from_sequence([{"a": 1}, {"a": 2}], npartitions=1))
ARRAY = FreshArgument(lambda: da.zeros((4, 6), chunks=2))
PLAN = FreshArgument(lambda: hyperplane.plan_cluster(1))


def step(**values: Any) -> Any:
    return hyperplane.jobs.Step(**{"name": "s", "kind": "command", "argv": ("true",), **values})


def advice() -> hyperplane.SizingAdvice:
    return hyperplane.size_cluster("1GB")


def plotted(**options: Any) -> None:
    """Plot advice, and close the figure."""
    pyplot.close(advice().plot(**options).figure)


def steps() -> None:
    """Function of a job without steps."""


def one_job() -> str:
    """Return the ID of a failed job, which is submitted on first use."""
    store = open_store()
    ids = [job.id for job in store.find() if job.name == "fails"]
    job_id = ids[0] if ids else hyperplane.jobs.submit("x.yaml", name="fails").id
    store.update(job_id, status="failed", reason="test", ended=1.0)
    return job_id


def decorated(**options: Any) -> Any:
    """Return a job of the function in the options, or of an empty function."""
    result = hyperplane.job(**options)
    return result if options.get("function") is not None else result(steps)


def in_job(function: Any) -> Any:
    """Return a function that behaves as if a step of a job called it."""

    async def called(**arguments: Any) -> Any:
        with mock.patch.dict(os.environ, HYPERPLANE_JOB_ID=one_job()):
            return await function(**arguments)

    return called


def one_of_two() -> str:
    """Save one of two shards; return its URL."""
    if not Path(".y.parquet.hyperplane").exists():
        hyperplane.save(table(), "y.parquet", shard=(0, 2), mode="skip")
    return "y.parquet"


def handle() -> hyperplane.jobs.JobHandle:
    return hyperplane.jobs.JobHandle(one_job())


JOB = FreshArgument(one_job)
#: A machine of one state that does nothing.
MACHINE = {"StartAt": "a", "States": {"a": {"Type": "Succeed"}}}

CLUSTERS: dict[str, Call] = {
    "plan_cluster": Call(hyperplane.plan_cluster, {"num_workers": 1}, REQUEST),
    "MemoryPolicy": Call(hyperplane.MemoryPolicy, {}),
    "ClusterRequest": Call(hyperplane.ClusterRequest, {"num_workers": 1}, REQUEST),
    "PoolSpec": Call(
        hyperplane.PoolSpec,
        {"name": "p", "cores": 2, "ram_gb": 4, "allocatable_cores": 2, "allocatable_ram_gb": 3},
        hyperplane.PoolSpec.model_fields,
    ),
    "WorkerSpec": Call(
        hyperplane.WorkerSpec,
        {"nprocs": 1, "nthreads": 1, "ram_per_proc": 10**9, "cores_per_worker": 1},
    ),
    "WorkerSpec.from_gb": Call(
        hyperplane.WorkerSpec.from_gb,
        {"nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 1.0, "cores_per_worker": 1},
    ),
    "initialize_cluster": Call(hyperplane.initialize_cluster, {"num_workers": 1}, REQUEST),
    "quickstart": Call(hyperplane.quickstart, {"num_workers": 1, "size": "16_16"}),
    "quickstart_dask": Call(notebook_common.quickstart_dask, {"num_workers": 1, "size": "16_16"}),
    "start": Call(hyperplane.start, {"plan": PLAN}),
    "get_cluster": Call(hyperplane.get_cluster, {"name": "x"}),
    "get_dask_cluster": Call(notebook_common.get_dask_cluster, {"dask_cluster_name": "x"}),
    "get_pool": Call(hyperplane.get_pool, {"name": "16_16"}),
    "closest_pool": Call(hyperplane.closest_pool, {"cores": 1, "ram_gb": 1}),
    "fit_workers": Call(hyperplane.fit_workers, {"pool": "16_16"}),
    "size_cluster": Call(hyperplane.size_cluster, {"data": "1GB"}),
    "SizingAdvice.start": Call(
        lambda **options: advice().start(**options), {}, REQUEST, ("self",),
        hyperplane.SizingAdvice.start,
    ),
    "SizingAdvice.plot": Call(
        plotted, {}, (), (), hyperplane.SizingAdvice.plot
    ),
    "shard": Call(hyperplane.shard, {"index": 0, "count": 2}),
    "output_path": Call(hyperplane.output_path, {"template": "x_{idx}.csv", "idx": 0, "n": 2}),
}  # fmt: skip

FILES: dict[str, Call] = {
    "shard_files": Call(hyperplane.shard_files, {"urls": "x.csv", "n_machines": 2, "idx": 0}),
    "shard_rows": Call(hyperplane.shard_rows, {"url": "x.csv", "n_machines": 2, "idx": 0}),
    "save": Call(hyperplane.save, {"obj": {"a": 1}, "url": "y.json", "mode": "overwrite"}),
    "save of a table": Call(hyperplane.save, {"obj": TABLE, "url": "y.csv", "mode": "overwrite"}),
    "load": Call(hyperplane.load, {"url": "x.json"}),
    "clean": Call(hyperplane.storage.clean, {"url": "x.json"}),
    "missing_shards": Call(hyperplane.storage.missing_shards, {"url": FreshArgument(one_of_two)}),
    "read": Call(hyperplane.dataframe.read, {"urls": "x.parquet"}),
    "read of CSV": Call(hyperplane.dataframe.read, {"urls": "x.csv"}),
    "read_records": Call(hyperplane.bag.read_records, {"urls": "x.jsonl"}),
    "open_zarr_many": Call(hyperplane.array.open_zarr_many, {"urls": "x.zarr"}),
}

COLLECTIONS: dict[str, Call] = {
    "group_agg": Call(
        hyperplane.dataframe.group_agg, {"df": TABLE, "by": "a", "agg": {"b": "sum"}}
    ),
    "value_counts": Call(hyperplane.dataframe.value_counts, {"df": TABLE, "columns": "a"}),
    "top_n_per_group": Call(
        hyperplane.dataframe.top_n_per_group, {"df": TABLE, "by": "a", "column": "b", "n": 1}
    ),
    "drop_duplicates": Call(hyperplane.dataframe.drop_duplicates, {"df": TABLE}),
    "sort_values": Call(hyperplane.dataframe.sort_values, {"df": TABLE, "by": "a"}),
    "join": Call(hyperplane.dataframe.join, {"left": TABLE, "right": TABLE, "on": "a"}),
    "to_datetime": Call(hyperplane.dataframe.to_datetime, {"df": TABLE, "column": "s"}),
    "repartition": Call(hyperplane.dataframe.repartition, {"df": TABLE}),
    "window_agg": Call(
        hyperplane.dataframe.window_agg,
        {"df": TABLE, "time": "t", "every": "1D", "agg": {"b": "sum"}},
    ),
    "window_counts": Call(
        hyperplane.dataframe.window_counts,
        {"df": TABLE, "time": "t", "every": "1D", "target": "a"},
    ),
    "explain": Call(
        lambda df: hyperplane.dataframe.explain(df),
        {"df": TABLE},
        ("df",),
        (),
        hyperplane.dataframe.explain,
    ),
    "select": Call(hyperplane.bag.select, {"bag": RECORDS, "fields": ["a"]}),
    "take": Call(hyperplane.bag.take, {"bag": RECORDS, "n": 1}),
    "count_by": Call(hyperplane.bag.count_by, {"bag": RECORDS, "key": "a"}),
    "to_dataframe": Call(hyperplane.bag.to_dataframe, {"bag": RECORDS}),
    "bad_records": Call(
        hyperplane.bag.bad_records,
        {"bag": FreshArgument(lambda: hyperplane.bag.read_records("x.jsonl"))},
    ),
    "propose_chunks": Call(hyperplane.array.propose_chunks, {"array": ARRAY}),
    "rechunk": Call(hyperplane.array.rechunk, {"array": ARRAY, "chunks": 2}),
}

JOBS: dict[str, Call] = {
    "read_pipeline": Call(hyperplane.jobs.read_pipeline, {"path": "x.yaml"}),
    "submit": Call(hyperplane.jobs.submit, {"pipeline": "x.yaml"}),
    "submit_pipeline_job": Call(
        notebook_common.submit_pipeline_job, {"pipelineYamlPath": "x.yaml"}
    ),
    "list_jobs": Call(hyperplane.jobs.list_jobs, {}),
    "resume": Call(hyperplane.jobs.resume, {"job_id": JOB}),
    "cancel": Call(hyperplane.jobs.cancel, {"job_id": JOB}),
    "JobHandle": Call(hyperplane.jobs.JobHandle, {"job_id": JOB}),
    "JobHandle.wait": Call(
        lambda **options: handle().wait(**options), {}, (), (), hyperplane.jobs.JobHandle.wait
    ),
    "JobHandle.result": Call(
        lambda **options: handle().result(**options), {}, (), (), hyperplane.jobs.JobHandle.result
    ),
    "JobHandle.logs": Call(
        lambda **options: handle().logs(**options), {}, (), (), hyperplane.jobs.JobHandle.logs
    ),
    "Step": Call(step, {}, hyperplane.jobs.Step.model_fields, (), hyperplane.jobs.Step),
    "Pipeline": Call(
        hyperplane.jobs.Pipeline,
        {"name": "p", "steps": FreshArgument(lambda: [step()]), "root": "/"},
        hyperplane.jobs.Pipeline.model_fields,
    ),
    "Pipeline.from_steps": Call(
        hyperplane.jobs.Pipeline.from_steps, {"name": "p", "steps": FreshArgument(lambda: [step()])}
    ),
    "Pipeline.to_asl": Call(
        lambda **options: hyperplane.jobs.read_pipeline("x.yaml").to_asl(**options), {}, (), (),
        hyperplane.jobs.Pipeline.to_asl,
    ),
    "Resources": Call(hyperplane.jobs.Resources, {}, hyperplane.jobs.Resources.model_fields),
    "job": Call(
        decorated, {"name": "p"},
        ("requirements", "working_dir", "env", "timeout", "schedule", "on_failure"), (),
        hyperplane.job,
    ),
    "checkjobs": Call(notebook_common.checkjobs, {"ids": JOB}),
    "cancel_pipeline_job": Call(notebook_common.cancel_pipeline_job, {"jobID": JOB}),
    "get_a_job_output": Call(notebook_common.get_a_job_output, {"jobID": JOB}),
    "set_current_job_output": Call(
        in_job(notebook_common.set_current_job_output), {"s": "x"}, (), (),
        notebook_common.set_current_job_output,
    ),
    "get_service_url": Call(hyperplane.utils.get_service_url, {"name": "x"}),
    "post_message": Call(hyperplane.utils.post_message, {"message": "x"}),
    "post_table": Call(hyperplane.utils.post_table, {"message_dict": {"a": 1}}),
    "SlackHelper.post_message": Call(
        lambda **options: hyperplane.utils.SlackHelper().post_message(**options),
        {"message": "x", "channel": "#c"}, (), (), hyperplane.utils.SlackHelper.post_message,
    ),
    "SlackHelper.post_table": Call(
        lambda **options: hyperplane.utils.SlackHelper().post_table(**options),
        {"message_dict": {"a": 1}, "channel": "#c"}, (), (),
        hyperplane.utils.SlackHelper.post_table,
    ),
    "read_machine": Call(read_machine, {"source": MACHINE}),
    "check_machine": Call(check_machine, {"document": MACHINE}),
    "run_machine": Call(
        run_machine,
        {"machine": FreshArgument(lambda: read_machine(MACHINE)), "input": {}, "tasks": {}},
        (), ("sleep", "now", "on_event"),
    ),
    "object_reader": Call(object_reader, {"root": "."}),
}  # fmt: skip

ALL = {**CLUSTERS, **FILES, **COLLECTIONS, **JOBS}
