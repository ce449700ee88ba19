"""``hyperplane vertex``: models, endpoints and batch predictions on a test server of Vertex AI."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vertex_prediction_service
from click.testing import CliRunner
from discovery import validate
from google_service import Refused
from services import until
from terminal import Answer, Run
from typer.main import get_command
from vertex_prediction_service import PARENT, PredictionService
from vertex_service import PROJECT, REGION, variables

from hyperplane.cli import app, vertex_batch, vertex_endpoint
from hyperplane.platforms.gcp import vertex_requests
from hyperplane.platforms.gcp.errors import GcpConnectionError, GcpError, GcpRequestError
from hyperplane.platforms.gcp.machine_types import attach_gpus, find_machine
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.vertex_endpoints import Deployment, EndpointsApi
from hyperplane.platforms.gcp.vertex_models import ModelUpload
from hyperplane.platforms.gcp.vertex_predictions import (
    BatchPrediction,
    NameTakenError,
    PredictionJobsApi,
)
from hyperplane.platforms.gcp.vertex_requests import VertexRequests

pytestmark = pytest.mark.service
IMAGE = "europe-docker.pkg.dev/vertex-ai/prediction/sklearn-cpu.1-5:latest"
UPLOAD = ("--image", "registry.example/model:1", "--artifact", "gs://flights/model")
BATCH = ("--input", "gs://flights/rows/*.jsonl", "--output", "gs://flights/predicted")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictionService]:
    with vertex_prediction_service.running(tmp_path_factory.mktemp("vertex")) as service:
        for name, text in (("model/model.joblib", ""), ("rows/a.jsonl", "[1, 2]\n[3]\n")):
            file = service.buckets / "flights" / name
            file.parent.mkdir()
            file.write_text(text)
        yield service


@pytest.fixture
def service(server: PredictionService, monkeypatch: pytest.MonkeyPatch) -> PredictionService:
    server.clear()
    for name, text in variables(server).items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(vertex_requests, "DELAYS", (0.01,) * 4)
    monkeypatch.setattr(vertex_requests, "POLL_SECONDS", 0.03)
    monkeypatch.setattr(vertex_requests, "CONFIRM_SECONDS", 30.0)
    monkeypatch.setattr(vertex_batch, "_POLL_SECONDS", 0.03)
    monkeypatch.setattr(vertex_batch, "_MISSING_SECONDS", 0.1)
    return server


@pytest.fixture(scope="module")
def run() -> Run:
    """Run a command in this process; the commands are built once, which takes most of the time."""
    command = get_command(app)

    def invoke(*words: str) -> Answer:
        result = CliRunner().invoke(command, list(words), env={"COLUMNS": "80"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def vertex(run: Run) -> Run:
    def invoke(*words: str) -> Answer:
        region = () if words[0] in ("describe", "cancel") else ("--region", REGION)
        return run("vertex", *words, *region)

    return invoke


def deployed(service: PredictionService, endpoint: str = "flights") -> list[str]:
    return [each["modelVersionId"] for each in service.endpoints[endpoint]["deployedModels"]]


def test_requests_are_those_of_the_discovery_document() -> None:
    resource = f"{PARENT}/models/flights@3"
    machine = attach_gpus(find_machine("n1-standard-8"), 2, "NVIDIA_TESLA_T4")  # type: ignore[arg-type]
    assert machine is not None
    spec = {
        "machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2
    }  # fmt: skip
    upload = ModelUpload("flights", "v2", IMAGE, "gs://flights/model", "/predict", "/health", 8501)
    bodies: dict[str, Any] = {
        "UploadModelRequest": upload.build_request(PARENT, is_first=False, is_default=True),
        "DeployModelRequest": Deployment(resource, machine, 1, 3, "me@x").build_request(),
        "BatchPredictionJob": BatchPrediction(
            resource, ("gs://flights/rows/*",), "gs://flights/predicted", machine, "text", 8, 4,
            "me@x",
        ).build_request("monday"),
    }  # fmt: skip
    for name, body in bodies.items():
        validate("aiplatform", {"$ref": f"GoogleCloudAiplatformV1{name}"}, body, name)
    container = {
        "imageUri": IMAGE, "predictRoute": "/predict", "healthRoute": "/health",
        "ports": [{"containerPort": 8501}],
    }  # fmt: skip
    assert bodies["UploadModelRequest"] == {
        "model": {
            "displayName": "flights", "artifactUri": "gs://flights/model",
            "versionAliases": ["v2", "default"], "containerSpec": container,
        },
        "parentModel": f"{PARENT}/models/flights",
    }  # fmt: skip
    assert bodies["DeployModelRequest"] == {
        "deployedModel": {
            "id": bodies["DeployModelRequest"]["deployedModel"]["id"],
            "model": resource,
            "serviceAccount": "me@x",
            "dedicatedResources": {
                "machineSpec": spec, "minReplicaCount": 1, "maxReplicaCount": 3
            },
        },
        "trafficSplit": {"0": 100},
    }  # fmt: skip
    digest = bodies["BatchPredictionJob"].pop("labels")["hyperplane-request"]
    assert len(digest) == 32
    assert bodies["BatchPredictionJob"] == {
        "displayName": "monday",
        "model": resource,
        "inputConfig": {
            "instancesFormat": "jsonl", "gcsSource": {"uris": ["gs://flights/rows/*"]}
        },
        "outputConfig": {
            "predictionsFormat": "jsonl",
            "gcsDestination": {"outputUriPrefix": "gs://flights/predicted"},
        },
        "dedicatedResources": {"machineSpec": spec, "maxReplicaCount": 4},
        "manualBatchTuningParameters": {"batchSize": 8},
        "serviceAccount": "me@x",
    }  # fmt: skip


@pytest.mark.slow
def test_versions_are_uploaded_once_listed_and_deleted(
    service: PredictionService, vertex: Run
) -> None:
    # The answer is lost, and the version is found by its name.
    service.faults["models.upload"] = ["refuse 429", "lose"]
    answer = vertex("upload", "flights", "v1", *UPLOAD)
    assert (answer.code, answer.out) == (0, f"{PARENT}/models/flights@1\n"), answer.err
    assert vertex("upload", "flights", "v1", *UPLOAD).out == answer.out
    assert service.count("models.upload") == 2
    answer = vertex("upload", "flights", "v1", "--image", "registry.example/model:2")
    assert answer.code == 2
    assert "a name that no version with other files or another image has" in answer.err
    service.faults["models.upload"] = ["answer 503"]
    assert vertex("upload", "flights", "v2", *UPLOAD, "--default").out.endswith("flights@2\n")
    assert vertex("upload", "flights", "v1", *UPLOAD, "--default").code == 0
    assert vertex("upload", "delays", "v1", *UPLOAD).code == 0
    listed = json.loads(vertex("models", "--json").out)
    assert [(each["model"], each["aliases"]) for each in listed] == [
        ("flights", ["v1", "default"]), ("delays", ["v1", "default"])
    ]  # fmt: skip
    versions = json.loads(vertex("models", "flights", "--json").out)
    assert [each["version"] for each in versions] == ["1", "2"]
    assert "v2" in vertex("models", "flights").out
    assert vertex("delete", "flights", "v2").out == f"deleted {PARENT}/models/flights@2\n"
    assert list(service.models["flights"]) == ["1"]
    # The answer is lost, and the model is not there at the second request.
    service.faults["models.delete"] = ["lose"]
    assert vertex("delete", "flights").out == f"deleted {PARENT}/models/flights\n"
    assert list(service.models) == ["delays"]
    answer = vertex("delete", "flights")
    assert (answer.code, "hyperplane vertex models lists them" in answer.err) == (2, True)


def test_an_upload_that_fails_or_is_not_confirmed_says_so(
    service: PredictionService, vertex: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vertex_requests, "CONFIRM_SECONDS", 0.1)
    service.failure = "the image cannot be pulled"
    answer = vertex("upload", "flights", "v1", *UPLOAD)
    assert answer.code == 1
    assert "failed with code 9: the image cannot be pulled" in " ".join(answer.err.split())
    service.waiting_for, service.faults["models.upload"] = "operations", ["lose"]
    answer = vertex("upload", "flights", "v1", *UPLOAD)
    assert (answer.code, "it is unknown whether" in answer.err) == (1, True)


def test_a_model_is_deleted_although_the_answer_to_the_first_request_is_lost(
    service: PredictionService, vertex: Run
) -> None:
    vertex("upload", "flights", "v1", *UPLOAD)
    # The second request begins before the first one has ended, and then fails.
    service.waiting_for, service.faults["models.delete"] = "operations", ["lose"]

    def release() -> None:
        until(lambda: service.count("models.delete") == 2)
        service.waiting_for = ""

    releasing = threading.Thread(target=release)
    releasing.start()
    answer = vertex("delete", "flights")
    releasing.join()
    assert (answer.code, answer.out) == (0, f"deleted {PARENT}/models/flights\n"), answer.err
    assert service.models == {}


@pytest.mark.slow
def test_a_version_is_deployed_once_replaced_and_removed(
    service: PredictionService, vertex: Run, tmp_path: Path
) -> None:
    for version in ("v1", "v2"):
        vertex("upload", "flights", version, *UPLOAD)
    answer = vertex("deploy", "flights/v1", "flights", "--dry-run", "--max-replicas", "3")
    assert json.loads(answer.out)["body"]["trafficSplit"] == {"0": 100}
    assert "1 to 3 n1-standard-4; cost unknown: no price of n1-standard-4 in" in answer.err
    assert service.endpoints == {}
    service.faults["endpoints.create"] = ["lose"]
    service.faults["endpoints.deployModel"] = ["refuse 429", "lose"]
    answer = vertex("deploy", "flights/v1", "flights")
    name = f"projects/{PROJECT}/locations/{REGION}/endpoints/flights"
    assert answer.out == f"{PARENT}/models/flights@1 is deployed to {name}\n", answer.err
    assert "already" in vertex("deploy", "flights", "flights").out
    assert service.count("endpoints.deployModel") == 2
    file = tmp_path / "rows"
    file.write_text("[1, 2]\n[3]\n")
    service.faults["endpoints.predict"] = ["refuse 503"]
    assert vertex("predict", "flights", "--json-instances", str(file)).out == "3\n3\n"
    assert vertex("predict", "flights", "--text-instances", str(file)).out.startswith('"[1, 2]"')
    file.write_text('{"instances": [[4]]}')
    answer = vertex("predict", "flights", "--json-request", str(file))
    assert json.loads(answer.out) == {"predictions": [4]}
    # The other version gets all requests, and the first one is removed.
    service.faults["endpoints.undeployModel"] = ["lose"]
    assert vertex("deploy", "flights/v2", "flights").code == 0
    assert deployed(service) == ["2"]
    assert list(service.endpoints["flights"]["trafficSplit"].values()) == [100]
    [row] = json.loads(vertex("endpoints", "--json").out)
    assert (row["model"], row["version"], row["machine_type"]) == ("flights", "2", "n1-standard-4")
    answer = vertex("delete", "flights")
    assert (answer.code, "The model is deployed" in answer.err) == (1, True)
    service.faults["endpoints.undeployModel"] = ["refuse 503", "lose"]
    assert vertex("undeploy", "flights").out == f"deleted {name}\n"
    assert service.endpoints == {}
    answer = vertex("undeploy", "flights")
    assert (answer.code, "hyperplane vertex endpoints lists them" in answer.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("update", [False, True])
def test_a_deployment_that_fails_or_is_interrupted_leaves_nothing(
    service: PredictionService, vertex: Run, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    for version in ("v1", "v2"):
        vertex("upload", "flights", version, *UPLOAD)
    if update:
        vertex("deploy", "flights/v1", "flights")
    before = json.dumps(service.endpoints)
    service.faults["endpoints.deployModel"] = ["refuse 400"]
    answer = vertex("deploy", "flights/v2", "flights")
    assert (answer.code, json.dumps(service.endpoints)) == (1, before)

    class StopSignalsDouble:
        stop_requested = threading.Event()
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

    monkeypatch.setattr(vertex_endpoint, "StopSignals", StopSignalsDouble)
    if not update:
        service.faults["endpoints.create"] = ["lose"]

    def interrupt() -> None:
        until(lambda: service.count("endpoints.deployModel") > (2 if update else 1))
        StopSignalsDouble.stop_requested.set()

    service.deploys_slowly = True
    thread = threading.Thread(target=interrupt)
    thread.start()
    answer = vertex("deploy", "flights/v2", "flights")
    thread.join()
    assert (answer.code, "interrupted" in answer.err) == (1, True)
    assert json.dumps(service.endpoints) == before
    assert service.count("operations.cancel") == 1


@pytest.mark.slow
def test_a_version_is_named_in_two_ways_and_other_texts_are_faults(
    service: PredictionService, vertex: Run, tmp_path: Path
) -> None:
    service.models["flights"] = {
        number: {
            "name": f"{PARENT}/models/flights", "versionId": number, "versionAliases": [alias]
        }
        for number, alias in (("1", "default"), ("2", "v2"), ("3", "v3"))
    }  # fmt: skip
    [shown] = json.loads(vertex("models", "flights/v3", "--json").out)
    assert shown["version"] == "3"
    assert vertex("delete", "flights@3").out == f"deleted {PARENT}/models/flights@3\n"
    assert vertex("delete", "flights/v2").out == f"deleted {PARENT}/models/flights@2\n"
    assert list(service.models["flights"]) == ["1"]
    sent = len(service.requests)
    file = tmp_path / "rows"
    for words, text in {
        ("delete", "flights/v1/x"): "MODEL = 'flights/v1/x'",
        ("delete", ""): "MODEL = ''",
        ("delete", "flights/"): "MODEL = 'flights/'",
        ("delete", "flights", ""): "VERSION = ''",
        ("delete", "flights/1", "2"): "VERSION = '2'",
        ("models", "flights@"): "MODEL = 'flights@'",
        ("deploy", "Flights", "flights"): "MODEL = 'Flights'",
        ("batch-predict", "a b", *BATCH, "--render"): "MODEL = 'a b'",
        ("undeploy", "a/b"): "ENDPOINT = 'a/b'",
        ("predict", "a/b", "--json-instances", str(file)): "ENDPOINT = 'a/b'",
    }.items():
        file.write_text("[1]\n")
        answer = vertex(*words)
        assert (answer.code, text in answer.err) == (2, True), answer.err
    for line, text in {"": "no instances", "[NaN]\n": "line 1", "[1e999]\n": "line 1"}.items():
        file.write_text(line)
        answer = vertex("predict", "flights", "--json-instances", str(file))
        assert (answer.code, text in answer.err) == (2, True), answer.err
    assert len(service.requests) == sent


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_deployment_that_fails_cancels_no_operation_of_another_command(
    service: PredictionService, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    stop = threading.Event()
    others: list[str] = []
    service.deploys_slowly = True

    def refuse(request: Any) -> Any:
        others.append(service._begin(f"{PARENT}/endpoints/flights", dict)["name"])
        service._deployments.update(others)
        stop.set()
        raise Refused(503 if is_lost else 400, "There are other operations running.")

    monkeypatch.setattr(service, "_deploy", refuse)
    api = EndpointsApi(VertexRequests(GcpSession(PROJECT, REGION, os.environ)))
    machine = find_machine("n1-standard-4")
    assert machine is not None
    # Without an answer the operation may be that of this command.
    expected = "may still exist.*undeploy flights" if is_lost else "other operations running.$"
    with pytest.raises(GcpError, match=expected):
        api.deploy("flights", Deployment(f"{PARENT}/models/flights@1", machine), stop)
    assert service.count("operations.cancel") == service.count("endpoints.delete") == 0
    # The end of the endpoint ends all of them.
    api.remove("flights")
    assert service.count("operations.cancel") == 1
    assert service.endpoints == {}


def test_a_batch_prediction_is_submitted_once_and_has_its_output(
    service: PredictionService, vertex: Run
) -> None:
    vertex("upload", "flights", "v1", *UPLOAD)
    words = ("batch-predict", "flights/v1", *BATCH, "--name", "monday")
    service.faults["batchPredictionJobs.create"] = ["refuse 429", "lose"]
    answer = vertex(*words, "--wait", "--json")
    document = json.loads(answer.out)
    assert answer.code == 0
    assert (document["status"], document["predicted"]) == ("done", 2)
    assert document["output"] == "gs://flights/predicted/prediction-monday"
    assert "up to 10 n1-standard-4; cost unknown" in answer.err
    results = service.buckets / "flights/predicted/prediction-monday"
    assert '"prediction": 3}' in next(results.iterdir()).read_text()
    [job] = service.predictions
    again = vertex(*words)
    assert (again.code, again.out) == (0, f"{job}\n")
    assert "submitted before" in again.err
    assert service.count("batchPredictionJobs.create") == 2
    other = vertex(*words, "--batch-size", "8")
    assert (other.code, "has another request" in " ".join(other.err.split())) == (2, True)
    assert "status     done" in vertex("describe", job).out
    assert vertex("cancel", job).out == f"{job}: done before\n"
    answer = vertex("describe", f"{job}0")
    assert (answer.code, "a job that Vertex AI has" in answer.err) == (2, True)
    assert vertex("cancel", "monday").code == 2


def test_a_batch_prediction_fails_is_cancelled_or_vanishes(
    service: PredictionService, vertex: Run
) -> None:
    vertex("upload", "flights", "v1", *UPLOAD)
    service.failure = "the container has ended"
    answer = vertex("batch-predict", "flights", *BATCH, "--wait")
    assert (answer.code, "the container has ended" in answer.out) == (1, True)
    service.failure, service.waiting_for = "", "machines"
    job = vertex("batch-predict", "flights", *BATCH).out.strip()
    assert "in progress" in vertex("describe", job).out
    # The answer is lost, and the second request finds a job that has ended.
    service.faults["batchPredictionJobs.cancel"] = ["lose"]
    assert vertex("cancel", job).out == f"{job}: cancelled\n"

    def vanish() -> None:
        until(lambda: len(service.predictions) == 3)
        with service._lock:
            service.predictions.clear()

    thread = threading.Thread(target=vanish)
    thread.start()
    answer = vertex("batch-predict", "flights", *BATCH, "--wait")
    thread.join()
    assert (answer.code, "Vertex AI does not have the job" in answer.err) == (1, True)


def test_the_later_of_two_jobs_of_a_name_is_cancelled(
    service: PredictionService, vertex: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    vertex("upload", "flights", "v1", *UPLOAD)
    service.waiting_for = "machines"
    words = ("batch-predict", "flights", *BATCH, "--name", "monday")
    first = vertex(*words).out
    hidden = dict(service.predictions)
    service.predictions.clear()
    create = service._create_prediction

    def create_beside(request: Any) -> Any:
        created = create(request)
        service.predictions.update(hidden)
        return created

    monkeypatch.setattr(service, "_create_prediction", create_beside)
    assert vertex(*words).out == first
    states = sorted(job["state"] for job in service.predictions.values())
    assert states == ["JOB_STATE_CANCELLED", "JOB_STATE_PENDING"]


class SessionDouble(GcpSession):
    """A session in which a job of another command is created first, and answers are lost."""

    def __init__(self, other: dict[str, Any]) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.other = other
        self.answers: list[Any] = []

    def location(self) -> str:
        return PARENT

    def call(self, service: str, operation: str, **request: Any) -> Any:
        match operation.rpartition(".")[2]:
            case "list":
                return {"batchPredictionJobs": list(self.jobs.values())}
            case "create":
                self.jobs["own"] = {**request["body"], "name": "own", "createTime": "1"}
                self.jobs["other"] = {**self.other, "name": "another", "createTime": "1"}
                raise GcpConnectionError("no answer")
            case "cancel":
                del self.jobs[request["name"]]
                return {}
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"name": request["name"], "state": answer}


@pytest.mark.parametrize("is_same", [True, False])
def test_a_job_without_an_answer_is_cancelled_if_another_one_is_first(is_same: bool) -> None:
    machine = find_machine("n1-standard-4")
    assert machine is not None
    batch = BatchPrediction("m", ("gs://a/b",), "gs://a/c", machine)
    other = batch if is_same else batch._replace(batch_size=8)
    session = SessionDouble(other.build_request("monday"))
    api = PredictionJobsApi(VertexRequests(session))
    body = batch.build_request("monday")
    if is_same:
        assert api.submit(body) == ("another", False)
    else:
        with pytest.raises(NameTakenError):
            api.submit(body)
    assert list(session.jobs) == ["other"]


def test_a_wait_continues_without_answers_and_names_the_job_in_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vertex_requests, "DELAYS", ())
    monkeypatch.setattr(vertex_batch, "_POLL_SECONDS", 0.01)
    job = f"{PARENT}/batchPredictionJobs/7"
    session = SessionDouble({})
    api = PredictionJobsApi(VertexRequests(session))
    outage = [GcpConnectionError("no route"), GcpRequestError("busy", 503)] * 3
    session.answers = ["JOB_STATE_RUNNING", *outage, "JOB_STATE_SUCCEEDED"]
    assert vertex_batch._wait(api, job)["status"] == "done"
    assert capsys.readouterr().err.splitlines() == [
        "running", "no route; the job may run on, its state is read again", "succeeded"
    ]  # fmt: skip
    session.answers = [GcpRequestError("denied", 403)]
    with pytest.raises(GcpError, match=f"^{job}: denied$"):
        vertex_batch._wait(api, job)


def test_all_faults_are_reported_at_once(service: PredictionService, vertex: Run, run: Run) -> None:
    service.missing = {"aiplatform.batchPredictionJobs.create"}
    words = ("--input", "gs://flights/none/*", "--output", "gs://nowhere/a")
    answer = vertex("batch-predict", "none", *words, "--dry-run")
    message = " ".join(answer.err.split())
    assert (answer.code, "4 faults" in message) == (2, True)
    for text in (
        "you have aiplatform.batchPredictionJobs.create", "MODEL = 'none'",
        "--input = 'gs://flights/none/*': expected files that exist",
        "--output = 'gs://nowhere/a': expected an existing bucket",
    ):  # fmt: skip
        assert text in message
    answer = run(
        "vertex", "batch-predict", "flights", "--input", "rows", "--output", "s3://a", "--name",
        "a b", "--data-format", "xml", "--max-workers", "0", "--batch-size", "0", "--gpus", "1",
        "--region", "europe",
    )  # fmt: skip
    assert (answer.code, "7 faults" in answer.err) == (2, True), answer.err
    answer = vertex("deploy", "flights", "flights", "--gpu-type", "NVIDIA_TESLA_T4")
    assert (answer.code, "at least 1 with --gpu-type" in answer.err) == (2, True), answer.err
    answer = run("vertex", "upload", "Flights", "1", "--image", "a b", "--port", "0")
    assert (answer.code, "4 faults" in answer.err) == (2, True), answer.err
    assert service.count("batchPredictionJobs.create") == 0
    service.is_logged_in = False
    service.revoke_tokens()
    try:
        answer = vertex("deploy", "flights", "flights")
    finally:
        service.is_logged_in = True
    assert (answer.code, "credentials" in answer.err) == (2, True)


def test_a_request_is_rendered_without_an_account_and_costs_are_known(
    run: Run, monkeypatch: pytest.MonkeyPatch, service: PredictionService, vertex: Run
) -> None:
    answer = run("vertex", "batch-predict", "flights/v1", *BATCH, "--region", REGION, "--render")
    document = json.loads(answer.out)
    assert document["parent"] == f"projects/PROJECT/locations/{REGION}"
    assert document["body"]["model"] == f"{document['parent']}/models/flights@v1"
    assert service.requests == []
    from hyperplane.cli.vertex_options import describe_cost
    from hyperplane.spec.settings import VertexSettings

    machine = find_machine("n1-standard-4")
    assert machine is not None
    assert describe_cost(VertexSettings(region="us-central1"), machine, "1") == (
        "1 n1-standard-4, 0.2185 USD for an hour each (price of 2026-09, "
        "https://cloud.google.com/vertex-ai/pricing)"
    )
