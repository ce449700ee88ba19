"""Pipelines as state machines: valid, with steps in a correct order."""

from __future__ import annotations

import json
import math
import re
import threading

import dask
import pytest
from job_cases import bash, run_job

from hyperplane import config
from hyperplane.asl.batch_jobs import BatchJobs
from hyperplane.asl.checking import check_machine
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import RequestError
from hyperplane.jobs import Pipeline, Resources, Step
from hyperplane.jobs.execution.retries import retry_delay
from hyperplane.jobs.exporters.asl import BATCH


@pytest.fixture
def diamond(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Pipeline.from_steps(
        "diamond",
        [
            bash("first", "true", env={"KIND": "own"}),
            bash("left", "true", depends_on=("first",), chunks=4, retries=2, timeout=90),
            bash("right", "true", depends_on=("first",), resources=Resources(cores=2, ram_gb=4)),
            bash("wave 2", "true", depends_on=("left", "right")),
        ],
    )


def test_the_exported_machine_is_valid_and_has_the_settings_of_the_steps(diamond):
    machine = diamond.to_asl({"year": 1990, "path": "/evil"})
    assert check_machine(json.loads(json.dumps(machine))) == []
    assert list(machine["States"]) == ["first", "wave 2 2", "wave 2"]
    left, right = (
        branch["States"][branch["StartAt"]] for branch in machine["States"]["wave 2 2"]["Branches"]
    )
    assert left["Parameters"]["ArrayProperties"] == {"Size": 4}
    # Of each chunk: a retry of the state would run all again.
    assert left["Parameters"]["RetryStrategy"] == {"Attempts": 3}
    assert "Retry" not in left
    # For each chunk from its start, and not for all together from their submission.
    assert "TimeoutSeconds" not in left
    command = left["Parameters"]["ContainerOverrides"]["Command"]
    assert command[4:8] == ["timeout", "-k", "10", "90"]
    needs = right["Parameters"]["ContainerOverrides"]["ResourceRequirements"]
    assert needs == [{"Type": "VCPU", "Value": "2"}, {"Type": "MEMORY", "Value": "3815"}]
    first = machine["States"]["first"]["Parameters"]["ContainerOverrides"]["Environment"]
    assert {variable["Name"]: variable["Value"] for variable in first} == {
        "HYPERPLANE_JOB_STEP": "first",
        "HYPERPLANE_JOB_PIPELINE": "diamond",
        "PYTHONUNBUFFERED": "1",
        "HYPERPLANE_JOB_PARAMETER_YEAR": "1990",
        "YEAR": "1990",
        "HYPERPLANE_JOB_PARAMETER_PATH": "/evil",
        "KIND": "own",
    }


RETRY_SETTINGS = {
    "hyperplane.jobs.max_retries": 3,
    "hyperplane.jobs.retry_wait": "2.5s",
    "hyperplane.jobs.retry_wait_most": "7s",
}


def _retrier(step, **settings):
    with dask.config.set({**RETRY_SETTINGS, **settings}):
        machine = Pipeline.from_steps("p", [step]).to_asl()
    assert check_machine(json.loads(json.dumps(machine))) == []
    [retrier] = machine["States"][step.name].get("Retry", [None])
    return retrier


def test_the_retrier_has_the_retries_and_delays_of_the_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    retrier = _retrier(bash("one", "true"))
    assert retrier == {
        "ErrorEquals": ["States.TaskFailed", "States.Timeout"],
        "MaxAttempts": 3,
        "IntervalSeconds": 3,
        "BackoffRate": 2.0,
        "MaxDelaySeconds": 7,
    }
    assert _retrier(bash("one", "true", retries=1)) == {**retrier, "MaxAttempts": 1}
    assert _retrier(bash("one", "true", retries=0)) is None
    assert _retrier(bash("one", "true"), **{"hyperplane.jobs.max_retries": 0}) is None


@pytest.mark.parametrize(
    ("first", "most", "interval", "rate", "longest"),
    [
        ("0s", "0s", 1, 1.0, None),
        ("500ms", "900ms", 1, 1.0, None),
        ("100ms", "60s", 1, 2.0, 60),
        ("10s", "10s", 10, 1.0, None),
        ("9s", "4s", 4, 1.0, None),
        ("2d", "9000d", 172_800, 2.0, 31_622_399),
        ("400d", "9000d", 31_622_399, 1.0, None),
    ],
)
def test_delays_are_positive_and_within_the_limits_of_step_functions(
    tmp_path, monkeypatch, first, most, interval, rate, longest
):
    monkeypatch.chdir(tmp_path)
    waits = {"hyperplane.jobs.retry_wait": first, "hyperplane.jobs.retry_wait_most": most}
    retrier = _retrier(bash("one", "true"), **waits)
    # Step Functions refuses a maximum that does not exceed the interval.
    assert (retrier["IntervalSeconds"], retrier["BackoffRate"]) == (interval, rate)
    assert retrier.get("MaxDelaySeconds") == longest


def test_a_machine_that_runs_has_the_retry_delays_of_a_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {**RETRY_SETTINGS, "hyperplane.jobs.retry_wait": "3s"}
    with dask.config.set(settings):
        machine = read_machine(Pipeline.from_steps("p", [bash("one", "true")]).to_asl())
        delays = [retry_delay(retry, config.jobs()) for retry in (1, 2, 3)]

    def fail(parameters):
        raise OSError("no capacity")

    waits = []
    execution_input = {"job_queue": "q", "job_definition": "d"}
    with pytest.raises(MachineFailed):
        run_machine(machine, execution_input, {BATCH: fail}, sleep=waits.append)
    assert waits == delays == [3, 6, 7]


def test_an_exported_machine_runs_in_the_order_of_the_pipeline(diamond):
    done, lock = [], threading.Lock()

    def submit(parameters):
        with lock:
            done.append(parameters["JobName"])
        assert parameters["JobQueue"] == "q"
        assert parameters["JobDefinition"] == "d"
        return {"Status": "SUCCEEDED"}

    execution_input = {"job_queue": "q", "job_definition": "d"}
    machine = read_machine(json.loads(json.dumps(diamond.to_asl())))
    assert run_machine(machine, execution_input, {BATCH: submit}) == execution_input
    assert done[0] == "first"
    assert sorted(done[1:3]) == ["left", "right"]
    assert done[3] == "wave-2"


def test_all_features_that_batch_lacks_are_reported_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    steps = [
        Step(name="nb", kind="notebook", path="a.ipynb"),
        bash("each", "true", foreach=("a", "b"), secrets=("KEY",)),
        bash("one", "true", chunks=1),
        bash("four", "true", chunks=4, max_parallel=2, split=2, retries=1, output="s3://b/out"),
        bash("none", "true", resources=Resources(pool="none_such")),
    ]
    with pytest.raises(RequestError) as caught:
        Pipeline.from_steps("p", steps).to_asl()
    wheres = [fault.where for fault in caught.value.faults]
    assert wheres == [
        "steps[0].kind", "steps[1].foreach", "steps[1].secrets", "steps[2].chunks",
        "steps[3].max_parallel", "steps[3].output", "steps[3].split", "steps[4].resources.pool",
    ]  # fmt: skip


def test_a_pool_and_a_cluster_are_in_the_exported_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pool = config.get_pool("16_16")
    step = bash("one", "true", resources=Resources(pool="16_16"), cluster={"nprocs": 2})
    machine = Pipeline.from_steps("p", [step]).to_asl()
    overrides = machine["States"]["one"]["Parameters"]["ContainerOverrides"]
    assert {need["Type"]: need["Value"] for need in overrides["ResourceRequirements"]} == {
        "VCPU": f"{pool.allocatable_cores:g}",
        "MEMORY": str(math.ceil(int(pool.allocatable_ram_gb * 1e9) / 2**20)),
    }
    assert {"Name": "HYPERPLANE_CLUSTER", "Value": '{"nprocs": 2}'} in overrides["Environment"]


def run_exported(folder, step):
    machine = read_machine(Pipeline.from_steps("p", [step]).to_asl({"year": 2013, "token": "x"}))
    tasks = {BATCH: BatchJobs(str(folder))}
    return run_machine(machine, {"job_queue": "q", "job_definition": "d"}, tasks)


@pytest.mark.process
@pytest.mark.parametrize("chunks", [None, 2])
def test_the_variables_of_an_exported_step_are_those_of_a_job(tmp_path, monkeypatch, chunks):
    """Also ``env`` with the names of a parameter, a chunk and the number of chunks."""
    monkeypatch.chdir(tmp_path)
    env = {"YEAR": "1990", "KIND": "own"}
    if chunks:
        env |= {"CHUNK_ID": "mine", "HYPERPLANE_SHARD_COUNT": "7"}
    show = 'env > "$OUT-${HYPERPLANE_SHARD_INDEX:-0}"'
    seen = {}
    for place in ("job", "machine"):
        step = bash("one", show, chunks=chunks, env={**env, "OUT": str(tmp_path / place)})
        if place == "job":
            assert run_job(step, parameters={"year": 2013, "token": "x"}).status == "done"
        else:
            run_exported(tmp_path, step)
        lines = (tmp_path / f"{place}-0").read_text().splitlines()
        seen[place] = dict(line.split("=", 1) for line in lines if "=" in line)
    names = {
        "YEAR", "TOKEN", "KIND", "CHUNK_ID", "HYPERPLANE_SHARD_INDEX", "HYPERPLANE_SHARD_COUNT",
        "HYPERPLANE_JOB_PARAMETER_YEAR", "HYPERPLANE_JOB_PARAMETER_CHUNK_ID", "HYPERPLANE_JOB_STEP",
        "PYTHONUNBUFFERED",
    }  # fmt: skip
    job, machine = ({name: seen[place].get(name) for name in names} for place in seen)
    assert machine == job
    assert machine["CHUNK_ID"] == ("mine" if chunks else None)


@pytest.mark.process
@pytest.mark.slow
def test_the_time_limit_is_that_of_each_chunk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = 'test "$CHUNK_ID" != 1 || sleep 600'
    with pytest.raises(MachineFailed, match=r"1 of 3 children failed; all-1 .* 124"):
        run_exported(tmp_path, bash("all", text, chunks=3, timeout=3, retries=0))
    with pytest.raises(MachineFailed, match="exit status 124"):
        run_exported(tmp_path, bash("one", "sleep 600", timeout=0.2, retries=0))


@pytest.mark.process
def test_a_retry_runs_only_the_chunks_that_have_failed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (
        'echo x >> "$CHUNK_ID"; test "$CHUNK_ID" != 1 || test -e again || { touch again; false; }'
    )
    run_exported(tmp_path, bash("all", text, chunks=3, retries=2))
    assert [len((tmp_path / str(chunk)).read_text().split()) for chunk in range(3)] == [1, 2, 1]
    with pytest.raises(RequestError, match=r"steps\[0\].retries = 10: expected at most 9"):
        Pipeline.from_steps("p", [bash("all", text, chunks=3, retries=10)]).to_asl()


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.4, "1.4"), (0.0001, "0.001"), (3600, "3600"), (90.5, "90.5")]
)
def test_a_time_limit_is_not_rounded(tmp_path, monkeypatch, seconds, text):
    monkeypatch.chdir(tmp_path)
    machine = Pipeline.from_steps("p", [bash("one", "true", timeout=seconds)]).to_asl()
    command = machine["States"]["one"]["Parameters"]["ContainerOverrides"]["Command"]
    assert command[:4] == ["timeout", "-k", "10", text]


