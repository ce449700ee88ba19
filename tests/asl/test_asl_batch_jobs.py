"""Jobs of AWS Batch as programs of this machine."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from hyperplane.asl import batch_jobs
from hyperplane.asl.batch_jobs import BATCH_RESOURCES, BatchJobs
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import RequestError

pytestmark = pytest.mark.process


def run(folder: Path, command: list[str] | None, *, state=None, logs=None, **parameters):
    overrides = {} if command is None else {"Command": command}
    task = {
        "Type": "Task", "Resource": BATCH_RESOURCES[0], "End": True, **(state or {}),
        "Parameters": {
            "JobName": "one", "JobQueue": "fast", "JobDefinition": "d",
            "ContainerOverrides": {**overrides, **parameters.pop("overrides", {})}, **parameters,
        },
    }  # fmt: skip
    machine = read_machine({"StartAt": "A", "States": {"A": task}})
    jobs = BatchJobs(str(folder), None if logs is None else str(logs))
    return run_machine(machine, {}, dict.fromkeys(BATCH_RESOURCES, jobs))


def test_a_program_has_the_variables_of_batch_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    variables = [{"Name": "YEAR", "Value": "2013"}]
    result = run(tmp_path, ["sh", "-c", "env > seen"], overrides={"Environment": variables})
    assert (result["JobName"], result["Status"]) == ("one", "SUCCEEDED")
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen["YEAR"] == "2013"
    assert seen["AWS_BATCH_JOB_ID"] == result["JobId"]
    assert seen["AWS_BATCH_JQ_NAME"] == "fast"
    assert "MY_TOKEN" not in seen
    assert "AWS_BATCH_JOB_ARRAY_INDEX" not in seen


def test_all_children_of_an_array_run_also_if_one_fails(tmp_path):
    script = (
        'touch "done-$AWS_BATCH_JOB_ARRAY_INDEX"; echo no rows; exit "$AWS_BATCH_JOB_ARRAY_INDEX"'
    )
    with pytest.raises(MachineFailed) as failed:
        run(tmp_path, ["sh", "-c", script], logs=tmp_path / "logs", ArrayProperties={"Size": 3})
    assert failed.value.error == "States.TaskFailed"
    assert "2 of 3 children failed; one-1 ended with exit status 1: no rows" in failed.value.cause
    assert len(list(tmp_path.glob("done-*"))) == 3
    assert (tmp_path / "logs/A.2.log").read_text() == "no rows\n"


@pytest.mark.parametrize(
    ("command", "parameters", "where"),
    [
        (None, {}, "ContainerOverrides.Command"),
        ([], {}, "ContainerOverrides.Command"),
        (["true"], {"ArrayProperties": {"Size": 1}}, "ArrayProperties.Size"),
        (["true"], {"ArrayProperties": {"Size": True}}, "ArrayProperties.Size"),
        (["true"], {"ArrayProperties": 3}, "ArrayProperties"),
        (["true"], {"RetryStrategy": {"Attempts": 11}}, "RetryStrategy.Attempts"),
        (["true"], {"Timeout": {"AttemptDurationSeconds": 5}}, "Timeout.AttemptDurationSeconds"),
        (["true"], {"overrides": {"Environment": [3]}}, "ContainerOverrides.Environment"),
        (["true"], {"overrides": {"Environment": {}}}, "ContainerOverrides.Environment"),
    ],
)
def test_a_job_that_cannot_run_here_is_a_fault_before_the_run(tmp_path, command, parameters, where):
    with pytest.raises(RequestError) as refused:
        run(tmp_path, command, **parameters)
    assert [fault.where for fault in refused.value.faults] == [f"States.A.Parameters.{where}"]


def test_a_job_that_is_known_at_run_time_only_fails_with_the_reason(tmp_path):
    """Its parameters, a part of them, or its program."""
    with pytest.raises(MachineFailed, match="no-such-program cannot be started"):
        run(tmp_path, ["no-such-program"])
    whole = {"Type": "Task", "Resource": BATCH_RESOURCES[0], "End": True}
    part = {**whole, "Parameters": {"ContainerOverrides.$": "$.overrides"}}
    jobs = dict.fromkeys(BATCH_RESOURCES, BatchJobs(str(tmp_path)))
    for state in (whole, part):
        machine = read_machine({"StartAt": "A", "States": {"A": state}})
        with pytest.raises(MachineFailed, match="Command is not set; expected the program"):
            run_machine(machine, {"overrides": {}}, jobs)


def test_all_missing_tasks_are_found_before_the_first_task_runs(tmp_path):
    """Also those of states whose job definition is in the input of the execution."""
    echo = {"ContainerOverrides": {"Command": ["touch", "ran"]}}
    dynamic = {"JobDefinition.$": "$$.Execution.Input.definition", **echo}
    invoke = "arn:aws:states:::lambda:invoke"
    job = {"Type": "Task", "Parameters": dynamic, "ResultPath": None}
    states = {
        "one": {**job, "Resource": BATCH_RESOURCES[0], "Next": "two"},
        "two": {**job, "Resource": BATCH_RESOURCES[1], "Next": "three"},
        "three": {
            "Type": "Task", "Resource": invoke, "ResultPath": None, "Next": "four",
            "Parameters": {"FunctionName.$": "$$.Execution.Input.function"},
        },
        "four": {
            "Type": "Task", "Resource": invoke, "End": True,
            "Parameters": {"FunctionName.$": "$.function"},
        },
    }  # fmt: skip
    machine = read_machine({"StartAt": "one", "States": states})
    data = {"definition": "train:3", "function": "f"}
    with pytest.raises(RequestError) as refused:
        run_machine(machine, data, {BATCH_RESOURCES[0]: BatchJobs(str(tmp_path))})
    faults = {fault.where: fault.asked for fault in refused.value.faults}
    assert faults == {
        "States.two.Resource": BATCH_RESOURCES[1], "States.three.Parameters.FunctionName": "f"
    }  # fmt: skip
    assert not (tmp_path / "ran").exists()
    with pytest.raises(RequestError) as refused:
        run_machine(machine, data, {})
    assert len(refused.value.faults) == 4
    assert "BatchJobs (--batch-folder)" in refused.value.faults[0].advice
    tasks = {"train": lambda job: None, "f": lambda job: 5}
    assert run_machine(machine, data, {**tasks, "four": lambda job: 5})["Payload"] == 5


def test_a_retry_appends_to_the_log(tmp_path):
    retry = {"Retry": [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]}
    script = "echo again; test -e once || { touch once; exit 3; }"
    run(tmp_path, ["sh", "-c", script], logs=tmp_path / "logs", state=retry)
    assert (tmp_path / "logs/A.log").read_text() == "again\nagain\n"


def test_each_child_has_the_attempts_of_its_job(tmp_path):
    script = (
        'echo "$AWS_BATCH_JOB_ATTEMPT" >> "tries-$AWS_BATCH_JOB_ARRAY_INDEX"; '
        'test "$AWS_BATCH_JOB_ATTEMPT" -gt "$AWS_BATCH_JOB_ARRAY_INDEX"'
    )
    array = {"ArrayProperties": {"Size": 4}, "RetryStrategy": {"Attempts": 3}}
    with pytest.raises(MachineFailed, match="1 of 4 children failed; one-3"):
        run(tmp_path, ["sh", "-c", script], **array)
    tries = [(tmp_path / f"tries-{index}").read_text().split() for index in range(4)]
    assert tries == [["1"], ["1", "2"], ["1", "2", "3"], ["1", "2", "3"]]


def test_an_attempt_that_exceeds_its_limit_is_the_last(tmp_path, monkeypatch):
    limits = {**batch_jobs._NUMBERS, ("Timeout", "AttemptDurationSeconds"): (1, 60)}
    monkeypatch.setattr(batch_jobs, "_NUMBERS", limits)
    script = ["sh", "-c", "echo $$ >> pids; sleep 600"]
    with pytest.raises(MachineFailed) as failed:
        run(
            tmp_path, script, RetryStrategy={"Attempts": 3}, Timeout={"AttemptDurationSeconds": 1},
            state={"TimeoutSeconds": 900},
        )  # fmt: skip
    assert failed.value.error == "States.TaskFailed"
    assert failed.value.cause == "job 'one': one exceeded its time limit of 1 s"
    [pid] = (tmp_path / "pids").read_text().split()
    _wait_for_end(int(pid))


def test_each_program_has_its_own_log_also_if_names_of_jobs_are_equal(tmp_path):
    """Also names that no file can have; the array of one state has the name of another state."""
    long = "x" * 80

    def job(text, **parameters):
        overrides = {"Command": ["sh", "-c", f"echo {text} $AWS_BATCH_JOB_ARRAY_INDEX"]}
        return {
            "Type": "Task", "Resource": BATCH_RESOURCES[0], "ResultPath": None,
            "Parameters": {"JobName": "x" * 300, "ContainerOverrides": overrides, **parameters},
        }  # fmt: skip

    def branch(name, text):
        return {"StartAt": name, "States": {name: {**job(text), "End": True}}}

    each = {"Type": "Map", "ItemsPath": "$.items", "ResultPath": None, "Next": "both"}
    both = {
        "Type": "Parallel", "ResultPath": None, "Next": "a/b",
        "Branches": [branch("left", "left"), branch(f"{long[:-1]}é", "right")],
    }  # fmt: skip
    states = {
        "years": {**job("years", ArrayProperties={"Size": 2}), "Next": "years.1"},
        "years.1": {**job("one"), "Next": "each"},
        "each": {**each, "ItemProcessor": branch("item", "item")},
        "both": both,
        "a/b": {**job("slash"), "Next": "a-b"},
        "a-b": {**job("dash"), "Next": long},
        long: {**job("long"), "End": True},
    }
    machine = read_machine({"StartAt": "years", "States": states})
    logs = tmp_path / "logs"
    jobs = dict.fromkeys(BATCH_RESOURCES, BatchJobs(str(tmp_path), str(logs)))
    run_machine(machine, {"items": [1, 2]}, jobs)
    texts = {log.name: log.read_text().strip() for log in logs.iterdir()}
    assert sorted(texts.values()) == sorted(
        ["years 0", "years 1", "one", "item", "item", "left", "right", "slash", "dash", "long"]
    )
    expected = {
        "years.0.log": "years 0", "each.1.item.log": "item", "both.0.left.log": "left",
        "a-b.log": "dash",
    }  # fmt: skip
    assert expected.items() <= texts.items()


def test_a_log_that_cannot_be_written_is_a_failure_of_the_task(tmp_path):
    (tmp_path / "logs/A.log").mkdir(parents=True)
    with pytest.raises(MachineFailed, match="the log of A cannot be written"):
        run(tmp_path, ["true"], logs=tmp_path / "logs")


def test_a_timeout_and_a_cancellation_end_the_programs(tmp_path):
    script = ["sh", "-c", "echo $$ > pid; sleep 600"]
    with pytest.raises(MachineFailed) as failed:
        run(tmp_path, script, state={"TimeoutSeconds": 1})
    assert failed.value.error == "States.Timeout"
    _wait_for_end(int((tmp_path / "pid").read_text()))
    cancel = threading.Event()
    task = {
        "Type": "Task", "Resource": BATCH_RESOURCES[0], "End": True,
        "Parameters": {"ContainerOverrides": {"Command": ["sh", "-c", "echo $$ > p2; sleep 600"]}},
    }  # fmt: skip
    machine = read_machine({"StartAt": "A", "States": {"A": task}})
    tasks = {BATCH_RESOURCES[0]: BatchJobs(str(tmp_path))}

    def stop() -> None:
        while not (tmp_path / "p2").exists() or not (tmp_path / "p2").read_text().strip():
            time.sleep(0.05)
        cancel.set()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(MachineFailed) as failed:
        run_machine(machine, {}, tasks, cancel=cancel)
    thread.join()
    assert failed.value.error == "Cancelled"
    _wait_for_end(int((tmp_path / "p2").read_text()))


def _wait_for_end(pid: int) -> None:
    for _ in range(600):
        if not psutil.pid_exists(pid):
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("the program was not ended")


def test_arguments_of_batch_jobs_are_checked(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError) as refused:
        BatchJobs(str(tmp_path / "none"), str(tmp_path / "file"))
    assert [fault.where for fault in refused.value.faults] == ["folder", "logs"]
