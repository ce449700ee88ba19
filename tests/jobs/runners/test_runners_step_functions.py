"""Exported machines on moto's Step Functions: create, start, describe and stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import step_functions_service
from click.testing import Result
from job_cases import is_alive
from moto_proxy import KEYS, REGION
from services import until
from step_functions_service import ROLE, StepFunctionsService
from typer.testing import CliRunner

from hyperplane.cli import app, asl_service
from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.aws.step_functions import ExecutionExistsError, StepFunctionsApi

pytestmark = [pytest.mark.process, pytest.mark.service]
INPUT = json.dumps({"job_queue": "q", "job_definition": "d"})
PIPELINE = """
pipeline:
  name: {name}
  tasks:
  - {{name: load, type: bash, bash_script_path: load.sh}}
  - {{name: years, type: bash, bash_script_path: years.sh, chunks: 2, retries: 0}}
"""


@pytest.fixture
def service(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StepFunctionsService]:
    step_functions_service.create_role(moto)
    service = StepFunctionsService(moto, tmp_path)
    for name, text in step_functions_service.variables(moto, service.url).items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setattr(asl_service, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr("hyperplane.platforms.aws.step_functions._DELAYS", (0.05,) * 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "load.sh").write_text('echo "$DAY" > rows\n')
    (tmp_path / "years.sh").write_text('cat rows > "year-$CHUNK_ID"\n')
    yield service
    service.close()


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["asl", *words])


def create(name: str, *words: str, retries: int = 0) -> str:
    Path(f"{name}.yaml").write_text(PIPELINE.format(name=name).replace("s: 0", f"s: {retries}"))
    file = Path(f"{name}.asl.json")
    file.unlink(missing_ok=True)
    assert run("export", f"{name}.yaml", "-p", "day=Monday", "--out", file.name).exit_code == 0
    result = run("create", file.name, "--role", ROLE, *words)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_an_exported_pipeline_is_created_started_and_described(
    service: StepFunctionsService, tmp_path: Path
) -> None:
    machine = create("flights")
    assert machine.endswith(":stateMachine:flights")
    assert create("flights") == machine
    result = run("start", "flights", "--input", INPUT, "--wait", "--name", "monday")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(INPUT)
    assert [(tmp_path / name).read_text() for name in ("year-0", "year-1")] == ["Monday\n"] * 2
    arn = result.stderr.strip()
    assert arn == machine.replace("stateMachine", "execution") + ":monday"
    document = json.loads(run("describe", arn, "--json").output)
    assert (document["status"], document["machine"]) == ("done", machine)
    assert document["input"] == document["output"] == json.loads(INPUT)
    assert document["started"] <= document["ended"]
    assert "status     done" in run("describe", arn).output
    assert run("stop", arn).output == f"{arn}: done before\n"
    assert service.count("StopExecution") == 0


def test_a_failure_has_its_error_and_its_exit_code(
    service: StepFunctionsService, tmp_path: Path
) -> None:
    create("failing")
    (tmp_path / "years.sh").write_text("exit 4\n")
    result = run("start", "failing", "--input", INPUT, "--wait")
    assert result.exit_code == 1
    assert "failed: States.TaskFailed" in result.stderr
    [arn] = service.runs
    assert "failed" in run("describe", arn).output


def test_a_stopped_execution_ends_and_its_programs_too(
    service: StepFunctionsService, tmp_path: Path
) -> None:
    create("slow")
    (tmp_path / "load.sh").write_text("echo $$ > pid; exec sleep 600\n")
    result = run("start", "slow", "--input", INPUT)
    arn = result.output.strip()
    assert "in progress" in run("describe", arn).output
    pid = tmp_path / "pid"
    until(lambda: pid.exists() and pid.read_text().strip())
    result = run("stop", arn, "--cause", "wrong day")
    assert (result.exit_code, result.output) == (0, f"{arn}: cancelled\n")
    assert service.bodies("StopExecution")[0]["cause"] == "wrong day"
    until(lambda: not is_alive(int(pid.read_text())))


def test_a_name_that_is_taken_is_refused(service: StepFunctionsService) -> None:
    machine = create("taken")
    started = run("start", machine, "--name", "once", "--input", INPUT)
    arn = started.output.strip()
    # The same name and input while it runs, or after its end.
    until(lambda: service.runs[arn].changed["status"] == "SUCCEEDED")
    again = run("start", machine, "--name", "once", "--input", "[1]")
    assert again.exit_code == 2
    text = " ".join(again.output.split())
    assert "nothing was started" in text
    assert f"a new name; the execution {arn} is done" in text
    assert len(service.runs) == 1
    changed = run("export", "taken.yaml", "-p", "day=Friday", "--out", "other.asl.json")
    assert changed.exit_code == 0
    words = ["create", "other.asl.json", "--role", ROLE, "--name", "taken"]
    refused = run(*words)
    assert refused.exit_code == 2
    assert "nothing was created" in refused.output
    assert "replace the machine with --update" in " ".join(refused.output.split())
    assert run(*words, "--update").output.strip() == machine
    [updated] = service.bodies("UpdateStateMachine")
    assert "Friday" in updated["definition"]


def test_lost_answers_and_refusals_start_one_execution(service: StepFunctionsService) -> None:
    create("lossy")
    service.faults["StartExecution"] = ["lose", "refuse 429 ThrottlingException", "answer 500"]
    service.faults["DescribeExecution"] = ["lose", "refuse 400 ThrottlingException"]
    result = run("start", "lossy", "--input", INPUT, "--wait")
    assert result.exit_code == 0, result.output
    assert service.count("StartExecution") >= 3
    assert len(service.runs) == 1


def test_an_execution_that_ends_before_a_lost_answer_is_repeated_is_not_taken(
    service: StepFunctionsService,
) -> None:
    machine = create("quick")
    api = StepFunctionsApi(
        AwsSession(REGION, None, step_functions_service.variables(service.moto, service.url)),
        # The repetition comes after the end.
        sleep=lambda seconds: client_stop(service),
    )
    service.faults["StartExecution"] = ["lose"]
    arn = api.start(machine, "first", INPUT)
    assert list(service.runs) == [arn]
    with pytest.raises(ExecutionExistsError):
        api.start(machine, "first", INPUT)
    service.faults["StartExecution"] = ["lose"] * 5
    with pytest.raises(AwsConnectionError, match=r"execution arn:.*:quick:second may run"):
        api.start(machine, "second", INPUT)
    assert len(service.runs) == 2


def client_stop(service: StepFunctionsService) -> None:
    """End all executions in moto, whose statuses decide about a second start."""
    from moto_proxy import client

    for arn in service.runs:
        client("stepfunctions", service.moto).stop_execution(executionArn=arn)


@pytest.mark.slow
def test_faults_are_reported_at_once_and_nothing_is_sent(
    service: StepFunctionsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("wrong.asl.json").write_text('{"StartAt": "A", "States": {"B": {"Type": "Succeed"}}}')
    other = ROLE.replace("role/states", "role/steps")  # of Batch
    result = run("create", "wrong.asl.json", "--role", other, "--name", "a b")
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    for part in ("StartAt", "--name", "a role that states.amazonaws.com may assume"):
        assert part in text
    result = run("start", "no-machine", "--name", "a b", "--input", "{")
    text = " ".join(result.output.split())
    assert (result.exit_code, "--name" in text, "--input" in text) == (2, True, True)
    result = run("start", "no-machine")
    assert "a name or an ARN of a machine" in " ".join(result.output.split())
    for words in (["describe", "monday"], ["stop", "monday"]):
        assert "the ARN of an execution" in " ".join(run(*words).output.split())
    gone = f"arn:aws:states:{REGION}:123456789012:execution:flights:gone"
    assert "an execution that Step Functions has" in " ".join(run("stop", gone).output.split())
    assert {"StartExecution", "CreateStateMachine", "StopExecution"}.isdisjoint(
        name for name, _ in service.requests
    )
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    result = run("create", "wrong.asl.json", "--role", ROLE)
    assert "credentials" in result.output


def test_requests_are_those_of_the_model_of_the_service(service: StepFunctionsService) -> None:
    import botocore.session
    from botocore.validate import ParamValidator

    create("valid")
    run("start", "valid", "--input", INPUT, "--wait")
    model = botocore.session.get_session().get_service_model("stepfunctions")
    seen: set[str] = set()
    for name, body in service.requests:
        shape: Any = model.operation_model(name).input_shape
        assert ParamValidator().validate(body, shape).generate_report() == ""
        seen.add(name)
    assert seen == {
        "CreateStateMachine", "DescribeStateMachine", "ListStateMachines", "StartExecution",
        "DescribeExecution",
    }  # fmt: skip
