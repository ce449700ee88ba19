"""Valid calls of every public function, for tests that replace some of their arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import dask.bag as db
import numpy as np
import pandas as pd
from bad_estimator_calls import ESTIMATORS
from bad_values import Call, FreshArgument, table
from dask import delayed
from matplotlib import pyplot
from sklearn.svm import SVC

import hyperplane
import hyperplane.array
import hyperplane.bag
import hyperplane.dataframe
import hyperplane.history
import hyperplane.jobs
import hyperplane.lab
import hyperplane.ml
import hyperplane.orca
import hyperplane.reports
import hyperplane.spark
import hyperplane.storage
import hyperplane.utils
from hyperplane import notebook_common, ray_common
from hyperplane.asl.batch_jobs import BatchJobs
from hyperplane.asl.checking import check_machine
from hyperplane.asl.items import object_reader
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.clusters.ray.cluster import AttachedRayCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.forecasts.memory_series import MemorySeries
from hyperplane.history.store import write_run
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.orca.data import transformer

REQUEST = tuple(hyperplane.ClusterRequest.model_fields)
ARRAYS = (np.ones((4, 2)), np.ones((4, 1)))
TABLE = FreshArgument(table)
RECORDS = FreshArgument(lambda: db.from_sequence([{"a": 1}, {"a": 2}], npartitions=1))
ARRAY = FreshArgument(lambda: da.zeros((4, 6), chunks=2))
PLAN = FreshArgument(lambda: hyperplane.plan_cluster(1))


def step(**values: Any) -> Any:
    return hyperplane.jobs.Step(**{"name": "s", "kind": "command", "argv": ("true",), **values})


def advice() -> hyperplane.SizingAdvice:
    return hyperplane.size_cluster("1GB")


def refused_forecast() -> hyperplane.Forecast:
    return hyperplane.Forecast(0, 0, 0, 0, 0.0, 0.0, True, ("it writes",), 0.0, 0.9)


def written_run() -> str:
    """Name of the record of a run."""
    record = hyperplane.history.RunRecord(name="run", cluster="c", started=0, ended=1)
    write_run(record)
    return record.name


def ended_ray_cluster() -> AttachedRayCluster:
    return AttachedRayCluster(ClusterRecord("x", "ray:local", "127.0.0.1:1", "", 0, 0.0, 1, 1, 1))


def plotted(make_result: Callable[[], Any]) -> Callable[..., None]:
    """Return a function that plots a result and closes the figure."""
    return lambda **options: pyplot.close(make_result().plot(**options).figure)


def plotted_forecast(**options: Any) -> None:
    """Plot a forecast as if a sample had run, and close the figure."""
    series = MemorySeries(1.0, ((1e9, 2e9),))
    with mock.patch.object(hyperplane.Forecast, "series", series):
        plotted(refused_forecast)(**options)


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
    "read_run": Call(hyperplane.history.read_run, {"name": FreshArgument(written_run)}),
    "list_runs": Call(hyperplane.history.list_runs, {}),
    "record": Call(hyperplane.record, {"name": "block", "client": None}),
    "compare_runs": Call(
        hyperplane.history.compare_runs,
        {"first": FreshArgument(written_run), "second": FreshArgument(written_run)},
    ),
    "save_report": Call(
        hyperplane.reports.save_report, {"run": FreshArgument(written_run), "file": "run.html"}
    ),
    "save_job_report": Call(
        hyperplane.reports.save_job_report, {"job": JOB, "file": "job.html"}
    ),
    "render_job_report": Call(hyperplane.reports.render_job_report, {"job": JOB}),
    "render_report": Call(hyperplane.reports.render_report, {"run": FreshArgument(written_run)}),
    "RunRecord.from_json": Call(
        hyperplane.history.RunRecord.from_json,
        {"text": '{"name": "r", "cluster": "c", "started": 0, "ended": 1}'},
    ),
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
    "lab.start_cluster": Call(hyperplane.lab.start_cluster, {"num_workers": 1}, REQUEST),
    "quickstart": Call(hyperplane.quickstart, {"num_workers": 1, "size": "16_16"}),
    "quickstart_dask": Call(notebook_common.quickstart_dask, {"num_workers": 1, "size": "16_16"}),
    "start": Call(hyperplane.start, {"plan": PLAN}),
    "preflight": Call(hyperplane.preflight, {"plan": PLAN}),
    "get_cluster": Call(hyperplane.get_cluster, {"name": "x"}),
    "get_dask_cluster": Call(notebook_common.get_dask_cluster, {"dask_cluster_name": "x"}),
    "initialize_ray_cluster": Call(ray_common.initialize_ray_cluster, {"num_workers": 1}),
    "quickstart_ray": Call(ray_common.quickstart_ray, {"num_workers": 1, "size": "16_16"}),
    "get_ray_cluster": Call(ray_common.get_ray_cluster, {"extra_workers": 0}),
    "stop_ray_cluster": Call(
        ray_common.stop_ray_cluster, {"ray_cluster": FreshArgument(ended_ray_cluster)}
    ),
    "init_spark": Call(hyperplane.spark.init_spark, {"executor_memory": "512m"}),
    "get_pool": Call(hyperplane.get_pool, {"name": "16_16"}),
    "closest_pool": Call(hyperplane.closest_pool, {"cores": 1, "ram_gb": 1}),
    "fit_workers": Call(hyperplane.fit_workers, {"pool": "16_16"}),
    "size_cluster": Call(hyperplane.size_cluster, {"data": "1GB"}),
    "forecast": Call(
        hyperplane.forecast,
        # It is refused before a sample is run, because it writes.
        {"collection": FreshArgument(lambda: da.ones(4).store(np.ones(4), compute=False)),
         "plan": PLAN},
    ),
    "Forecast.advise": Call(
        lambda **options: refused_forecast().advise(**options), {}, (), ("self",),
        hyperplane.Forecast.advise,
    ),
    "Forecast.plot": Call(plotted_forecast, {}, (), (), hyperplane.Forecast.plot),
    "SizingAdvice.start": Call(
        lambda **options: advice().start(**options), {}, REQUEST, ("self",),
        hyperplane.SizingAdvice.start,
    ),
    "SizingAdvice.plot": Call(
        plotted(advice), {}, (), (), hyperplane.SizingAdvice.plot
    ),
    "shard": Call(hyperplane.shard, {"index": 0, "count": 2}),
    "output_path": Call(hyperplane.output_path, {"template": "x_{idx}.csv", "idx": 0, "n": 2}),
}  # fmt: skip

FILES: dict[str, Call] = {
    "shard_files": Call(hyperplane.shard_files, {"urls": "x.csv", "n_machines": 2, "idx": 0}),
    "plan_shards": Call(
        hyperplane.plan_shards, {"urls": "x.csv", "n_machines": 2, "plan": "plan.parquet"}
    ),
    "planned_files": Call(
        hyperplane.planned_files, {"plan": "plan.parquet", "n_machines": 2, "idx": 0}
    ),
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
    "join_asof": Call(hyperplane.dataframe.join_asof, {"left": TABLE, "right": TABLE, "on": "t"}),
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
    "to_ray_data": Call(hyperplane.dataframe.to_ray_data, {"df": TABLE}),
    # Without Ray there is no dataset.
    "from_ray_data": Call(hyperplane.dataframe.from_ray_data, {"dataset": TABLE}),
    "to_spark": Call(hyperplane.dataframe.to_spark, {"df": TABLE}),
    # Without Spark there is no dataframe of it.
    "from_spark": Call(hyperplane.dataframe.from_spark, {"df": TABLE}),
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
    "list_step_runs": Call(hyperplane.jobs.list_step_runs, {}),
    "list_artifacts": Call(hyperplane.jobs.list_artifacts, {"job": JOB}),
    "download_artifact": Call(hyperplane.jobs.download_artifact, {"job": JOB, "name": "a.csv"}),
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
    "JobHandle.artifacts": Call(
        lambda **options: handle().artifacts(**options), {}, (), (),
        hyperplane.jobs.JobHandle.artifacts,
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
    "graphql_operation": Call(
        notebook_common.graphql_operation, {"gql_queries": "{ countJobs }"}
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
    "BatchJobs": Call(BatchJobs, {"folder": "."}),
}  # fmt: skip


class _Ignored:
    """Channel of a trial without a search."""

    def report(self, value: float, step: int) -> None:
        pass


def enter(context: Any) -> None:
    with context:
        pass


def search_result() -> hyperplane.ml.SearchResult:
    history = pd.DataFrame({"trial": [0], "state": ["complete"], "value": [1.0]})
    return hyperplane.ml.SearchResult(history, {}, 1.0, "maximize")


def without_processes(function: Any) -> Any:
    """Return a function for training programs that starts none."""

    def call(**options: Any) -> Any:
        with mock.patch(f"{function.__module__}.ProgramRun") as run:
            run.return_value.run.return_value = 0
            return function(**options)

    return call


def without_trials(function: Any) -> Any:
    """Return a function for searches that runs no trial and uses no cluster."""
    client = mock.Mock(status="running", asynchronous=False)
    result = search_result()

    def call(**options: Any) -> Any:
        place = f"{function.__module__}.run_search"
        with mock.patch(place, return_value=result):
            return function(**{"client": client, **options})

    return call


def without_server(**options: Any) -> Any:
    """Check the arguments of ``serve`` without starting a process."""
    with (
        mock.patch("hyperplane.ml.serving.serve.need"),
        mock.patch("hyperplane.ml.serving.serve.ServerProcess") as process,
    ):
        process.return_value.wait_until_ready.return_value = ("http://x", "x", "x")
        return hyperplane.ml.serve(**options)


def of_registry(name: str, good: Any) -> Call:
    """Return a call of a method of a registry with one model."""
    method = getattr(hyperplane.ml.ModelRegistry, name)

    def call(**options: Any) -> Any:
        return getattr(hyperplane.ml.ModelRegistry("models"), name)(**options)

    return Call(call, good, (), (), method)


ML: dict[str, Call] = {
    "Range": Call(hyperplane.ml.Range, {"low": 1, "high": 4}),
    "SearchResult.plot": Call(
        plotted(search_result), {}, (), (), hyperplane.ml.SearchResult.plot
    ),
    "Trial.report": Call(
        lambda **options: hyperplane.ml.Trial(0, {}, _Ignored()).report(**options),
        {"value": 0.5, "step": 1}, (), (), hyperplane.ml.Trial.report,
    ),
    "tune": Call(
        without_trials(hyperplane.ml.tune), {"objective": steps, "space": {"x": [1, 2]}}, (), (),
        hyperplane.ml.tune,
    ),
    "tune of an estimator": Call(
        without_trials(hyperplane.ml.tune),
        {"objective": SVC(), "space": {"C": [1, 2]}, "X": np.eye(10), "y": [0, 1] * 5}, (),
        ("objective",), hyperplane.ml.tune,
    ),
    "tune_program": Call(
        without_trials(hyperplane.ml.tune_program),
        {"command": ["true"], "spec": {"params": [
            {"parameterName": "x", "type": "INTEGER", "minValue": 1, "maxValue": 3}]}},
        (), (), hyperplane.ml.tune_program,
    ),
    "train_program": Call(
        without_processes(hyperplane.ml.train_program), {"module_name": "platform"}, (), (),
        hyperplane.ml.train_program,
    ),
    "gpu_equivalent": Call(
        hyperplane.ml.gpu_equivalent, {"estimator": SVC(), "ngpus": 0}, (), ("estimator",)
    ),
    # Without a cluster, so that no valid combination starts processes.
    "gang": Call(hyperplane.ml.gang, {"client": None, "function": steps, "n": 1}, (), ("client",)),
    "Estimator.from_torch": Call(
        hyperplane.ml.Estimator.from_torch, {"model": steps}, (),
        ("training_operator_cls", "use_tqdm", "sync_stats", "log_level"),
    ),
    "Estimator.from_keras": Call(
        hyperplane.ml.Estimator.from_keras, {"model_creator": steps}, (),
        ("cpu_binding", "keras_model"),
    ),
    "Estimator.load_keras_model": Call(
        hyperplane.ml.Estimator.load_keras_model, {"path": "missing.keras"}
    ),
    "Estimator.latest_checkpoint": Call(
        hyperplane.ml.Estimator.latest_checkpoint, {"checkpoint_dir": "missing"}
    ),
    "Estimator.from_graph": Call(hyperplane.ml.Estimator.from_graph, {}),
    # Without a cluster and without modules of PyTorch, which need not be installed.
    "train_with_parameter_server": Call(
        hyperplane.ml.train_with_parameter_server,
        {"client": None, "model": None, "data": ARRAYS, "loss": steps, "optimizer": steps},
        (), ("client", "model"),
    ),
    "train_with_averaged_weights": Call(
        hyperplane.ml.train_with_averaged_weights,
        {"client": None, "model": None, "data": ARRAYS, "loss": steps, "optimizer": steps},
        (), ("client", "model"),
    ),
    "train_pipeline": Call(
        hyperplane.ml.train_pipeline,
        {"client": None, "stages": [], "data": ARRAYS, "loss": steps, "optimizer": steps},
        (), ("client",),
    ),
    "train_column_parts": Call(
        hyperplane.ml.train_column_parts,
        {"client": None, "parts": [], "columns": [], "data": ARRAYS, "loss": steps,
         "optimizer": steps}, (), ("client",),
    ),
    "read_search": Call(hyperplane.ml.read_search, {"name": "x"}),
    "predict_files": Call(
        hyperplane.ml.predict_files,
        {"model": "model.skops", "input": "x.parquet", "output": "predicted", "columns": ["a"]},
    ),
    "predict": Call(hyperplane.ml.predict, {"model": "model.skops", "df": TABLE, "columns": ["a"]}),
    "ModelRegistry": Call(hyperplane.ml.ModelRegistry, {"url": "models"}),
    "ModelRegistry.create": of_registry("create", {"name": "m", "model": "model.skops"}),
    "ModelRegistry.list_versions": of_registry("list_versions", {"name": "one"}),
    "ModelRegistry.get": of_registry("get", {"name": "one", "version": "v1"}),
    "ModelRegistry.set_default": of_registry("set_default", {"name": "one", "version": "v1"}),
    "serve": Call(
        without_server, {"model": "model.skops"}, (), (), hyperplane.ml.serve,
    ),
    "parallel": Call(lambda **options: enter(hyperplane.ml.parallel(**options)), {}, (), (),
                     hyperplane.ml.parallel),
}  # fmt: skip


def shards() -> Any:
    return hyperplane.ml.XShards.partition(np.arange(6), num_shards=2)


def collected(function: Any) -> Any:
    """Return a function that collects the shards that the function returns."""

    def call(**options: Any) -> Any:
        result = function(**options)
        if isinstance(result, hyperplane.ml.XShards) and not any(map(callable, options.values())):
            result.collect()
        return result

    return call


def of_shards(name: str, good: Any, skipped: Any = ()) -> Call:
    """Return a call of a method of shards of arrays."""
    method = getattr(hyperplane.ml.XShards, name)
    return Call(
        collected(lambda **options: getattr(shards(), name)(**options)), good, (), skipped, method
    )


def frames() -> Any:
    frame = pd.DataFrame({"a": [1, 2, 2, 3], "b": [0.5, 1.0, 2.0, 4.0]})
    return hyperplane.ml.XShards.partition(frame, num_shards=2)


def fitted_transform(**options: Any) -> Any:
    indexer = transformer.StringIndexer("a")
    indexer.fit_transform(frames())
    return indexer.transform(**options)


def of_frames(name: str, good: Any) -> Call:
    """Return a call of a method of shards of DataFrames, with columns ``a`` and ``b``."""
    method = getattr(hyperplane.ml.XShards, name)
    return Call(
        collected(lambda **options: getattr(frames(), name)(**options)), good, (), (), method
    )


PARTS = FreshArgument(lambda: [delayed(np.arange)(3)])
SHARDS: dict[str, Call] = {
    "SharedValue": Call(hyperplane.ml.SharedValue, {"data": 1}),
    "XShards": Call(hyperplane.ml.XShards, {"parts": PARTS}),
    "XShards.lazy": Call(hyperplane.ml.XShards.lazy, {"parts": PARTS}),
    "XShards.partition": Call(
        collected(hyperplane.ml.XShards.partition), {"data": np.arange(6), "num_shards": 2}, (), (),
        hyperplane.ml.XShards.partition,
    ),
    "XShards.load_pickle": Call(hyperplane.ml.XShards.load_pickle, {"path": "x.pickles"}),
    "XShards.save_pickle": of_shards("save_pickle", {"path": "y.pickles"}),
    "XShards.transform_shard": Call(
        lambda **options: shards().transform_shard(**options), {"func": len}, (), (),
        hyperplane.ml.XShards.transform_shard,
    ),
    "XShards.repartition": of_shards("repartition", {"num_partitions": 1}),
    "XShards.zip": of_shards("zip", {"other": FreshArgument(shards)}),
    "XShards.take": of_shards("take", {"n": 1}),
    "XShards.partition_by": of_frames("partition_by", {"cols": "a"}),
    "XShards.sort_values": of_frames("sort_values", {"col_names": "a"}),
    "XShards.group_by": of_frames("group_by", {"columns": "a", "agg": "sum"}),
    "XShards.merge": of_frames("merge", {"right": FreshArgument(frames), "on": "a"}),
    "XShards.sample": of_frames("sample", {"frac": 0.5}),
    "XShards.select": of_frames("select", {"cols": "a"}),
    "XShards.describe": of_frames("describe", {"cols": "a"}),
    "XShards.head": of_frames("head", {"n": 1}),
    "XShards.concat_to_pdf": of_frames("concat_to_pdf", {}),
    "XShards.sample_to_pdf": of_frames("sample_to_pdf", {"frac": 0.5}),
    "XShards.assembleFeatureLabelCols": of_frames(
        "assembleFeatureLabelCols", {"featureCols": ["a"], "labelCols": ["b"]}
    ),
    "XShards.max_values": of_frames("max_values", {"col_name": "a"}),
    "XShards.from_dataframe": Call(
        collected(hyperplane.ml.XShards.from_dataframe), {"df": TABLE}, (), (),
        hyperplane.ml.XShards.from_dataframe,
    ),
    "XShards.from_array": Call(
        collected(hyperplane.ml.XShards.from_array), {"array": ARRAY}, (), (),
        hyperplane.ml.XShards.from_array,
    ),
    "XShards.from_bag": Call(
        collected(hyperplane.ml.XShards.from_bag), {"bag": RECORDS}, (), (),
        hyperplane.ml.XShards.from_bag,
    ),
    "XShards.from_pandas": Call(
        collected(hyperplane.ml.XShards.from_pandas),
        {"df": FreshArgument(lambda: table().compute()), "num_shards": 2}, (), (),
        hyperplane.ml.XShards.from_pandas,
    ),
    "ml.read_csv": Call(
        collected(hyperplane.ml.read_csv), {"file_path": "x.csv"}, (), (), hyperplane.ml.read_csv
    ),
    "ml.read_json": Call(
        collected(hyperplane.ml.read_json), {"file_path": "x.jsonl", "lines": True}, ("lines",),
        (), hyperplane.ml.read_json,
    ),
    "ml.read_parquet": Call(
        collected(hyperplane.ml.read_parquet), {"file_path": "x.parquet"}, (), (),
        hyperplane.ml.read_parquet,
    ),
    "init_orca_context": Call(hyperplane.orca.init_orca_context, {"cluster_mode": "local"}),
    "StringIndexer": Call(transformer.StringIndexer, {"inputCol": "a"}),
    "StringIndexer.setInputCol": Call(
        lambda **options: transformer.StringIndexer("b").setInputCol(**options), {"inputCol": "a"},
        (), (), transformer.StringIndexer.setInputCol,
    ),
    "StringIndexer.fit_transform": Call(
        lambda **options: transformer.StringIndexer("a").fit_transform(**options),
        {"shard": FreshArgument(frames)}, (), (), transformer.StringIndexer.fit_transform,
    ),
    "StringIndexer.transform": Call(
        fitted_transform, {"shard": FreshArgument(frames)}, (), (),
        transformer.StringIndexer.transform,
    ),
    "MinMaxScaler": Call(transformer.MinMaxScaler, {"inputCol": "a", "outputCol": "b"}),
    "StandardScaler": Call(transformer.StandardScaler, {"inputCol": "a", "outputCol": "b"}),
}  # fmt: skip

ALL = {**CLUSTERS, **FILES, **COLLECTIONS, **JOBS, **ML, **ESTIMATORS, **SHARDS}