def test_names_of_jobs_are_those_that_batch_allows_and_distinct(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("a b", "a-b", "a.b", "Übung 1", "數", "--", "x" * 128, "x" * 127 + "y")
    steps = [bash(name, "true") for name in names]
    machine = Pipeline.from_steps("p", steps).to_asl()
    jobs = [state["Parameters"]["JobName"] for state in machine["States"].values()]
    assert len(set(jobs)) == len(jobs)
    assert all(re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]{0,127}", name) for name in jobs)
    assert jobs[:6] == ["a-b", "a-b-2", "a-b-3", "bung-1", "step", "step-2"]


def test_what_batch_refuses_is_found_at_the_export(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    steps = [
        bash("one", "true", env={"AWS_BATCH_MINE": "1", "AWS_REGION": "x"}),
        Step(name="two", kind="command", argv=("echo", "", "Ref::x", "a Ref::x")),
    ]
    with pytest.raises(RequestError) as refused:
        Pipeline.from_steps("p", steps, working_dir="here").to_asl()
    assert [fault.where for fault in refused.value.faults] == [
        "working_dir", "steps[0].env", "steps[1].argv[1]", "steps[1].argv[2]"
    ]  # fmt: skip
    glue = {"resource": "arn:aws:states:::glue:startJobRun.sync", "parameters": {"JobName": "g"}}
    steps = [bash("one", "true"), bash("two", "true", step_functions=glue)]
    with pytest.raises(RequestError, match=r"steps\[0\] = .* bytes: expected at most 30720 bytes"):
        Pipeline.from_steps("p", steps).to_asl({"large": "x" * 16_000})
    steps = [bash(f"s{number}", "true") for number in range(60)]
    with pytest.raises(RequestError, match=r"steps = .* expected a machine of at most 1048576"):
        Pipeline.from_steps("p", steps).to_asl({"large": "x" * 12_000})


def test_a_script_is_no_option_of_its_interpreter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-c").write_text("")
    step = Step(name="one", kind="python", path="-c")
    machine = Pipeline.from_steps("p", [step], root=tmp_path).to_asl()
    command = machine["States"]["one"]["Parameters"]["ContainerOverrides"]["Command"]
    assert command == ["python", "./-c"]


def test_long_names_remain_distinct(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = [bash("x" * 100 + str(number), "true") for number in range(3)]
    machine = Pipeline.from_steps("p", steps).to_asl()
    assert check_machine(machine) == []
    assert len(machine["States"]) == 3


def test_a_step_with_a_service_is_that_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resource = "arn:aws:states:::elasticmapreduce:addStep.sync"
    parameters = {"ClusterId.$": "$.cluster", "Step": {"Name": "count"}}
    task = {"resource": resource, "parameters": parameters}
    step = bash("one", "true", step_functions=task, gang=2, retries=1, timeout=60)
    machine = Pipeline.from_steps("p", [step]).to_asl()
    state = machine["States"]["one"]
    assert (state["Resource"], state["Parameters"]) == (resource, parameters)
    assert (state["Retry"][0]["MaxAttempts"], state["TimeoutSeconds"]) == (1, 60)
    bad = {**task, "parameters": {**parameters, "x.$": "$["}}
    pipeline = Pipeline.from_steps("p", [bash("one", "true", step_functions=bad)])
    with pytest.raises(RequestError, match=r"States.one.Parameters.x"):
        pipeline.to_asl()
    chunked = Pipeline.from_steps("p", [step.model_copy(update={"chunks": 3})])
    with pytest.raises(RequestError, match=r"steps\[0\].chunks"):
        chunked.to_asl()


@pytest.mark.parametrize(
    ("task", "where"),
    [
        ({}, "resource"),
        ({"resource": "glue"}, "resource"),
        ({"resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken"}, "resource"),
        ({"resource": "arn:aws:states:::glue:startJobRun"}, "parameters.JobName"),
        ({"resource": "arn:aws:lambda:x:1:function:f", "parameters": 3}, "parameters"),
        ({"resource": "arn:aws:lambda:x:1:function:f", "retry": 3}, "retry"),
    ],
)  # fmt: skip
def test_faults_of_a_service_are_those_of_the_step(task, where):
    with pytest.raises(RequestError) as refused:
        bash("one", "true", step_functions=task)
    assert [fault.where for fault in refused.value.faults] == [f"step_functions.{where}"]
