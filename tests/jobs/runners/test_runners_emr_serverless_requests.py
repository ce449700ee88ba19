"""Requests to EMR Serverless, without a service: validity, sizes, costs, states and faults."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
import dask
import pytest
from botocore.validate import ParamValidator
from runner_cases import command, make_job

from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners import registry
from hyperplane.jobs.runners.emr_serverless.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.emr_serverless.requests import attempt_minutes, plan_serverless_run
from hyperplane.jobs.runners.emr_serverless.runner import EmrServerlessRunner
from hyperplane.jobs.runners.emr_serverless.step_checks import find_option_faults
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.platforms.aws.emr_serverless_status import parse_serverless_run
from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.spec.settings import EmrServerlessSettings

PREFIX = Path("/jobs/6f1d2c3b-0000-4000-8000-000000000001/steps/001-years/chunk-00002/attempt-1")
NAME = "hyperplane-6f1d2c3b-0000-001-years-00002-1"
STEP = command("years", "python", "-c", "x", resources=Resources(cores=2, ram_gb=4))
PROGRAM = TaskFile("task_program.py", b"print(1)")
OPTIONS = {
    "application": "00f1",
    "role": "arn:aws:iam::123456789012:role/serverless",
    "staging": "s3://flights/jobs",
}


def settings(**options: Any) -> EmrServerlessSettings:
    return EmrServerlessSettings(**{**OPTIONS, **options})


def faults(request: dict[str, Any]) -> str:
    """Return what botocore's model of the service finds in a request that starts a run."""
    model = botocore.session.get_session().get_service_model("emr-serverless")
    shape = model.operation_model("StartJobRun").input_shape
    return str(ParamValidator().validate(request, shape).generate_report())


def test_a_run_follows_the_model_of_the_service() -> None:
    more = settings(
        workers=4, python="python3.11", python_files=["s3://flights/tool.whl"], tags=["team=a b"],
        spark_conf=["spark.sql.shuffle.partitions=64", "spark.app.note=it's one"],
    )  # fmt: skip
    step = STEP.model_copy(update={"timeout": 600.0})
    attempt = AttemptCommand(("python", "-c", "x"), {"TOKEN": "s3cret"}, ".", PREFIX)
    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        planned = plan_serverless_run(attempt, step, 1.0, more, PROGRAM, [])
    request = planned.request
    assert faults(request) == ""
    assert "Size" in faults({**request, "Size": "x"})  # the check works
    assert (planned.name, planned.manifest_key) == (NAME, f"jobs/attempts/{NAME}.json")
    assert request["clientToken"] == hashlib.sha256(NAME.encode()).hexdigest()
    assert len(request["clientToken"]) <= 64  # the most that the service takes
    assert request["name"] == NAME
    assert request["executionTimeoutMinutes"] == 13
    assert request["tags"] == {
        "team": "a b",
        "hyperplane-job": "6f1d2c3b-0000-4000-8000-000000000001",
    }
    driver = request["jobDriver"]["sparkSubmit"]
    assert driver["entryPoint"].startswith("s3://flights/jobs/content/")
    assert driver["entryPointArguments"][-4:] == [
        "--hyperplane_log", f"jobs/attempts/{NAME}.log", "--hyperplane_seconds", "0"
    ]  # fmt: skip
    words = shlex.split(driver["sparkSubmitParameters"])
    assert words[-2:] == ["--py-files", "s3://flights/tool.whl"]
    pairs = dict(word.split("=", 1) for word in words[1:-2:2])
    # 4 GB for the program and 2 GiB for the JVM, in steps of 1 GiB.
    assert (pairs["spark.driver.memory"], pairs["spark.driver.memoryOverhead"]) == (
        "1024m",
        "5120m",
    )
    assert pairs["spark.driver.cores"] == pairs["spark.executor.cores"] == "2"
    assert pairs["spark.executor.instances"] == "3"
    assert pairs["spark.app.note"] == "it's one"
    assert pairs["spark.executorEnv.PYSPARK_PYTHON"] == "python3.11"


def test_minutes_of_runs() -> None:
    limits = {None: 10_080, 10.0: 5, 600.0: 13, 8 * 86_400.0: 10_080}
    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        assert {timeout: attempt_minutes(timeout) for timeout in limits} == limits


