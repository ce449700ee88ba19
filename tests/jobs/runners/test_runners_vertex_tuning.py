"""Tuning jobs on Vertex AI: requests, trials of a test service, lost answers, and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_service
import pytest
import vertex_service
from discovery import validate
from runner_cases import make_job
from service_job_contract import attempt_command, log_of
from services import until
from typer.testing import CliRunner
from vertex_service import VertexService

from hyperplane.cli import app
from hyperplane.errors import RequestError
from hyperplane.jobs import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.kubernetes.runner import KubernetesRunner
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.task_program import set_trial
from hyperplane.jobs.runners.vertex import vertex_process
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.runner import VertexRunner
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.spec.settings import VertexSettings

RATE = {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.25, "maxValue": 1}
TUNING: dict[str, Any] = {
    "goal": "MINIMIZE", "hyperparameterMetricTag": "loss", "maxTrials": 4, "maxParallelTrials": 2,
    "params": [RATE, {"parameterName": "kind", "type": "CATEGORICAL",
                      "categoricalValues": ["a", "b"]}],
}  # fmt: skip
#: Prints its arguments, and reports the rate as the loss, half as much for kind b.
PROGRAM = """
import argparse, json, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--kind")
parser.add_argument("--job-dir")
given = parser.parse_args()
print(given.job_dir, os.environ["CLOUD_ML_TRIAL_ID"], flush=True)
if "WAIT" in os.environ:
    time.sleep(600)
loss = given.rate / (2 if given.kind == "b" else 1)
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a") as file:
    file.write(json.dumps({"timestamp": 1, "trial": "1", "loss": str(loss)}) + "\\n")
