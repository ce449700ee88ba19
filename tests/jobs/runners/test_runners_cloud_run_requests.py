"""Requests to Cloud Run, faults before a submission, costs and budgets, without a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask
import pytest
from discovery import DiscoveryError, validate
from job_cases import bash
from runner_cases import command, make_job

from hyperplane.core.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners.cloud_run.requests import build_checked_job, plan_job, task_size
from hyperplane.jobs.runners.cloud_run.runner import CloudRunRunner
from hyperplane.jobs.runners.gcp.bucket_task import BOOTSTRAP
from hyperplane.jobs.runners.rehearsal import describe_differences, rehearse
from hyperplane.jobs.runners.rehearsed_task import TaskOutcome
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.platforms.gcp.cloud_run import creation_body
from hyperplane.spec.settings import CloudRunSettings

STEPS = Path("/jobs/8f2c0a11-1111-4000-8000-000000000001/steps")
PROGRAM = TaskFile("task_program.py", b"pass\n")
OPTIONS: dict[str, Any] = {
    "region": "europe-west4", "image": "registry.example/flights:1", "staging": "gs://flights/jobs"
}  # fmt: skip
JOB = {"$ref": "GoogleCloudRunV2Job"}


def settings(**others: Any) -> CloudRunSettings:
    return CloudRunSettings(**{**OPTIONS, **others})


def create_runner(**options: Any) -> CloudRunRunner:
    return CloudRunRunner({}, CloudRunRunner.resolve_options({**OPTIONS, **options}))


def plan(step: Step, factor: float = 1.0, prefix: str = "", **options: Any) -> dict[str, Any]:
    path = STEPS / (prefix or "002-Tidy up/chunk-00007/attempt-1")
    attempt = AttemptCommand(("python", "a.py"), {}, ".", path)
    return plan_job(attempt, step, factor, settings(**options), PROGRAM, []).job


def task_of(request: dict[str, Any]) -> Any:
    return request["job"]["template"]["template"]


def test_requests_are_those_of_the_discovery_document() -> None:
    step = command("a", "true", timeout=90, resources=Resources(gpus=1), secrets=("TOKEN",))
    request = plan(
        step, environ=["TZ=UTC"], labels=["team=flights"], secrets=["TOKEN=token:3"],
        service_account="steps@flights-test.iam.gserviceaccount.com",
    )  # fmt: skip
    body = creation_body(request["job"])
    validate("run", JOB, body, "job")
    validate("run", JOB, build_checked_job(settings(secrets=["TOKEN=token:3"])), "job")
    broken = json.loads(json.dumps(body).replace('"maxRetries": 0', '"maxRetries": "0"'))
    with pytest.raises(DiscoveryError, match="maxRetries"):
        validate("run", JOB, broken, "job")


def test_the_name_is_unique_short_and_a_valid_label() -> None:
    request = plan(command("a", "true"))
    name = "hyperplane-8f2c0a11-1111-002-tidy-up-00007-1"
    assert request["jobId"] == request["job"]["labels"]["hyperplane-attempt"] == name
    assert request["job"]["labels"]["hyperplane-job"] == STEPS.parent.name
    step = "999-" + "long" * 20
    longest = plan(command("a", "true"), prefix=f"{step}/chunk-999999/attempt-999")["jobId"]
    assert len(longest) + len(creation_body({})["startExecutionToken"]) < 63


def test_values_are_not_changed_and_the_program_is_fixed() -> None:
    [container] = task_of(plan(command("a", "true"), environ=["TEXT=$(touch canary)"]))[
        "containers"
    ]
    assert container["env"] == [{"name": "TEXT", "value": "$(touch canary)"}]
    assert container["command"] == ["python", "-c", BOOTSTRAP]
    [mount] = container["volumeMounts"]
    assert container["args"][0] == mount["mountPath"] == "/gcs/flights"


def test_the_service_does_not_retry_and_has_a_time_limit() -> None:
    with dask.config.set({"hyperplane.jobs.grace": "10s"}):
        task = task_of(plan(command("a", "true", timeout=90)))
        assert (task["maxRetries"], task["timeout"]) == (0, "220s")
        assert task_of(plan(command("a", "true", timeout=604_800)))["timeout"] == "604800s"
    # Without a limit, Cloud Run would end it after ten minutes.
    assert task_of(plan(command("a", "true")))["timeout"] == "604800s"
    gpu = command("a", "true", resources=Resources(gpus=1), timeout=3600)
    assert task_of(plan(gpu))["timeout"] == "3600s"


@pytest.mark.parametrize(
    ("resources", "factor", "expected"),
    [
        (Resources(), 1.0, (1, 1908, 0)),
        (Resources(cores=0.5, ram_gb=0.1), 1.0, (1, 512, 0)),
        (Resources(cores=0.5, ram_gb=0.1), 2.0, (1, 1024, 0)),  # of the container, not the request
        (Resources(cores=1, ram_gb=4), 2.0, (2, 7630, 0)),
        (Resources(cores=3), 1.0, (4, 2048, 0)),
        (Resources(cores=5), 1.0, (6, 4096, 0)),
        (Resources(cores=1, ram_gb=20), 1.0, (6, 19074, 0)),
        (Resources(cores=1, ram_gb=34.3), 1.0, (8, 32712, 0)),
        (Resources(cores=1, ram_gb=18), 2.0, None),
        (Resources(cores=9), 1.0, None),
        (Resources(gpus=1), 1.0, (4, 16384, 1)),
        (Resources(cores=8, gpus=1), 2.0, (8, 32768, 1)),
        (Resources(gpus=2), 1.0, None),
    ],
)
def test_sizes_of_containers(
    resources: Resources, factor: float, expected: tuple[float, int, int] | None
) -> None:
    assert task_size(command("a", "true", resources=resources), factor, settings()) == expected


def test_a_gpu_is_requested_with_its_type() -> None:
    task = task_of(plan(command("a", "true", resources=Resources(gpus=1))))
    [container] = task["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "4", "memory": "16384Mi", "nvidia.com/gpu": "1"
    }  # fmt: skip
    assert task["nodeSelector"] == {"accelerator": "nvidia-l4"}
    assert task["gpuZonalRedundancyDisabled"] is True


def test_steps_that_no_container_can_run_are_refused_with_the_reason() -> None:
    large = command("a", "true", resources=Resources(cores=4, ram_gb=50, gpus=2))
    long = command("b", "true", timeout=604_801)
    gpu = command("c", "true", resources=Resources(gpus=1), timeout=3601)
    faults = [
        str(fault)
        for fault in create_runner().find_unsupported(make_job(large, long, gpu).pipeline)
    ]
    assert "step 'a': resources = 4 vCPU, 47684 MiB, 2 GPUs: expected at most 8 cores" in faults[0]
    assert "and one GPU of type nvidia-l4; request less, or use another runner" in faults[0]
    assert "step 'b': timeout = 604801 s: expected at most 604800 s" in faults[1]
    assert "the longest time of a task with a GPU on Cloud Run" in faults[2]
    assert len(faults) == 3


def test_functions_requirements_and_unknown_secrets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text("polars\n")
    step = bash("a", "true", secrets=("database/password", "TOKEN"))
    pipeline = make_job(step, root=tmp_path, requirements="needs.txt").pipeline
    runner = create_runner(secrets=["TOKEN=token"], environ=["TOKEN=1"])
    faults = [str(fault) for fault in runner.find_unsupported(pipeline)]
    assert "no requirements on cloud-run" in faults[0]
    assert "cloud_run.environ = 'TOKEN': expected no variable with a secret of step" in faults[1]
    text = "add 'database/password=SECRET:VERSION' to hyperplane.runners.cloud_run.secrets"
    assert text in faults[2]
    assert len(faults) == 3


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    options = {"environ": ["PORT=1", "CLOUD_RUN_TASK_INDEX=1", "X_GOOGLE_A=1"]}
    runner = CloudRunRunner({}, CloudRunRunner.resolve_options(options))
    reason = runner.unavailable_reason()
    for name in ("region", "image", "staging"):
        assert f"hyperplane.runners.cloud_run.{name} is not set" in reason
    for name in ("PORT", "CLOUD_RUN_TASK_INDEX", "X_GOOGLE_A"):
        assert f"environ = '{name}': expected names that do not begin with CLOUD_RUN_" in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("staging", "s3://flights"),
        ("region", "europe"),
        ("secrets", ["TOKEN"]),
        ("secrets", ["TOKEN=projects/flights/token"]),
        ("service_account", "me@example.com"),
        ("cores", 9),
        ("machine_type", "e2-standard-4"),
    ],
)
def test_options_that_the_service_refuses_are_faults(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"runner_options.{name}"):
        CloudRunRunner.resolve_options({name: value})


def test_the_cost_is_that_of_the_table_or_unknown() -> None:
    job = make_job(command("a", "true", chunks=300))
    [line] = create_runner().describe_cost(job)
    assert line == (
        "step 'a': 1 vCPU, 1908 MiB in a container, 0.0782 USD for an hour, 100 at once "
        "(price of 2026-10, https://cloud.google.com/run/pricing)"
    )
    [line] = create_runner(region="europe-west3").describe_cost(job)
    assert line.endswith("cost unknown: no price of Cloud Run in europe-west3")
    [line] = create_runner().describe_cost(
        make_job(command("a", "true", resources=Resources(gpus=1)))
    )
    assert line.endswith("cost unknown: no price of Cloud Run with a GPU in europe-west4")


def test_a_job_that_may_exceed_its_budget_is_refused() -> None:
    # 3600 seconds: the timeout, the grace period, two minutes and ten seconds until SIGKILL.
    step = command("a", "true", timeout=3460, chunks=10, retries=1)
    job = make_job(step, active_timeout=-1.0)

    def faults(budget: Any, **options: Any) -> list[str]:
        runner = create_runner(budget=budget, **options)
        return list(map(str, runner.find_budget_faults(job)))

    with dask.config.set({"hyperplane.jobs.grace": "10s"}):
        assert faults("1.57 USD") == []
        [fault] = faults("1.56 USD")
        assert "step 'a': 10 containers, 20 hours, 1.56 USD (price of 2026-10" in fault
        assert faults("20 core-hours") == []
        assert len(faults("19 core-hours")) == 1
        [fault] = faults("5 USD", region="europe-west3")
        assert "cost = unknown" in fault
    assert faults(None) == []


@pytest.mark.process
def test_tasks_are_rehearsed_in_the_environment_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os\n"
        "print(sorted(os.environ), os.listdir('.'), os.environ['ITEM'])\n"
        "print(os.environ['CLOUD_RUN_TASK_INDEX'], os.environ['CLOUD_RUN_TASK_COUNT'])\n"
    )
    step = Step(name="a", kind="python", path="a.py", foreach=("2013", "2014"))
    outcomes: list[TaskOutcome] = []
    runner = create_runner(environ=["TZ=UTC"])
    job = make_job(step, root=tmp_path)
    assert rehearse(job, runner, all_chunks=True, report=outcomes.append), outcomes[-1].log
    assert "['a.py'] 2013\n0 2\n" in outcomes[0].log
    assert "['a.py'] 2014\n1 2\n" in outcomes[1].log
    for name in ("'CLOUD_RUN_JOB'", "'TZ'", "'CLOUD_RUN_TASK_ATTEMPT'"):
        assert name in outcomes[0].log
    assert "'CLOUD_ML" not in outcomes[0].log
    assert "on Cloud Run chunks run at once" in "\n".join(describe_differences(job, runner))


def test_all_chunks_are_rendered() -> None:
    [document] = render("cloud-run", make_job(command("a", "true", chunks=3)), **OPTIONS)
    content = json.loads(document.text)
    assert len(content["create_jobs"]) == len(content["manifests"]) == 3
    assert content["create_jobs"][0]["parent"] == "projects/PROJECT/locations/europe-west4"
    indices = [
        (manifest["variables"]["CLOUD_RUN_TASK_INDEX"], manifest["variables"]["CHUNK_ID"])
        for manifest in content["manifests"].values()
    ]
    assert indices == [("0", "0"), ("1", "1"), ("2", "2")]