def test_all_faults_of_settings_and_pipelines_are_reported_at_once(tmp_path: Path) -> None:
    tags = [f"t{number}=x" for number in range(50)]
    found = find_option_faults(EmrServerlessSettings(tags=tags, send_package=True))
    expected = ("application", "role", "staging", "tags", "send_package")
    assert [fault.where for fault in found] == [
        f"hyperplane.runners.emr_serverless.{name}" for name in expected
    ]
    with pytest.raises(RequestError) as caught:
        registry.resolve_options("emr-serverless", {"rol": "x", "workers": 1})
    assert len(caught.value.faults) == 2
    (tmp_path / "needs.txt").write_text("polars\n")
    steps = [
        Step(name="note", kind="notebook", path="a.ipynb"),
        Step(name="node", kind="javascript", path="a.js"),
        command("secret", "true", secrets=("token",)),
        command("long", "true", timeout=8 * 86_400),
        command("large", "true", resources=Resources(ram_gb=130)),
    ]
    job = make_job(*steps, root=tmp_path, requirements="needs.txt")
    runner = EmrServerlessRunner({}, settings().model_dump())
    assert [fault.where for fault in runner.find_unsupported(job.pipeline)] == [
        "requirements",
        "step 'note': kind",
        "step 'node': kind",
        "step 'secret': secrets",
        "step 'long': timeout",
        "step 'large': resources",
    ]
    runner = EmrServerlessRunner({}, settings(python="python3.11").model_dump())
    assert len(runner.find_unsupported(job.pipeline)) == 5


def test_rendering_needs_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "a.py").write_text("print(1)\n")
    step = Step(name="a", kind="python", path="a.py", chunks=3, max_parallel=2)
    job = make_job(step, root=tmp_path)
    [document] = render("emr-serverless", job, region="us-east-1", **OPTIONS)
    shown = json.loads(document.text)
    price = 2 * (0.052624 + 4 * 0.0057785)
    assert f"2 workers with 1 vCPU, 4096 MiB, {price:.4f} USD for an hour, 2 at" in shown["cost"]
    assert len(shown["start_job_runs"]) == 2
    for request in shown["start_job_runs"]:
        assert faults(request) == ""


def test_a_job_that_may_exceed_its_budget_is_refused() -> None:
    step = command("a", "true", resources=Resources(), chunks=10, timeout=3_270, retries=1)
    job = make_job(step, active_timeout=-1.0)

    def found(budget: str) -> int:
        chosen = settings(region="us-east-1", budget=budget)
        return len(EmrServerlessRunner({}, chosen.model_dump()).find_budget_faults(job))

    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        hours = 10 * 2 * 59 / 60  # with the margins of the run and of its end
        most = hours * 2 * (0.052624 + 4 * 0.0057785)
        assert found(f"{most + 0.001:.4f} USD") == 0
        assert found(f"{most - 0.001:.4f} USD") == 1
        assert found(f"{hours * 2 + 0.1} core-hours") == 0
        assert found(f"{hours * 2 - 0.1} core-hours") == 1


@pytest.mark.parametrize(
    ("state", "details", "expected"),
    [
        ("SUCCESS", "", "has_succeeded"),
        ("FAILED", "Driver exited: java.lang.OutOfMemoryError", "is_out_of_memory"),
        ("FAILED", "Internal service error", "is_lost"),
        ("FAILED", "ApplicationMaxCapacityExceeded: raise it", "has_no_capacity"),
        ("CANCELLED", "", "was_terminated"),
    ],
)
def test_states_of_runs(state: str, details: str, expected: str) -> None:
    status = parse_serverless_run({"state": state, "stateDetails": details})
    assert status.has_ended
    kinds = {"is_out_of_memory", "is_lost", "has_no_capacity", "has_succeeded"}
    assert {kind for kind in kinds if getattr(status, kind)} == {expected} & kinds
    assert getattr(status, expected)


def test_times_of_runs() -> None:
    created, ended = (datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2))
    times = {"createdAt": created, "updatedAt": ended}
    status = parse_serverless_run({"state": "SCHEDULED", **times})
    assert (status.started, status.stopped) == (0.0, 0.0)
    status = parse_serverless_run({"state": "SUCCESS", **times})
    assert (status.started, status.stopped) == (created.timestamp(), ended.timestamp())
    with pytest.raises(AwsConnectionError, match="no state"):
        parse_serverless_run({})


@pytest.mark.parametrize(("region", "where"), [("mars-1", "mars-1"), (None, "an unknown region")])
def test_a_region_without_a_price_is_named(region: str | None, where: str) -> None:
    reason = f"no price of EMR Serverless in {where}"
    assert f"cost unknown: {reason}" in estimate_cost(STEP, settings(), region, 2)
    price = container_costs(settings(budget=1), region).price(STEP, 1.0)
    assert (price.amount, price.source) == (None, reason)
