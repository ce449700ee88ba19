"""Requests to Google Cloud: sent once, with the credentials of an environment; states, machines."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import vertex_service
from vertex_service import VertexService

from hyperplane.platforms.gcp import errors
from hyperplane.platforms.gcp.errors import (
    GcpConnectionError,
    GcpCredentialsError,
    GcpError,
    GcpRequestError,
)
from hyperplane.platforms.gcp.job_status import parse_job
from hyperplane.platforms.gcp.machine_types import (
    VertexMachine,
    choose_machine,
    find_machine,
    machine_price,
)
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.task_log import VERTEX_LOGS, LogPosition, build_filter, read_page
from hyperplane.platforms.gcp.vertex import VertexApi
from hyperplane.platforms.object_staging import parse_staging


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VertexService]:
    with vertex_service.running(tmp_path_factory.mktemp("vertex")) as service:
        service.waiting_for = "machines"
        yield service


def open_session(service: VertexService, **changes: str) -> GcpSession:
    environment = {**vertex_service.variables(service), **changes}
    return GcpSession(None, vertex_service.REGION, environment)


def job_request(name: str) -> dict[str, Any]:
    container = {"imageUri": "i", "command": ["true"], "args": [], "env": []}
    pool = {
        "machineSpec": {"machineType": "e2-standard-4"},
        "replicaCount": "1",
        "containerSpec": container,
    }
    return {
        "displayName": name, "jobSpec": {"workerPoolSpecs": [pool]}
    }  # fmt: skip


@pytest.mark.service
def test_a_request_without_an_answer_is_sent_once(service: VertexService) -> None:
    # httplib2, the usual transport of the client, would send it a second time.
    service.faults["customJobs.create"] = ["lose"]
    api = VertexApi(open_session(service))
    before = service.count("customJobs.create")
    with pytest.raises(GcpConnectionError) as caught:
        api.create(job_request("one"))
    assert errors.is_unconfirmed(caught.value)
    assert service.count("customJobs.create") == before + 1
    [name] = api.find_jobs("one")
    assert name in service.jobs


@pytest.mark.service
@pytest.mark.parametrize(
    ("fault", "kind", "retryable", "unconfirmed"),
    [
        ("refuse 429", GcpRequestError, True, False),
        ("refuse 503", GcpRequestError, True, True),
        ("refuse 403", GcpRequestError, False, False),
        ("refuse 403 userRateLimitExceeded", GcpRequestError, True, False),
        ("refuse 409", GcpRequestError, True, True),
    ],
)
def test_errors_of_answers(
    service: VertexService, fault: str, kind: type[GcpError], retryable: bool, unconfirmed: bool
) -> None:
    service.faults["customJobs.create"] = [fault]
    before = service.count("customJobs.create")
    with pytest.raises(kind) as caught:
        VertexApi(open_session(service)).create(job_request("two"))
    assert errors.is_unconfirmed(caught.value) == unconfirmed
    if fault != "refuse 409":  # it is searched, not repeated
        assert errors.is_retryable(caught.value) == retryable
    assert service.count("customJobs.create") == before + 1
    assert "injected" in str(caught.value)


@pytest.mark.service
def test_a_token_is_renewed_and_a_login_that_has_expired_is_an_error(
    service: VertexService,
) -> None:
    session = open_session(service)
    api = VertexApi(session)
    assert api.find_jobs("none") == []
    service.revoke_tokens()
    assert api.find_jobs("none") == []
    service.revoke_tokens()
    service.is_logged_in = False
    try:
        with pytest.raises(GcpCredentialsError, match="application-default login"):
            api.find_jobs("none")
    finally:
        service.is_logged_in = True
    assert api.find_jobs("none") == []


@pytest.mark.service
def test_requests_that_the_service_does_not_have_are_refused(service: VertexService) -> None:
    session = open_session(service)
    request = job_request("three")
    request["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["imageURI"] = "i"
    with pytest.raises(GcpRequestError, match='Unknown name "imageURI"'):
        VertexApi(session).create(request)
    with pytest.raises(GcpRequestError, match="the client refuses the request"):
        session.call("aiplatform", "projects.locations.customJobs.get", name="no-name")


@pytest.mark.service
def test_jobs_of_several_pages_are_found_oldest_first(
    service: VertexService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperplane.platforms.gcp.vertex._PAGE", 2)
    api = VertexApi(open_session(service))
    names = [api.create(job_request("many")) for _ in range(5)]
    assert api.find_jobs("many") == names
    assert list(api.list_active("many")) == names
    api.cancel(names[0])
    assert list(api.list_active("many")) == names[1:]
    gone = names[1].replace("customJobs/", "customJobs/9")
    assert list(api.read_jobs([names[0], gone])) == [names[0]]


@pytest.mark.service
def test_content_is_uploaded_once(service: VertexService) -> None:
    staging = GcsStaging(open_session(service), parse_staging("gs://flights/jobs"))
    before = service.count("objects.insert")
    keys = {staging.upload_content(b"\x00a\xff", ".py") for _ in range(3)}
    again = GcsStaging(open_session(service), parse_staging("gs://flights/jobs"))
    keys.add(again.upload_content(b"\x00a\xff", ".py"))
    [key] = keys
    assert service.count("objects.insert") == before + 1
    assert again.read(key) == b"\x00a\xff"
    with pytest.raises(GcpRequestError, match="404"):
        again.read("no such/object with % and ?.txt")
    again.put("a b/ö%?.txt", b"1")
    assert again.read("a b/ö%?.txt") == b"1"


@pytest.mark.service
def test_threads_share_a_session(service: VertexService) -> None:
    api, found = VertexApi(open_session(service)), []

    def find() -> None:
        found.append(api.find_jobs("none"))

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[]] * 8


def test_credentials_are_those_of_the_environment_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "of-this-process.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of-this-process")
    session = GcpSession(None, "europe-west4", {"HOME": str(tmp_path), "NO_GCE_CHECK": "true"})
    with pytest.raises(GcpCredentialsError, match="there are no credentials"):
        session.project()
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    login = {
        "type": "authorized_user", "client_id": "1", "client_secret": "2", "refresh_token": "3"
    }  # fmt: skip
    (folder / "application_default_credentials.json").write_text(json.dumps(login))
    with pytest.raises(GcpCredentialsError, match="set the option project"):
        session.project()
    environment = {"HOME": str(tmp_path), "GOOGLE_CLOUD_PROJECT": "of-the-shell"}
    assert GcpSession(None, "europe-west4", environment).project() == "of-the-shell"
    missing = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "gone.json")}
    with pytest.raises(GcpCredentialsError, match=r"gone\.json"):
        GcpSession(None, "europe-west4", missing).project()
    assert os.environ["GOOGLE_CLOUD_PROJECT"] == "of-this-process"


@pytest.mark.parametrize(
    ("message", "code", "memory", "lost"),
    [
        ("The replica workerpool0-0 exited with a non-zero status of 3. Termination reason: Error.",
         3, False, False),
        ("The replica workerpool0-0 exited with a non-zero status of 143.", -15, False, False),
        ("The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137.",
         -9, True, False),
        (vertex_service.OUT_OF_MEMORY, None, True, False),
        ("Internal error occurred for the current attempt", None, False, True),
        ("something else", None, False, False),
    ],
)  # fmt: skip
def test_how_a_container_ended(message: str, code: int | None, memory: bool, lost: bool) -> None:
    status = parse_job({"state": "JOB_STATE_FAILED", "error": {"message": message}})
    assert (status.exit_code, status.is_out_of_memory, status.is_lost) == (code, memory, lost)
    assert status.has_ended
    assert message in status.describe()
    cancelled = parse_job({"state": "JOB_STATE_CANCELLED", "error": {"message": message}})
    assert (cancelled.exit_code, cancelled.is_lost) == (None, False)


@pytest.mark.parametrize("text", ["garbage", 5, ["a"]])
def test_a_time_that_cannot_be_read_is_an_error_of_the_request(text: object) -> None:
    for field in ("startTime", "endTime"):
        with pytest.raises(GcpConnectionError, match=r"customJobs\.get\): .* is not a time"):
            parse_job({"state": "JOB_STATE_RUNNING", field: text})
    entry = {"receiveTimestamp": text, "textPayload": "a"}
    session = cast("Any", SimpleNamespace(project=str, call=lambda *_, **__: {"entries": [entry]}))
    with pytest.raises(GcpConnectionError, match=r"entries\.list\): .* is not a time"):
        read_page(session, VERTEX_LOGS, [LogPosition("7")], "")


def test_machines_have_the_memory_that_is_left_for_containers() -> None:
    # Of the 15 GiB of n1-standard-4, GKE documents 12.3 GiB as allocatable: 12.5 without eviction.
    machine = find_machine("n1-standard-4")
    assert machine == VertexMachine("n1-standard-4", 4, 15_360)
    assert machine.allocatable == 12_700
    assert choose_machine("n1", 4, 12_700, 0, None) == machine
    larger = choose_machine("n1", 4, 12_701, 0, None)
    assert larger is not None
    assert larger.name == "n1-highmem-4"
    assert choose_machine("e2", 33, 1, 0, None) is None
    assert choose_machine("n1", 1, 1, 3, "NVIDIA_TESLA_T4") == VertexMachine(
        "n1-highmem-2", 2, 13_312, 4, "NVIDIA_TESLA_T4"
    )
    two = choose_machine("g2", 1, 1, 2, None)
    assert two is not None
    assert two.name == "g2-standard-24"
    assert choose_machine("g2", 1, 1, 1, "NVIDIA_TESLA_T4") is None


def test_prices_are_those_of_the_page_or_unknown() -> None:
    machine = find_machine("n1-standard-4")
    assert machine is not None
    assert machine_price("us-central1", machine) == pytest.approx(0.21849885, abs=1e-7)
    with_gpu = machine._replace(gpus=2, gpu_type="NVIDIA_TESLA_T4")
    assert machine_price("us-central1", with_gpu) == pytest.approx(0.21849885 + 0.805, abs=1e-7)
    assert machine_price("us-central1", with_gpu._replace(gpu_type="NVIDIA_TESLA_P4")) is None
    assert machine_price(None, machine) is None


def test_the_filter_of_logs_is_short_enough() -> None:
    position = LogPosition("9" * 19, "2026-05-18T00:00:00.123456Z")
    assert len(build_filter(VERTEX_LOGS, [position] * VERTEX_LOGS.max_jobs)) < 20_000