"""


def tuned(**others: Any) -> Step:
    fields: dict[str, Any] = {"kind": "train", "module_name": "trainer.task", "tuning": TUNING}
    return Step(name="fit", **{**fields, **others})


def write_program(folder: Path) -> Path:
    package = folder / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "task.py").write_text(PROGRAM)
    return package


def plan(step: Step) -> dict[str, Any]:
    attempt = AttemptCommand(
        ("python", "-m", "trainer.task"), {}, ".", Path("/jobs/8f/steps/0/a-1")
    )
    settings = VertexSettings(**vertex_service.options())
    return plan_job(attempt, step, 1.0, settings, TaskFile("task_program.py", b"pass\n"), []).job


def test_a_tuning_job_is_that_of_the_discovery_document() -> None:
    params = [
        {**RATE, "scaleType": "UNIT_LOG_SCALE"},
        {"parameterName": "units", "type": "INTEGER", "minValue": 8, "maxValue": 64},
        {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["a", "b"]},
        {"parameterName": "depth", "type": "DISCRETE", "discreteValues": [9, 3, 5.5]},
    ]
    tuning = {
        **TUNING, "params": params, "algorithm": "RANDOM_SEARCH", "maxFailedTrials": 3,
        "enableTrialEarlyStopping": True,
    }  # fmt: skip
    job = plan(tuned(tuning=tuning, worker_count=2, timeout=60))
    schema = {"$ref": "GoogleCloudAiplatformV1HyperparameterTuningJob"}
    validate("aiplatform", schema, job, "job")
    assert job["studySpec"] == {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
        "parameters": [
            {"parameterId": "rate", "scaleType": "UNIT_LOG_SCALE",
             "doubleValueSpec": {"minValue": 0.25, "maxValue": 1.0}},
            {"parameterId": "units", "integerValueSpec": {"minValue": "8", "maxValue": "64"}},
            {"parameterId": "kind", "categoricalValueSpec": {"values": ["a", "b"]}},
            {"parameterId": "depth", "discreteValueSpec": {"values": [3.0, 5.5, 9.0]}},
        ],
        "algorithm": "RANDOM_SEARCH",
        "medianAutomatedStoppingSpec": {},
    }  # fmt: skip
    counts = (job["maxTrialCount"], job["parallelTrialCount"], job["maxFailedTrialCount"])
    assert counts == (4, 2, 3)
    pools = job["trialJobSpec"]["workerPoolSpecs"]
    assert [pool["replicaCount"] for pool in pools] == ["1", "2"]
    assert "jobSpec" not in job
    few = plan(tuned(tuning={**TUNING, "maxTrials": 1}))
    assert (few["parallelTrialCount"], "maxFailedTrialCount" in few) == (1, False)


def test_trials_count_for_the_cost_and_the_budget() -> None:
    options = {**vertex_service.options(), "region": "us-central1", "budget": "0.2 USD"}
    runner = VertexRunner({}, VertexRunner.resolve_options(options))
    [line] = runner.describe_cost(make_job(tuned()))
    assert "2 at once" in line
    [fault] = runner.find_budget_faults(make_job(tuned(timeout=3600)))
    assert "step 'fit': 4 containers" in str(fault)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"tuning": {**TUNING, "goal": "BEST"}}, "tuning.goal"),
        ({"tuning": {**TUNING, "params": [{**RATE, "minValue": 2}]}}, "tuning.params.0.maxValue"),
        ({"tuning": {}}, "tuning.params"),
        ({"kind": "command", "module_name": None, "argv": ("true",)}, "tuning"),
        ({"chunks": 2}, "chunks"),
    ],
)
def test_a_wrong_specification_is_a_fault_of_the_step(changes: Any, where: str) -> None:
    with pytest.raises(RequestError) as caught:
        tuned(**changes)
    assert where in [fault.where for fault in caught.value.faults]


def test_other_runners_refuse_it_and_vertex_what_it_does_not_have() -> None:
    pipeline = make_job(tuned()).pipeline
    for runner in (LocalRunner({}, {}), KubernetesRunner({}, KubernetesRunner.resolve_options({}))):
        faults = [str(fault) for fault in runner.find_unsupported(pipeline)]
        assert any("tuning" in fault and "tune_program" in fault for fault in faults)
    resumed = make_job(tuned(tuning={**TUNING, "resumePreviousJobId": "1"})).pipeline
    vertex = VertexRunner({}, VertexRunner.resolve_options(vertex_service.options()))
    assert vertex.find_unsupported(pipeline) == []
    [fault] = vertex.find_unsupported(resumed)
    assert "tuning.resumePreviousJobId" in str(fault)


def test_a_trial_has_a_separate_folder() -> None:
    environment = {"CLUSTER_SPEC": '{"task": {"trial": "3"}}'}
    argv = ["python", "-m", "trainer.task", "--job-dir", "gs://flights/fit/", "--rate=0.1"]
    set_trial(environment, argv)
    assert environment["CLOUD_ML_TRIAL_ID"] == "3"
    assert argv[4] == "gs://flights/fit/3"
    set_trial({}, argv)
    assert argv[4] == "gs://flights/fit/3"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VertexService]:
    google_service.speed_up(monkeypatch, vertex_process.VertexProcess)
    folder = tmp_path / "vertex"
    folder.mkdir()
    with vertex_service.running(folder) as service:
        for name, text in vertex_service.variables(service).items():
            monkeypatch.setenv(name, text)
        yield service


@pytest.mark.process
@pytest.mark.service
@pytest.mark.slow
def test_a_file_of_gcloud_with_hyperparameters_runs_trials_once(
    service: VertexService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "trainingInput:\n"
        "  jobDir: 'gs://flights/fit'\n"
        "  hyperparameters:\n"
        "    {goal: MINIMIZE, hyperparameterMetricTag: loss, maxTrials: 4, maxParallelTrials: 2,\n"
        "     params: [{parameterName: rate, type: DOUBLE, minValue: 0.25, maxValue: 1},\n"
        "       {parameterName: kind, type: CATEGORICAL, categoricalValues: [a, b]}]}\n"
    )
    # The answer is lost, and the job is found by its name.
    service.faults["hyperparameterTuningJobs.create"] = ["lose"]
    words = [
        "train", "--module-name", "trainer.task", "--package-path", "trainer/", "--runner",
        "vertex", "--config", "config.yaml",
    ]  # fmt: skip
    for name, text in vertex_service.options().items():
        words += ["--runner-option", f"{name}={text}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    [tuning] = service.tunings.values()
    assert len(tuning.trials) == 4
    assert service.count("hyperparameterTuningJobs.create") == 1
    store = open_store()
    [job] = store.find(limit=1)
    [attempt] = store.attempts(job.id)
    log = log_of(job, attempt)
    for number in range(1, 5):
        assert f"trial {number} | gs://flights/fit/{number} {number}\n" in log
    assert "trial 4 is SUCCEEDED: loss=0.5 with rate=1.0, kind=b\n" in log
    assert "the best: trial 2 is SUCCEEDED: loss=0.125 with rate=0.25, kind=b\n" in log


@pytest.mark.process
@pytest.mark.service
@pytest.mark.slow
def test_a_cancelled_tuning_job_leaves_no_trial(service: VertexService, tmp_path: Path) -> None:
    package = write_program(tmp_path)
    options = {**vertex_service.options(), "environ": ["WAIT=1"]}
    step = tuned(package_path=str(package))
    runner = VertexRunner(
        dict(vertex_service.variables(service)), VertexRunner.resolve_options(options)
    )
    job = make_job(step, root=tmp_path)
    runner.with_runtime_paths(job)
    command = attempt_command(tmp_path, "python", "-m", "trainer.task")

    async def work() -> int | None:
        process = await runner.start(command, step, 1.0)
        await process.wait_until_running()
        await asyncio.to_thread(until, lambda: len(service.running()) == 2)
        code = await process.end(1.0)
        await runner.close()
        return code

    assert asyncio.run(work()) is not None
    [tuning] = service.tunings.values()
    assert tuning.description["state"] == "JOB_STATE_CANCELLED"
    assert service.running() == []
    stored = VertexJobId.read(command)
    assert stored is not None
    assert stored.is_tuning
    assert "/hyperparameterTuningJobs/" in stored.id
