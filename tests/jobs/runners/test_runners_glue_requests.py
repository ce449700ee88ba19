"""Requests to AWS Glue, without a service: their validity, names, sizes, script and faults."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import botocore.session
import dask
import pytest
from botocore.validate import ParamValidator
from glue_script import run_script
from runner_cases import command, make_job, typical

from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners import driver_program, registry, task_program
from hyperplane.jobs.runners.glue.requests import attempt_minutes, plan_job, step_worker
from hyperplane.jobs.runners.glue.runner import GlueRunner
from hyperplane.jobs.runners.glue.step_checks import find_option_faults
from hyperplane.jobs.runners.rehearsal import describe_differences, rehearse
from hyperplane.jobs.runners.rehearsed_task import TaskOutcome
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.platforms.aws.glue_status import parse_run
from hyperplane.spec.settings import GlueSettings

ROLE = "arn:aws:iam::123456789012:role/glue"
PREFIX = Path("/jobs/6f1d2c3b-0000-4000-8000-000000000001/steps/001-years/chunk-00002/attempt-1")
NAME = "hyperplane-6f1d2c3b-0000-001-years-00002-1"
STEP = command("years", "python", "-c", "x", resources=Resources(cores=0.25, ram_gb=1))
PROGRAM = TaskFile("task_program.py", b"print(1)")


def settings(**options: Any) -> GlueSettings:
    return GlueSettings(**{"role": ROLE, "staging": "s3://flights/jobs", **options})


def attempt(**variables: str) -> AttemptCommand:
    return AttemptCommand(
        ("python", "-c", "x"),
        {"PATH": "/home/me/bin", "TOKEN": "s3cret"},
        ".",
        PREFIX,
        step_variables={"CHUNK_ID": "2", **variables},
    )


def faults(operation: str, request: dict[str, Any]) -> str:
    """Return what botocore's model of the service finds in a request."""
    model = botocore.session.get_session().get_service_model("glue")
    shape = model.operation_model(operation).input_shape
    return str(ParamValidator().validate(request, shape).generate_report())


def test_a_python_shell_job_follows_the_model_of_the_service() -> None:
    more = settings(
        region="eu-west-1", environ=["TZ=UTC", "CHUNK_ID=9"], tags=["team=a b"],
        python_modules=["polars==1.0", "pyarrow"], python_files=["s3://flights/tool.whl"],
    )  # fmt: skip
    step = STEP.model_copy(update={"timeout": 600.0})
    job, key, manifest = plan_job(attempt(), step, 1.0, more, PROGRAM, [])
    assert faults("CreateJob", job) == ""
    assert "Size" in faults("CreateJob", {**job, "Size": "x"})  # the check works
    assert key == f"jobs/attempts/{NAME}.json"
    script = hashlib.sha256(Path(str(driver_program.__file__)).read_bytes()).hexdigest()
    program = hashlib.sha256(PROGRAM.content).hexdigest()
    assert job == {
        "Name": NAME,
        "Role": ROLE,
        "Command": {
            "Name": "pythonshell",
            "ScriptLocation": f"s3://flights/jobs/content/{script}.py",
            "PythonVersion": "3.9",
        },
        "DefaultArguments": {
            "--hyperplane_bucket": "flights",
            "--hyperplane_program": f"jobs/content/{program}.py",
            "--hyperplane_manifest": key,
            "--hyperplane_outcome": f"jobs/attempts/{NAME}.exit",
            "--additional-python-modules": "polars==1.0,pyarrow",
            "--extra-py-files": "s3://flights/tool.whl",
        },
        "ExecutionProperty": {"MaxConcurrentRuns": 1},
        "MaxRetries": 0,
        "Timeout": 13,
        "Tags": {"team": "a b", "hyperplane-job": "6f1d2c3b-0000-4000-8000-000000000001"},
        "GlueVersion": "3.0",
        "MaxCapacity": 0.0625,
    }
    # The variables of an attempt come before those of the settings.
    variables = {**manifest["variables"], **manifest["tasks"][0]["variables"]}
    assert variables == {"AWS_DEFAULT_REGION": "eu-west-1", "TZ": "UTC", "CHUNK_ID": "2"}


def test_a_spark_job_follows_the_model_of_the_service() -> None:
    job, _, _ = plan_job(
        attempt(), STEP, 1.0, settings(job_type="glueetl", workers=10), PROGRAM, []
    )
    assert faults("CreateJob", job) == ""
    assert job["Command"]["Name"] == "glueetl"
    assert job["Command"]["PythonVersion"] == "3"
    assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"]) == ("5.0", "G.1X", 10)
    assert "MaxCapacity" not in job


def test_a_run_without_a_time_limit_gets_the_longest_of_glue() -> None:
    limits = {None: 10_079, 60.0: 4, 7 * 86_400.0: 10_079}
    assert {timeout: attempt_minutes(timeout) for timeout in limits} == limits


