"""Requests to Amazon EMR, without a service: validity, names, machines, program and faults."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import botocore.session
import dask
import pytest
from botocore.validate import ParamValidator
from glue_script import BOTO3
from runner_cases import command, make_job, typical

from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners import driver_program, registry
from hyperplane.jobs.runners.emr.requests import BOOTSTRAP, plan_run, step_instance
from hyperplane.jobs.runners.emr.runner import EmrRunner
from hyperplane.jobs.runners.emr.step_checks import find_option_faults
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.platforms.aws.emr_status import parse_step
from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.spec.settings import EmrSettings

PREFIX = Path("/jobs/6f1d2c3b-0000-4000-8000-000000000001/steps/001-years/chunk-00002/attempt-1")
NAME = "hyperplane-6f1d2c3b-0000-001-years-00002-1"
STEP = command("years", "python", "-c", "x", resources=Resources(cores=2, ram_gb=4))
PROGRAM = TaskFile("task_program.py", b"print(1)")
CLUSTER = "j-2AXXXXXXGAPLF"


def settings(**options: Any) -> EmrSettings:
    return EmrSettings(**{"staging": "s3://flights/jobs", **options})


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
    model = botocore.session.get_session().get_service_model("emr")
    shape = model.operation_model(operation).input_shape
    return str(ParamValidator().validate(request, shape).generate_report())


def driver_url() -> str:
    digest = hashlib.sha256(Path(str(driver_program.__file__)).read_bytes()).hexdigest()
    return f"s3://flights/jobs/content/{digest}.py"


def test_a_cluster_with_one_step_follows_the_model_of_the_service() -> None:
    more = settings(
        region="eu-west-1", environ=["TZ=UTC", "CHUNK_ID=9"], tags=["team=a b"], workers=3,
        python="python3.11", system_packages=["python3.11", "python3.11-pip"],
        python_modules=["polars==1.0"], python_files=["s3://flights/tool.whl"],
        bootstrap_actions=["s3://flights/setup.sh --fast two"], subnet="subnet-0abc",
        spark_conf=["spark.sql.shuffle.partitions=64"],
    )  # fmt: skip
    step = STEP.model_copy(update={"timeout": 600.0})
    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        name, request, key, manifest = plan_run(attempt(), step, 1.0, more, PROGRAM, [])
    assert faults("RunJobFlow", request) == ""
    assert "Size" in faults("RunJobFlow", {**request, "Size": "x"})  # the check works
    assert (name, key) == (NAME, f"jobs/attempts/{NAME}.json")
    bootstrap = f"s3://flights/jobs/content/{hashlib.sha256(BOOTSTRAP.content).hexdigest()}.sh"
    program = hashlib.sha256(PROGRAM.content).hexdigest()
    group = {"Market": "ON_DEMAND", "InstanceType": "m5.xlarge"}
    assert request == {
        "Name": NAME,
        "LogUri": "s3://flights/jobs/logs/",
        "ReleaseLabel": "emr-7.10.0",
        "Applications": [{"Name": "Spark"}],
        "ServiceRole": "EMR_DefaultRole",
        "JobFlowRole": "EMR_EC2_DefaultRole",
        "VisibleToAllUsers": True,
        "Instances": {
            "InstanceGroups": [
                {**group, "Name": "master", "InstanceRole": "MASTER", "InstanceCount": 1},
                {**group, "Name": "core", "InstanceRole": "CORE", "InstanceCount": 2},
            ],
            "KeepJobFlowAliveWhenNoSteps": False,
            "TerminationProtected": False,
            "Ec2SubnetId": "subnet-0abc",
        },
        "AutoTerminationPolicy": {"IdleTimeout": 750 + 3600},
        "BootstrapActions": [
            {
                "Name": name,
                "ScriptBootstrapAction": {"Path": path, "Args": words.split()},
            }
            for name, path, words in (
                ("system packages", bootstrap, "dnf install -y python3.11 python3.11-pip"),
                ("bootstrap action 0", "s3://flights/setup.sh", "--fast two"),
                (
                    "packages of Python",
                    bootstrap,
                    "python3.11 -m pip install boto3 polars==1.0",
                ),
            )
        ],
        "Steps": [
            {
                "Name": NAME,
                "ActionOnFailure": "TERMINATE_CLUSTER",
                "HadoopJarStep": {
                    "Jar": "command-runner.jar",
                    "Args": [
                        "spark-submit", "--deploy-mode", "client", "--name", NAME,
                        "--conf", "spark.pyspark.python=python3.11",
                        "--conf", "spark.sql.shuffle.partitions=64",
                        "--py-files", "s3://flights/tool.whl",
                        driver_url(),
                        "--hyperplane_bucket", "flights",
                        "--hyperplane_program", f"jobs/content/{program}.py",
                        "--hyperplane_manifest", key,
                        "--hyperplane_outcome", f"jobs/attempts/{NAME}.exit",
                        "--hyperplane_log", f"jobs/attempts/{NAME}.log",
                        "--hyperplane_seconds", "750",
                    ],
                },
            }
        ],
        "Tags": [
            {"Key": "team", "Value": "a b"},
            {"Key": "hyperplane-job", "Value": "6f1d2c3b-0000-4000-8000-000000000001"},
        ],
    }  # fmt: skip
    # The variables of an attempt come before those of the settings.
    variables = {**manifest["variables"], **manifest["tasks"][0]["variables"]}
    assert variables == {"AWS_DEFAULT_REGION": "eu-west-1", "TZ": "UTC", "CHUNK_ID": "2"}


def test_a_step_of_a_cluster_follows_the_model_of_the_service() -> None:
    planned = plan_run(attempt(), STEP, 1.0, settings(cluster=CLUSTER), PROGRAM, [])
    assert faults("AddJobFlowSteps", planned.request) == ""
    assert planned.request["JobFlowId"] == CLUSTER
    [step] = planned.request["Steps"]
    assert (step["Name"], step["ActionOnFailure"]) == (NAME, "CONTINUE")
    assert step["HadoopJarStep"]["Args"][-2:] == ["--hyperplane_seconds", "0"]


def test_a_cluster_of_one_machine_has_no_core_group() -> None:
    _, request, _, _ = plan_run(attempt(), STEP, 1.0, settings(workers=1), PROGRAM, [])
    [group] = request["Instances"]["InstanceGroups"]
    assert group["InstanceRole"] == "MASTER"
    assert request["AutoTerminationPolicy"] == {"IdleTimeout": 604_800}  # the most that EMR takes
    assert faults("RunJobFlow", request) == ""


@pytest.mark.parametrize(
    ("resources", "factor", "options", "expected"),
    [
        (Resources(), 1.0, {}, "m5.xlarge"),
        (Resources(ram_gb=10), 1.0, {}, "m5.xlarge"),
        (Resources(ram_gb=10), 2.0, {}, "r5.xlarge"),
        (Resources(cores=5, ram_gb=10), 1.0, {}, "m5.2xlarge"),
        (Resources(ram_gb=10), 1.0, {"instance_type": "m5.4xlarge"}, "m5.4xlarge"),
        (Resources(cores=32, ram_gb=260), 1.0, {}, "r5.8xlarge"),
        (Resources(cores=32, ram_gb=270), 1.0, {}, None),
        (Resources(gpus=1), 1.0, {}, None),
    ],
)
def test_machines_of_steps(
    resources: Resources, factor: float, options: dict[str, str], expected: str | None
) -> None:
    step = STEP.model_copy(update={"resources": resources})
    instance = step_instance(step, factor, settings(**options))
    assert (instance.name if instance else None) == expected


def test_all_missing_or_wrong_settings_are_reported_at_once() -> None:
    tags = [f"t{number}=x" for number in range(50)]
    wrong = EmrSettings(
        tags=tags, send_package=True, cluster=CLUSTER, python_modules=["polars"], subnet="subnet-1"
    )
    names = [fault.where for fault in find_option_faults(wrong)]
    expected = ("staging", "tags", "subnet", "python_modules", "send_package")
    assert names == [f"hyperplane.runners.emr.{name}" for name in expected]
    assert find_option_faults(settings(send_package=True, python="python3.12")) == []
    assert len(find_option_faults(settings(send_package=True, python="python3.9"))) == 1
    with pytest.raises(RequestError) as caught:
        registry.resolve_options(
            "emr", {"rol": "x", "workers": 0, "cluster": "one", "spark_conf": ["x=1"]}
        )
    assert {fault.where for fault in caught.value.faults} == {
        f"runner_options.{name}" for name in ("rol", "workers", "cluster", "spark_conf.0")
    }


def test_all_that_emr_cannot_run_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text("polars\n")
    steps = [
        Step(name="note", kind="notebook", path="a.ipynb"),
        Step(name="node", kind="javascript", path="a.js"),
        command("secret", "true", secrets=("token",)),
        command("gpu", "true", resources=Resources(gpus=1)),
        command("more", "true", more_memory=2, resources=Resources(ram_gb=1)),
    ]
    job = make_job(*steps, root=tmp_path, requirements="needs.txt")

    def found(**options: Any) -> list[str]:
        runner = EmrRunner({}, settings(**options).model_dump())
        return [fault.where for fault in runner.find_unsupported(job.pipeline)]

    assert found() == [
        "requirements",
        "step 'note': kind",
        "step 'note': kind",
        "step 'node': kind",
        "step 'secret': secrets",
        "step 'gpu': resources",
    ]
    modules = {"python": "python3.11", "python_modules": ["ipykernel", "nbclient>=0.10"]}
    assert "step 'note': kind" not in found(**modules)
    shared = found(cluster=CLUSTER, python="python3.11")
    assert "step 'more': more_memory" in shared
    assert "step 'gpu': resources" not in shared  # the machines of a cluster are not known
    assert "step 'note': kind" not in shared


def test_rendering_needs_no_credentials_and_refuses_gangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "a.py").write_text("print(1)\n")
    step = Step(name="a", kind="python", path="a.py", chunks=3, max_parallel=2)
    options = {"staging": "s3://flights/jobs", "region": "us-east-1"}
    [document] = render("emr", make_job(step, root=tmp_path), **options)
    shown = json.loads(document.text)
    digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert shown["uploads"]["a.py"] == f"s3://flights/jobs/content/{digest}.py"
    assert shown["uploads"]["driver_program.py"] == driver_url()
    price = "a cluster of 2 m5.xlarge, 0.4800 USD for an hour, 2 at once (price of 2026-11, https"
    assert price in shown["cost"]
    assert len(shown["run_job_flows"]) == 2
    for request in shown["run_job_flows"]:
        assert faults("RunJobFlow", request) == ""
    [document] = render("emr", make_job(step, root=tmp_path), cluster=CLUSTER, **options)
    shown = json.loads(document.text)
    assert "cost unknown: the cluster is paid for also without the step" in shown["cost"]
    for request in shown["add_job_flow_steps"]:
        assert faults("AddJobFlowSteps", request) == ""
    with pytest.raises(RequestError) as caught:
        render("emr", make_job(command("a", "true", gang=2)), **options)
    assert "a step of one process on emr" in str(caught.value)
    with pytest.raises(RequestError) as caught:
        render("emr", typical(), instance_type="t3.micro")
    assert [fault.where for fault in caught.value.faults] == ["runner_options.instance_type"]


def budget_faults(job: Any, budget: Any, **options: Any) -> list[str]:
    chosen = settings(region="us-east-1", budget=budget, **options)
    return list(map(str, EmrRunner({}, chosen.model_dump()).find_budget_faults(job)))


def test_a_job_that_may_exceed_its_budget_is_refused() -> None:
    # With the margins of the grace period and the program 57 minutes, and 20 for the cluster.
    step = command("a", "true", resources=Resources(), chunks=10, timeout=3_270, retries=1)
    job = make_job(step, active_timeout=-1.0)
    with dask.config.set({"hyperplane.jobs.grace": "30s"}):
        hours = 10 * 2 * 77 / 60
        most = hours * 2 * 0.24
        assert budget_faults(job, f"{most + 0.001:.4f} USD") == []
        [fault] = budget_faults(job, f"{most - 0.001:.4f} USD")
        assert "hyperplane.runners.emr.budget" in fault
        assert budget_faults(job, f"{hours * 8 + 0.1} core-hours") == []
        assert len(budget_faults(job, f"{hours * 8 - 0.1} core-hours")) == 1
        [fault] = budget_faults(job, "5 USD", instance_type="m5.8xlarge")
        assert "no price of m5.8xlarge with EMR in us-east-1" in fault
        # A cluster of the user: the requested cores, and no cluster to start.
        shared = 10 * 2 * 57 / 60
        assert budget_faults(job, f"{shared + 0.1} core-hours", cluster=CLUSTER) == []
        assert len(budget_faults(job, f"{shared - 0.1} core-hours", cluster=CLUSTER)) == 1


def run_state(state: str, message: str = "", **cluster: Any) -> Any:
    failure = {"FailureDetails": {"Message": message}} if message else {}
    step = {"Id": "s-1", "Status": {"State": state, **failure}}
    return parse_step({"Step": step, "Cluster": {"Id": "j-1", "Status": cluster}})


@pytest.mark.parametrize(
    ("state", "message", "cluster", "expected"),
    [
        ("COMPLETED", "", {"State": "TERMINATING"}, "has_succeeded"),
        (
            "FAILED",
            "java.lang.OutOfMemoryError: Java heap",
            {"State": "RUNNING"},
            "is_out_of_memory",
        ),
        ("CANCELLED", "", {"State": "TERMINATING"}, "was_terminated"),
        (
            "PENDING",
            "",
            {
                "State": "TERMINATED_WITH_ERRORS",
                "StateChangeReason": {"Code": "BOOTSTRAP_FAILURE", "Message": "action 1"},
            },
            "was_terminated",
        ),
        (
            "CANCELLED",
            "",
            {
                "State": "TERMINATED_WITH_ERRORS",
                "StateChangeReason": {"Code": "INSTANCE_FAILURE", "Message": "machine lost"},
            },
            "is_lost",
        ),
        (
            "PENDING",
            "",
            {
                "State": "TERMINATED_WITH_ERRORS",
                "StateChangeReason": {
                    "Code": "VALIDATION_ERROR",
                    "Message": "We do not have sufficient m5.xlarge capacity",
                },
            },
            "has_no_capacity",
        ),
    ],
)
def test_states_of_steps(state: str, message: str, cluster: dict[str, Any], expected: str) -> None:
    status = run_state(state, message, **cluster)
    assert status.has_ended
    kinds = {"is_out_of_memory", "is_lost", "has_no_capacity", "has_succeeded"}
    found = {kind for kind in kinds if getattr(status, kind)}
    assert found == {expected} & kinds
    assert getattr(status, expected)


def test_a_step_shows_why_it_waits_or_has_failed() -> None:
    status = run_state("PENDING", State="STARTING", StateChangeReason={"Message": "no\nsubnet"})
    assert status.describe() == "PENDING (cluster j-1 is STARTING: no subnet)"
    assert not status.has_ended
    status = run_state("FAILED", "exit code 1", State="RUNNING")
    assert status.describe() == "FAILED (exit code 1)"
    with pytest.raises(AwsConnectionError, match="no State"):
        parse_step({"Step": {}, "Cluster": {}})


def run_driver(
    folder: Path, program: str, seconds: str = "0", shell: bool = False, boto3: str = BOTO3
) -> subprocess.Popen[bytes]:
    """Start the program of a driver as EMR does, with a bucket that is a folder."""
    bucket = folder / "flights"
    (bucket / "log").mkdir(parents=True)
    name = hashlib.sha256(program.encode()).hexdigest()
    (bucket / name).write_text(program)
    (folder / "boto3.py").write_text(boto3)
    values = {
        "bucket": "flights",
        "program": name,
        "manifest": "manifest",
        "outcome": "outcome",
        driver_program.LOG: "log",
        driver_program.SECONDS: seconds,
    }
    words = [sys.executable, str(driver_program.__file__)]
    for key, value in values.items():
        words += [driver_program.PREFIX + key, value]
    if shell:  # which is the parent of the driver, as spark-submit is on EMR
        words = ["sh", "-c", '"$@"; true', "sh", *words]
    environment = {**os.environ, "PYTHONPATH": str(folder), "BUCKETS": str(folder)}
    with (folder / "printed").open("wb") as printed:
        return subprocess.Popen(
            words, env=environment, stdout=printed, stderr=printed, start_new_session=True
        )


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.process
def test_the_output_and_the_code_of_a_program_are_stored(tmp_path: Path) -> None:
    process = run_driver(tmp_path, "print('größer'); import sys; sys.exit(3)")
    assert process.wait(60) == 1
    bucket = tmp_path / "flights"
    assert (bucket / "outcome").read_text() == "3"
    assert (bucket / "log" / "000000").read_text() == "größer\n"
    assert "größer" in (tmp_path / "printed").read_text()


@pytest.mark.process
def test_a_program_is_ended_after_its_time(tmp_path: Path) -> None:
    process = run_driver(tmp_path, "import time; print('begun', flush=True); time.sleep(600)", "1")
    assert process.wait(60) == 1
    assert (tmp_path / "flights" / "outcome").read_text() == str(-signal.SIGTERM)


@pytest.mark.process
@pytest.mark.parametrize("whole_group", [False, True])
def test_nothing_runs_after_the_parent_or_the_group_of_a_driver_is_killed(
    tmp_path: Path, whole_group: bool
) -> None:
    program = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"draft = pathlib.Path({str(tmp_path / 'ids.draft')!r})\n"
        "draft.write_text(f'{os.getpid()} {child.pid}')\n"
        "draft.rename(draft.with_suffix(''))\n"
        "time.sleep(600)\n"
    )
    process = run_driver(tmp_path, program, shell=True)
    wait_until((tmp_path / "ids").exists)
    ids = [int(text) for text in (tmp_path / "ids").read_text().split()]
    assert all(map(is_running, ids))
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait(60)
    wait_until(lambda: not any(map(is_running, ids)))


@pytest.mark.process
def test_a_driver_whose_parent_ends_before_its_program_begins_ends(tmp_path: Path) -> None:
    wait = (
        "import os, pathlib, time\n"
        f"draft = pathlib.Path({str(tmp_path / 'id.draft')!r})\n"
        "draft.write_text(str(os.getpid()))\n"
        "draft.rename(draft.with_suffix(''))\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)\n"
    )
    process = run_driver(tmp_path, "import time; time.sleep(600)", shell=True, boto3=wait + BOTO3)
    wait_until((tmp_path / "id").exists)
    process.kill()
    process.wait(60)
    (tmp_path / "go").touch()
    driver = int((tmp_path / "id").read_text())
    wait_until(lambda: not is_running(driver))
    assert (tmp_path / "flights" / "outcome").read_text() == str(-signal.SIGTERM)
