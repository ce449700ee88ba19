"""Requests to Vertex AI, faults before a submission, costs and budgets, without a service."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pytest
from discovery import DiscoveryError, validate
from job_cases import bash
from runner_cases import command, make_job

import hyperplane
from hyperplane.core.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners.gcp.bucket_task import BOOTSTRAP
from hyperplane.jobs.runners.rehearsal import describe_differences, rehearse
from hyperplane.jobs.runners.rehearsed_task import TaskOutcome
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.vertex.machines import step_machine
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.runner import VertexRunner
from hyperplane.spec.settings import VertexSettings

PREFIX = Path("/jobs/8f2c0a11-1111-4000-8000-000000000001/steps/002-Tidy up/chunk-00007/attempt-1")
PROGRAM = TaskFile("task_program.py", b"pass\n")
OPTIONS: dict[str, Any] = {
    "region": "europe-west4", "image": "registry.example/flights:1", "staging": "gs://flights/jobs"
}  # fmt: skip


def settings(**others: Any) -> VertexSettings:
    return VertexSettings(**{**OPTIONS, **others})


def create_runner(**options: Any) -> VertexRunner:
    return VertexRunner({}, VertexRunner.resolve_options({**OPTIONS, **options}))


def plan(step: Step, factor: float = 1.0, **options: Any) -> dict[str, Any]:
    attempt = AttemptCommand(("python", "a.py"), {}, ".", PREFIX)
    return plan_job(attempt, step, factor, settings(**options), PROGRAM, []).job


def test_requests_are_those_of_the_discovery_document() -> None:
    schema = {"$ref": "GoogleCloudAiplatformV1CustomJob"}
    step = command("a", "true", timeout=90, resources=Resources(gpus=1))
    job = plan(
        step, series="n1", gpu_type="NVIDIA_TESLA_T4", spot=True, environ=["TZ=UTC"],
        labels=["team=flights"], network="projects/1/global/networks/one",
        service_account="steps@flights-test.iam.gserviceaccount.com",
    )  # fmt: skip
    validate("aiplatform", schema, job, "job")
    broken = json.loads(json.dumps(job).replace('"replicaCount": "1"', '"replicaCount": 1'))
    with pytest.raises(DiscoveryError, match="replicaCount"):
        validate("aiplatform", schema, broken, "job")


def test_the_name_is_unique_and_a_valid_label() -> None:
    job = plan(command("a", "true"))
    name = "hyperplane-8f2c0a11-1111-002-tidy-up-00007-1"
    assert job["displayName"] == job["labels"]["hyperplane-attempt"] == name
    assert job["labels"]["hyperplane-job"] == "8f2c0a11-1111-4000-8000-000000000001"
    own = plan(command("a", "true"), labels=["hyperplane-attempt=other", "team=flights"])
    assert own["labels"]["hyperplane-attempt"] == name
    assert own["labels"]["team"] == "flights"


def test_variables_are_not_expanded_and_the_program_is_fixed() -> None:
    job = plan(command("a", "true"), environ=["TEXT=$(touch canary) $HOME"])
    [pool] = job["jobSpec"]["workerPoolSpecs"]
    container = pool["containerSpec"]
    assert container["env"] == [{"name": "TEXT", "value": "$$(touch canary) $HOME"}]
    assert container["command"] == ["python", "-c", BOOTSTRAP]
    assert container["args"][0] == "/gcs/flights"
    ast.parse(BOOTSTRAP)


def test_the_service_does_not_retry_and_has_a_time_limit() -> None:
    with dask.config.set({"hyperplane.jobs.grace": "10s"}):
        scheduling = plan(command("a", "true", timeout=90))["jobSpec"]["scheduling"]
    assert scheduling == {"disableRetries": True, "timeout": "220s"}
    assert plan(command("a", "true"), spot=True)["jobSpec"]["scheduling"] == {
        "disableRetries": True, "strategy": "SPOT"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "factor", "options", "expected"),
    [
        (Resources(), 1.0, {}, "e2-highmem-2"),
        (Resources(cores=4, ram_gb=8), 1.0, {}, "e2-standard-4"),
        (Resources(cores=4, ram_gb=8), 2.0, {}, "e2-highmem-4"),
        (Resources(cores=4, ram_gb=8), 9.0, {}, None),
        (Resources(cores=4), 1.0, {"machine_type": "n1-standard-8"}, "n1-standard-8"),
        (Resources(cores=4), 2.0, {"machine_type": "n1-standard-8"}, "n1-standard-16"),
        (Resources(cores=9), 1.0, {"machine_type": "n1-standard-8"}, None),
        (Resources(gpus=1), 1.0, {"series": "g2"}, "g2-standard-4 with 1 NVIDIA_L4"),
        (Resources(gpus=1), 1.0, {}, None),
    ],
)
def test_machines_of_steps(
    resources: Resources, factor: float, options: dict[str, Any], expected: str | None
) -> None:
    machine = step_machine(command("a", "true", resources=resources), factor, settings(**options))
    assert (machine.describe() if machine else None) == expected


def test_a_step_that_no_machine_can_run_is_refused_with_the_reason() -> None:
    step = command("a", "true", resources=Resources(cores=4, ram_gb=500))
    [fault] = create_runner().find_unsupported(make_job(step).pipeline)
    assert "step 'a': resources = 4 cores, 476838 MiB, 0 GPUs: expected" in str(fault)
    step = command("a", "true", resources=Resources(gpus=1))
    [fault] = create_runner().find_unsupported(make_job(step).pipeline)
    assert "for GPUs series=n1 and gpu_type=NVIDIA_TESLA_T4, or series=g2" in str(fault)
    runner = create_runner(machine_type="n1-standard-4")
    step = command("a", "true", resources=Resources(ram_gb=14))
    [fault] = runner.find_unsupported(make_job(step).pipeline)
    assert "expected at most 4 cores and 12700 MiB on n1-standard-4" in str(fault)


def test_secrets_functions_and_requirements_are_refused(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text("polars\n")
    step = bash("a", "true", secrets=("database/password",))
    pipeline = make_job(step, root=tmp_path, requirements="needs.txt").pipeline
    faults = [str(fault) for fault in create_runner().find_unsupported(pipeline)]
    assert len(faults) == 2
    assert "no requirements on vertex" in faults[0]
    assert "read it in the step from Secret Manager" in faults[1]


def test_only_gangs_that_are_training_programs_are_accepted() -> None:
    gang = command("a", "true", gang=2)
    program = Step(name="fit", kind="train", module_name="trainer.task", worker_count=2)
    pipeline = make_job(gang, program).pipeline
    [fault] = create_runner().find_unsupported(pipeline)
    assert "step 'a': gang = 2: expected a step of one process, or of type train" in str(fault)
    job = make_job(program.model_copy(update={"timeout": 3410.0}), active_timeout=-1.0)
    [line] = create_runner(region="us-central1").describe_cost(job)
    assert "0.1040 USD for an hour, 3 at once" in line
    with dask.config.set({"hyperplane.jobs.grace": "10s"}):
        [fault] = create_runner(budget="1 core-hours").find_budget_faults(job)
    assert "3 containers, " in str(fault)


def test_all_faults_of_the_options_are_reported_at_once() -> None:
    runner = VertexRunner(
        {}, VertexRunner.resolve_options({
            "machine_type": "n1-standard-5", "environ": ["CLUSTER_SPEC={}", "AIP_X=1"]
        }),
    )  # fmt: skip
    reason = runner.unavailable_reason()
    for name in ("region", "image", "staging"):
        assert f"hyperplane.runners.vertex.{name} is not set" in reason
    assert "environ = 'CLUSTER_SPEC'" in reason
    assert "environ = 'AIP_X'" in reason
    assert "machine_type = 'n1-standard-5'" in reason
    assert "n1-standard-4" in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("staging", "s3://flights"),
        ("region", "europe"),
        ("project", "No"),
        ("labels", ["Team=flights"]),
        ("service_account", "me@example.com"),
        ("disk_gb", 10),
        ("gpu_type", "T4"),
    ],
)
def test_options_that_the_service_refuses_are_faults(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"runner_options.{name}"):
        VertexRunner.resolve_options({name: value})


def test_the_cost_is_that_of_the_table_or_of_the_pool_or_unknown() -> None:
    job = make_job(command("a", "true", chunks=300))
    [line] = create_runner(region="us-central1").describe_cost(job)
    assert line == (
        "step 'a': e2-highmem-2, 0.1040 USD for an hour, 100 at once (price of 2026-09, "
        "https://cloud.google.com/vertex-ai/pricing)"
    )
    [line] = create_runner().describe_cost(job)
    assert "cost unknown: no price of e2-highmem-2 in europe-west4" in line
    [line] = create_runner(region="us-central1", spot=True).describe_cost(job)
    assert "cost unknown: no price of e2-highmem-2 with spot in us-central1" in line
    pool = make_job(command("a", "true", resources=Resources(pool="16_16")))
    with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 0.5}):
        [line] = create_runner().describe_cost(pool)
    assert "0.5000 USD for an hour (price_per_hour of the pool, for one node)" in line


def test_a_job_that_may_exceed_its_budget_is_refused() -> None:
    step = command("a", "true", timeout=3410, chunks=10, retries=1)
    job = make_job(step, active_timeout=-1.0)

    def faults(budget: Any, **options: Any) -> list[str]:
        runner = create_runner(region="us-central1", budget=budget, **options)
        return list(map(str, runner.find_budget_faults(job)))

    with dask.config.set({"hyperplane.jobs.grace": "10s"}):
        # 10 containers, twice an hour: limits are 130 s longer, and a machine ends 60 s later.
        assert faults("2.081 USD") == []
        [fault] = faults("2.07 USD")
        assert "step 'a': 10 containers, 20 hours, 2.08 USD (price of 2026-09" in fault
        assert faults("40 core-hours") == []
        assert len(faults("39 core-hours")) == 1
        [fault] = faults("5 USD", spot=True)
        assert "cost = unknown" in fault
    assert faults(None) == []


@pytest.mark.process
def test_tasks_are_rehearsed_in_the_environment_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import json, os\n"
        "print(sorted(os.environ), os.listdir('.'), os.environ['ITEM'])\n"
        "print(json.loads(os.environ['CLUSTER_SPEC'])['task'])\n"
    )
    step = Step(name="a", kind="python", path="a.py", foreach=("2013", "2014"))
    outcomes: list[TaskOutcome] = []
    runner = create_runner(environ=["TZ=UTC"])
    job = make_job(step, root=tmp_path)
    assert rehearse(job, runner, all_chunks=True, report=outcomes.append), outcomes[-1].log
    assert [outcome.chunk for outcome in outcomes] == [0, 1]
    assert "['a.py'] 2013" in outcomes[0].log
    assert "['a.py'] 2014" in outcomes[1].log
    for name in ("'CLOUD_ML_JOB_ID'", "'TZ'", "'CLOUD_ML_PROJECT_ID'"):
        assert name in outcomes[0].log
    assert "{'type': 'workerpool0', 'index': 0}" in outcomes[0].log
    assert "AWS_BATCH" not in outcomes[0].log
    text = "\n".join(describe_differences(job, runner))
    assert "no credentials of Google are passed on" in text
    assert "on Vertex AI chunks run at once" in text


def test_all_chunks_are_rendered(tmp_path: Path) -> None:
    [document] = render("vertex", make_job(command("a", "true", chunks=3)), **OPTIONS)
    content = json.loads(document.text)
    assert len(content["create_custom_jobs"]) == len(content["manifests"]) == 3
    assert content["create_custom_jobs"][0]["parent"] == "projects/PROJECT/locations/europe-west4"
    assert {url.partition("attempts/")[0] for url in content["manifests"]} == {"gs://flights/jobs/"}


@pytest.mark.process
def test_the_client_is_imported_on_first_use() -> None:
    code = (
        "import sys; from hyperplane.jobs.runners import registry; "
        "registry.RUNNERS.load('vertex'); "
        "print('googleapiclient' in sys.modules, 'google.auth' in sys.modules)"
    )
    package = Path(hyperplane.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=package, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False False"