@pytest.mark.parametrize(
    ("resources", "factor", "options", "expected"),
    [
        (Resources(), 1.0, {}, "0.0625 DPU"),
        (Resources(), 2.0, {}, "1 DPU"),
        (Resources(ram_gb=17), 1.0, {}, "1 DPU"),
        (Resources(ram_gb=17), 2.0, {}, None),
        (Resources(cores=1, ram_gb=1), 1.0, {}, "1 DPU"),
        (Resources(ram_gb=17), 1.0, {"job_type": "glueetl"}, "G.1X"),
        (Resources(ram_gb=17), 2.0, {"job_type": "glueetl"}, "G.2X"),
        (Resources(ram_gb=17), 2.0, {"job_type": "glueetl", "worker_type": "G.4X"}, "G.4X"),
        (Resources(cores=32, ram_gb=137), 1.0, {"job_type": "glueetl"}, "G.8X"),
        (Resources(gpus=1), 1.0, {"job_type": "glueetl"}, None),
    ],
)
def test_machines_of_steps(
    resources: Resources, factor: float, options: dict[str, str], expected: str | None
) -> None:
    step = STEP.model_copy(update={"resources": resources})
    worker = step_worker(step, factor, settings(**options))
    assert (worker.name if worker else None) == expected


def test_all_missing_or_wrong_settings_are_reported_at_once() -> None:
    tags = [f"t{number}=x" for number in range(50)]
    found = find_option_faults(GlueSettings(tags=tags, send_package=True))
    names = [fault.where for fault in found]
    expected = ("role", "staging", "tags", "send_package")
    assert names == [f"hyperplane.runners.glue.{name}" for name in expected]
    assert "set the option job_type=glueetl" in str(found[-1])
    assert find_option_faults(settings(job_type="glueetl", send_package=True)) == []
    with pytest.raises(RequestError) as caught:
        registry.resolve_options("glue", {"rol": "x", "python_modules": ["a,b"], "workers": 1})
    assert {fault.where for fault in caught.value.faults} == {
        "runner_options.rol", "runner_options.python_modules.0", "runner_options.workers"
    }  # fmt: skip


def test_all_that_glue_cannot_run_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text("polars\n")
    steps = [
        Step(name="note", kind="notebook", path="a.ipynb"),
        Step(name="node", kind="javascript", path="a.js"),
        command("secret", "true", secrets=("token",)),
        command("long", "true", timeout=8 * 86_400),
        command("gpu", "true", resources=Resources(gpus=1)),
        command("large", "true", resources=Resources(ram_gb=20)),
    ]
    job = make_job(*steps, root=tmp_path, requirements="needs.txt")
    found = GlueRunner({}, settings().model_dump()).find_unsupported(job.pipeline)
    texts = list(map(str, found))
    assert [fault.where for fault in found] == [
        "requirements",
        "step 'note': kind",
        "step 'note': kind",
        "step 'node': kind",
        "step 'secret': secrets",
        "step 'long': timeout",
        "step 'gpu': resources",
        "step 'large': resources",
    ]
    assert "hyperplane.runners.glue.python_modules" in texts[0]
    assert "python_modules with ipykernel and nbclient" in texts[2]
    assert "at most 4 cores and 16384 MiB (1 DPU), and no GPUs" in texts[7]
    assert "or set the option job_type=glueetl" in texts[7]
    spark = settings(job_type="glueetl", python_modules=["ipykernel", "nbclient>=0.10"])
    accepted = make_job(steps[0], steps[5], root=tmp_path)
    assert GlueRunner({}, spark.model_dump()).find_unsupported(accepted.pipeline) == []


def test_rendering_needs_no_credentials_and_refuses_gangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "a.py").write_text("print(1)\n")
    step = Step(name="a", kind="python", path="a.py", chunks=3, max_parallel=2)
    options = {"role": ROLE, "staging": "s3://bucket/x", "region": "us-east-1"}
    [document] = render("glue", make_job(step, root=tmp_path), **options)
    shown = json.loads(document.text)
    digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert shown["uploads"]["a.py"] == f"s3://bucket/x/content/{digest}.py"
    price = "0.0625 DPU, 0.0275 USD for an hour, 2 at once (price of 2026-10, https://aws"
    assert price in shown["cost"]
    assert len(shown["create_jobs"]) == len(shown["start_job_runs"]) == 2
    for create, start in zip(shown["create_jobs"], shown["start_job_runs"], strict=True):
        assert faults("CreateJob", create) == ""
        assert faults("StartJobRun", start) == ""
    with pytest.raises(RequestError) as caught:
        render("glue", make_job(command("a", "true", gang=2)), **options)
    assert "a step of one process on glue" in str(caught.value)
    with pytest.raises(RequestError) as caught:
        render("glue", typical(), job_type="spark")
    assert [fault.where for fault in caught.value.faults] == ["runner_options.job_type"]


def budget_faults(job: Any, budget: Any, **options: Any) -> list[str]:
    chosen = settings(region="us-east-1", budget=budget, **options)
    return list(map(str, GlueRunner({}, chosen.model_dump()).find_budget_faults(job)))


def test_a_job_that_may_exceed_its_budget_is_refused() -> None:
    # The limit of Glue is 57 minutes, and a minute until the machine is gone.
    step = command("a", "true", resources=Resources(), chunks=10, timeout=3_270, retries=1)
    job = make_job(step, active_timeout=-1.0)
    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        hours = 10 * 2 * 58 / 60
        most = hours * 0.0625 * 0.44
        assert budget_faults(job, f"{most + 0.001:.4f} USD") == []
        [fault] = budget_faults(job, f"{most - 0.001:.4f} USD")
        assert "hyperplane.runners.glue.budget" in fault
        spark = {"job_type": "glueetl", "workers": 3}
        assert budget_faults(job, f"{hours * 3 * 0.44 + 0.01:.4f} USD", **spark) == []
        assert len(budget_faults(job, f"{hours * 3 * 0.44 - 0.01:.4f} USD", **spark)) == 1
        assert budget_faults(job, f"{hours * 12 + 0.1} core-hours", **spark) == []
        assert len(budget_faults(job, f"{hours * 12 - 0.1} core-hours", **spark)) == 1


def test_more_memory_counts_with_the_largest_machine() -> None:
    step = command(
        "a", "true", resources=Resources(ram_gb=1), timeout=3_270, retries=1, more_memory=2
    )
    job = make_job(step, active_timeout=-1.0)
    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        most = 2 * 58 / 60 * 0.44
        assert budget_faults(job, f"{most + 0.001:.4f} USD") == []
        assert len(budget_faults(job, f"{most - 0.001:.4f} USD")) == 1


@pytest.mark.parametrize(
    ("state", "message", "expected"),
    [
        ("FAILED", "Command Failed due to Out of Memory", "is_out_of_memory"),
        ("FAILED", "Container killed by YARN for exceeding memory limits", "is_out_of_memory"),
        ("FAILED", "Internal service error : try again", "is_lost"),
        ("FAILED", "Max concurrent compute (DPU usage) exceeded", "has_no_capacity"),
        ("EXPIRED", "", "has_no_capacity"),
        ("STOPPED", "", "was_terminated"),
        ("TIMEOUT", "", "was_terminated"),
        ("SUCCEEDED", "", "has_succeeded"),
    ],
)
def test_states_of_runs(state: str, message: str, expected: str) -> None:
    status = parse_run({"JobRunState": state, "ErrorMessage": message})
    assert status.has_ended
    kinds = {"is_out_of_memory", "is_lost", "has_no_capacity", "has_succeeded"}
    found = {kind for kind in kinds if getattr(status, kind)}
    assert found == {expected} & kinds
    assert getattr(status, expected)


def test_an_answer_without_a_state_is_repeated() -> None:
    with pytest.raises(AwsConnectionError, match="no JobRunState"):
        parse_run({"Id": "jr_1"})


def test_the_script_of_jobs_runs_with_python_3_9() -> None:
    for module in (driver_program, task_program):
        text = Path(str(module.__file__)).read_text()
        ast.parse(text, feature_version=(3, 9))
        assert "import hyperplane" not in text
        assert "from hyperplane" not in text


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "code", "shown"),
    [
        ("print('größer')", "0", "größer"),
        ("import sys; sys.exit(3)", "3", "ended with exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "-9", "exit code -9"),
        # A process that keeps the output open does not delay the end for long.
        ("import subprocess; subprocess.Popen(['sleep', '8']); print('left')", "0", "left"),
    ],
)
def test_the_script_stores_the_exit_code_of_its_program(
    tmp_path: Path, program: str, code: str, shown: str
) -> None:
    bucket = tmp_path / "flights"
    bucket.mkdir()
    name = hashlib.sha256(program.encode()).hexdigest()
    (bucket / name).write_text(program)
    done = run_script([sys.executable], tmp_path, name)
    assert (bucket / "outcome").read_text() == code
    assert shown in done.stdout + done.stderr
    assert done.returncode == (0 if code == "0" else 1)


@pytest.mark.process
def test_a_rehearsal_has_the_memory_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os, resource\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20, os.environ['ITEM'],\n"
        "      sorted(name for name in os.environ if name in ('TZ', 'AWS_DEFAULT_REGION')))\n"
    )
    step = Step(name="a", kind="python", path="a.py", foreach=("2013", "2014"))
    chosen = settings(region="eu-west-1", environ=["TZ=UTC"])
    outcomes: list[TaskOutcome] = []
    runner = GlueRunner({}, chosen.model_dump())
    job = make_job(step, root=tmp_path)
    assert rehearse(job, runner, all_chunks=True, report=outcomes.append)
    logs = [outcome.log for outcome in outcomes]
    assert logs == [f"1024 {year} ['AWS_DEFAULT_REGION', 'TZ']\n" for year in (2013, 2014)]
    assert "on AWS Glue chunks run at once" in "\n".join(describe_differences(job, runner))
