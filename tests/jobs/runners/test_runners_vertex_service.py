"""Jobs on a Vertex AI for tests: chunks, lost answers, refusals, lost jobs, and the check."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import google_service
import numpy as np
import pytest
import vertex_service
from job_cases import bash
from service_job_contract import ServiceJobContract, attempt_command, during, log_of
from services import until
from typer.testing import CliRunner
from vertex_service import VertexService

from hyperplane.cli import app
from hyperplane.cli.job_foreground import run_in_foreground
from hyperplane.jobs import Pipeline, Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners import registry, retry_time
from hyperplane.jobs.runners.vertex import vertex_process
from hyperplane.jobs.runners.vertex.requests import attempt_seconds
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.store.tables import STEPS
from hyperplane.platforms.gcp.errors import GcpRequestError

pytestmark = [pytest.mark.process, pytest.mark.service]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VertexService]:
    google_service.speed_up(monkeypatch, vertex_process.VertexProcess)
    folder = tmp_path / "vertex"
    folder.mkdir()
    with vertex_service.running(folder) as service:
        for name, text in vertex_service.variables(service).items():
            monkeypatch.setenv(name, text)
        yield service


class TestVertexJobs(ServiceJobContract):
    runner: ClassVar[str] = "vertex"
    title: ClassVar[str] = "Vertex AI"
    options = staticmethod(vertex_service.options)
    create: ClassVar[str] = "customJobs.create"
    name_field: ClassVar[str] = "displayName"
    creations: ClassVar[int] = 4
    reading_faults: ClassVar[dict[str, list[str]]] = {
        "customJobs.get": ["refuse 503", "lose", "refuse 429"],
        "entries.list": ["refuse 503", "lose", "refuse 429"],
    }
    cancelling_faults: ClassVar[dict[str, list[str]]] = {
        "customJobs.cancel": ["refuse 503", "lose"]
    }
    lost_machine: ClassVar[str] = "Internal error occurred for the current attempt"
    cost: ClassVar[str] = "e2-highmem-2; cost unknown: no price"
    wrong_option: ClassVar[tuple[str, str, str]] = (
        "staging", "gs://no-such-bucket", "expected an existing bucket"
    )  # fmt: skip

    @pytest.fixture(params=["refuse 429", "refuse 403 rateLimitExceeded"])
    def refusal(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def content(self, service: Any) -> dict[str, Any]:
        folder = service.buckets / "flights/jobs/content"
        return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}


run, create_runner = TestVertexJobs.run, TestVertexJobs.create_runner


@pytest.mark.slow
def test_each_chunk_is_a_job_and_knows_its_item(service: VertexService) -> None:
    count = "$HYPERPLANE_SHARD_INDEX/$HYPERPLANE_SHARD_COUNT"
    text = f'echo "$CHUNK_ID {count} $ITEM"'
    job, attempts = run(bash("years", text, foreach=("2013", "it's 2014", "2015")))
    assert job.status == DONE, job.reason
    logs = [log_of(job, attempt).strip() for attempt in sorted(attempts, key=lambda a: a.chunk)]
    assert logs == ["0 0/3 2013", "1 1/3 it's 2014", "2 2/3 2015"]
    labels = [body["labels"] for body in service.bodies("customJobs.create")]
    names = {each["hyperplane-attempt"] for each in labels}
    assert len(names) == len(labels) == 3
    assert {each["hyperplane-job"] for each in labels} == {job.id}
    # The files of the chunks are sent once.
    inserted = service.count("objects.insert")
    assert inserted == 3 + len(list((service.buckets / "flights/jobs/content").iterdir()))


@pytest.mark.slow
def test_many_jobs_are_listed_and_not_read_one_by_one(service: VertexService) -> None:
    job, attempts = run(bash("years", "sleep 1", chunks=8))
    assert job.status == DONE, job.reason
    assert len(attempts) == 8
    assert service.count("customJobs.list") > 0
    # At most once for each that has ended, and some that ended while others were listed.
    assert service.count("customJobs.get") <= 4 * 8


@pytest.mark.slow
def test_a_name_that_is_taken_is_that_of_an_earlier_request(service: VertexService) -> None:
    # Vertex AI documents no such answer for custom jobs; a proxy that repeats them may cause it.
    service.faults["customJobs.create"] = ["answer 409"]
    job, [attempt] = run(bash("one", "echo once"))
    assert (job.status, attempt.status) == (DONE, DONE)
    assert len(service.jobs) == 1


@pytest.mark.slow
def test_tokens_that_expire_are_renewed(service: VertexService) -> None:
    service.faults["customJobs.create"] = ["refuse 401"]
    job, [attempt] = run(bash("one", "true"))
    assert (job.status, attempt.status) == (DONE, DONE)
    assert len(service.jobs) == 1


def test_an_expired_login_fails_an_attempt_with_advice_before_anything_runs(
    service: VertexService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_time, "SUBMIT_SECONDS", 0.1)
    resolved = registry.resolve_options("vertex", vertex_service.options())
    job = new_job(
        Pipeline.from_steps("p", [bash("one", "true")]), runner="vertex", max_retries=0,
        runner_options=resolved,
    )  # fmt: skip
    service.is_logged_in = False
    store = open_store()
    ended = asyncio.run(run_in_foreground(store, job, resolved, quiet=True))
    [attempt] = store.attempts(job.id)
    assert ended.status == FAILED
    assert "the credentials for Google Cloud cannot be used" in attempt.reason
    assert "gcloud auth application-default login" in attempt.reason
    assert service.jobs == {}


@pytest.mark.slow
def test_six_files_on_two_machines_give_the_local_result(
    service: VertexService, tmp_path: Path
) -> None:
    names = [f"file-{number}.csv" for number in range(1, 7)]
    (tmp_path / "share.py").write_text(
        "import argparse, os\n"
        "import numpy as np\n"
        "parser = argparse.ArgumentParser()\n"
        "for name in ('--n_machines', '--idx'):\n"
        "    parser.add_argument(name, type=int)\n"
        "given = parser.parse_args([f'--n_machines={os.environ[\"HYPERPLANE_SHARD_COUNT\"]}',\n"
        "    f'--idx={os.environ[\"CHUNK_ID\"]}'])\n"
        "files = [f'file-{number}.csv' for number in range(1, 7)]\n"
        "print(*np.array_split(files, given.n_machines)[given.idx])\n"
    )
    step = Step(name="share", kind="python", path="share.py", chunks=2)
    job, attempts = run(step, root=tmp_path)
    assert job.status == DONE, job.reason
    logs = [log_of(job, attempt).strip() for attempt in sorted(attempts, key=lambda a: a.chunk)]
    assert logs == [" ".join(part) for part in np.array_split(names, 2)]


@pytest.mark.slow
def test_a_log_of_several_pages_is_complete_and_in_order(service: VertexService) -> None:
    service.page = 7
    job, [attempt] = run(bash("one", "for each in $(seq 50); do echo $each; sleep 0.01; done"))
    assert job.status == DONE
    assert log_of(job, attempt).split() == [str(number) for number in range(1, 51)]


def test_a_region_without_machines_is_a_failure_that_can_be_retried(
    service: VertexService,
) -> None:
    reason = "Resources are insufficient in region: europe-west4. Try a different region."
    thread = during(service, lambda name: service.interrupt(name, reason))
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert (job.status, attempt.exit_code, attempt.fault) == (FAILED, 75, "passing")
    assert "Resources are insufficient" in log_of(job, attempt)


def test_a_job_that_another_user_cancels_is_a_failed_attempt(service: VertexService) -> None:
    def cancel(name: str) -> None:
        service.jobs[name].cancelled = True
        service.interrupt(name, "")

    thread = during(service, cancel)
    job, [attempt] = run(bash("one", "sleep 600"))
    thread.join()
    assert job.status == FAILED
    assert "Vertex AI ended the job: CANCELLED (CANCELED)" in log_of(job, attempt)
    assert attempt.fault != "memory"


@pytest.mark.slow
def test_a_larger_machine_is_used_after_a_lack_of_memory(
    service: VertexService, tmp_path: Path
) -> None:
    message = vertex_service.OUT_OF_MEMORY
    thread = during(service, lambda name: service.interrupt(name, message), tmp_path / "once")
    step = bash(
        "one", f"mkdir {tmp_path}/once && sleep 600; echo again", retries=1, more_memory=2,
        resources=Resources(cores=1, ram_gb=2),
    )  # fmt: skip
    job, attempts = run(step)
    thread.join()
    assert job.status == DONE, job.reason
    assert [(attempt.fault, attempt.exit_code) for attempt in attempts] == [("memory", -9), ("", 0)]
    assert "request more with resources.ram_gb, or set more_memory" in log_of(job, attempts[0])
    machines = [
        body["jobSpec"]["workerPoolSpecs"][0]["machineSpec"]["machineType"]
        for body in service.bodies("customJobs.create")
    ]
    assert machines == ["e2-highmem-2", "e2-highmem-4"]


PROGRAM = """
import argparse, json, os, time
from trainer import helper
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--job-dir")
given = parser.parse_args()
config = json.loads(os.environ.get("TF_CONFIG") or "{}")
task = config.get("task", {})
print(helper.WORD, given.steps, given.job_dir, task, sorted(config.get("cluster", {})), flush=True)
if task.get("type") == os.environ.get("FAILS", "none"):
    raise SystemExit(3)
if signs := os.environ.get("SIGNS"):
    open(f"{signs}/{task['type']}-{task['index']}", "w").close()
    while task["type"] == "chief" and len(os.listdir(signs)) < int(os.environ["MACHINES"]):
        time.sleep(0.05)
time.sleep(600 if task.get("type") in ("ps", os.environ.get("WAITS", "none")) else 0.5)
"""


def training(root: Path, **fields: Any) -> Step:
    package = root / "code" / "trainer"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("WORD = 'imported'\n")
    (package / "task.py").write_text(PROGRAM)
    return Step(
        name="fit", kind="train", module_name="trainer.task", package_path="code/trainer",
        job_dir="gs://flights/fit", args=("--steps", "7"), **fields,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["file", "folder"])
def test_a_training_program_runs_with_its_package(
    service: VertexService, tmp_path: Path, stage: str
) -> None:
    job, [attempt] = run(training(tmp_path), root=tmp_path, stage=stage)
    assert job.status == DONE, log_of(job, attempt)
    assert log_of(job, attempt).strip() == "imported 7 gs://flights/fit {} []"


@pytest.mark.slow
def test_a_command_with_the_options_of_gcloud_runs_a_training_program(
    service: VertexService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = [
        "train", "--module-name", "trainer.task", "--package-path", "code/trainer/", "--job-dir",
        "gs://flights/fit", "--runner", "vertex",
    ]  # fmt: skip
    for name, text in vertex_service.options(stage="folder").items():
        words += ["--runner-option", f"{name}={text}"]
    result = CliRunner().invoke(app, [*words, "--", "--steps", "7"])
    assert result.exit_code == 0, result.output
    [created] = service.jobs.values()
    first, *_, last = [line.text for line in created.lines]
    assert first == "imported 7 gs://flights/fit {} []"
    assert last.startswith("hyperplane-usage:")
    [body] = service.bodies("customJobs.create")
    assert len(body["jobSpec"]["workerPoolSpecs"]) == 1


@pytest.mark.slow
def test_a_command_with_a_file_of_gcloud_has_its_machines(
    service: VertexService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "labels: {team: flights}\n"
        "trainingInput:\n"
        "  {scaleTier: CUSTOM, masterType: standard, workerType: n1-standard-4, workerCount: 1,\n"
        "   jobDir: 'gs://flights/fit', args: [--steps, '7'], scheduling: {maxRunningTime: 90s}}\n"
    )
    words = [
        "train", "--module-name", "trainer.task", "--package-path", "code/trainer/", "--runner",
        "vertex", "--config", "config.yaml",
    ]  # fmt: skip
    for name, text in vertex_service.options().items():
        words += ["--runner-option", f"{name}={text}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    [body] = service.bodies("customJobs.create")
    assert body["labels"]["team"] == "flights"
    assert body["jobSpec"]["scheduling"]["timeout"] == f"{attempt_seconds(90)}s"
    pools = body["jobSpec"]["workerPoolSpecs"]
    assert [pool["replicaCount"] for pool in pools] == ["1", "1"]
    assert {pool["machineSpec"]["machineType"] for pool in pools} == {"n1-standard-4"}
    [created] = service.jobs.values()
    primary = [line.text for line in created.lines if line.replica == "workerpool0-0"]
    assert primary[0].startswith("imported 7 gs://flights/fit {'type': 'chief'")


@pytest.mark.slow
def test_a_distributed_program_has_the_machines_of_its_pools(
    service: VertexService, tmp_path: Path
) -> None:
    # The first machine ends the others, which have printed their lines by then.
    signs = tmp_path / "signs"
    signs.mkdir()
    env = {"SIGNS": str(signs), "MACHINES": "4"}
    step = training(tmp_path, worker_count=2, evaluator_count=1, env=env)
    job, [attempt] = run(step, root=tmp_path)
    log = log_of(job, attempt)
    assert job.status == DONE, log
    assert sorted(log.strip().splitlines()) == [
        f"{prefix}imported 7 gs://flights/fit {{'type': '{kind}', 'index': {index}}} "
        "['chief', 'worker']"
        for prefix, kind, index in (
            ("", "chief", 0), ("workerpool1-0 | ", "worker", 0), ("workerpool1-1 | ", "worker", 1),
            ("workerpool3-0 | ", "evaluator", 0),
        )
    ]  # fmt: skip
    [body] = service.bodies("customJobs.create")
    pools = body["jobSpec"]["workerPoolSpecs"]
    assert [pool.get("replicaCount") for pool in pools] == ["1", "2", None, "1"]
    [record] = open_store().runs(job.machine, job_id=job.id, kind=STEPS)
    assert record.workers[0].peak > 0


@pytest.mark.slow
def test_a_machine_that_fails_ends_the_others(service: VertexService, tmp_path: Path) -> None:
    env = {"FAILS": "worker", "WAITS": "chief"}
    step = training(tmp_path, worker_count=1, parameter_server_count=1, env=env)
    job, [attempt] = run(step, root=tmp_path)
    assert (job.status, attempt.exit_code) == (FAILED, 3), log_of(job, attempt)
    [created] = service.jobs.values()
    assert all(process.poll() is not None for process in created.others.values())


def test_a_job_that_is_created_during_a_cancellation_is_stored_and_ended(
    service: VertexService, tmp_path: Path
) -> None:
    service.waiting_for = "machines"
    service.faults["customJobs.create"] = ["slow"]
    command = attempt_command(tmp_path)

    async def work() -> None:
        runner = create_runner()
        start = asyncio.ensure_future(runner.start(command, bash("one", "true"), 1.0))
        await asyncio.to_thread(until, lambda: service.count("customJobs.create") > 0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await runner.reattach(command).end(1.0)
        await runner.close()

    asyncio.run(work())
    assert len(service.jobs) == 1
    assert service.running() == []


@pytest.mark.parametrize("at", [1, 2])
def test_a_full_disk_creates_no_second_job(
    service: VertexService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    command = attempt_command(tmp_path, "echo", "once")
    written: list[str] = []
    write = VertexJobId.write

    def fail(job_id: VertexJobId, command: AttemptCommand) -> None:
        written.append(job_id.id)
        if len(written) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(job_id, command)

    monkeypatch.setattr(VertexJobId, "write", fail)

    async def work() -> int | None:
        runner = create_runner()
        try:
            process = await runner.start(command, bash("one", "true"), 1.0)
            code: int | None = await process.wait()
            return code
        finally:
            await runner.close()

    if at == 1:  # before the request
        with pytest.raises(OSError, match="No space left"):
            asyncio.run(work())
        assert service.jobs == {}
    else:  # after it: the job is found by its display name
        assert asyncio.run(work()) == 0
        assert service.count("customJobs.create") == 1


def test_the_next_supervisor_copies_the_log_anew(service: VertexService, tmp_path: Path) -> None:
    text = f"echo first; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo second"
    command = attempt_command(tmp_path, "bash", "-c", text)

    async def work(*, is_last: bool) -> None:
        runner = create_runner()
        if is_last:
            process = runner.reattach(command)
            (tmp_path / "go").touch()
            assert await process.wait() == 0
        else:
            process = await runner.start(command, bash("one", "true"), 1.0)
            await process.wait_until_running()
            log = command.file(".log")
            await asyncio.to_thread(until, lambda: "first" in log.read_text())
        await runner.close()

    asyncio.run(work(is_last=False))
    asyncio.run(work(is_last=True))
    assert command.file(".log").read_text().split() == ["first", "second"]


def test_the_check_reports_all_faults_at_once(service: VertexService) -> None:
    image, account = f"{vertex_service.REGISTRY}:1", vertex_service.ACCOUNT
    assert create_runner(image=image, service_account=account).unavailable_reason() == ""
    gone = account.replace("steps", "gone")
    service.missing = {"aiplatform.customJobs.create", "logging.logEntries.list"}
    reason = create_runner(
        image=image.replace(":1", ":2"), staging="gs://no-such-bucket/x", service_account=gone
    ).unavailable_reason()
    assert (
        "project = 'flights-test': expected a project in which you have "
        "aiplatform.customJobs.create, logging.logEntries.list"
    ) in reason
    assert "staging = 'gs://no-such-bucket/x': expected an existing bucket" in reason
    assert f"service_account = '{gone}': expected an existing service account" in reason
    assert "expected an image of the registry" in reason
    assert len(reason.splitlines()) == 4
    service.missing = {"storage.objects.create", "iam.serviceAccounts.actAs"}
    reason = create_runner(service_account=account).unavailable_reason()
    assert "expected a bucket in which you have storage.objects.create" in reason
    assert "expected a service account for which you have iam.serviceAccounts.actAs" in reason


def test_a_missing_bucket_is_created_by_the_first_upload_if_asked(service: VertexService) -> None:
    missing = {"staging": "gs://new-bucket/x", "create_bucket": True}
    service.missing = {"storage.buckets.create"}
    reason = create_runner(**missing).unavailable_reason()
    assert reason.startswith("create_bucket = true: expected a project in which you have storage")
    assert "the credentials are those of user@flights-test.iam.gserviceaccount.com" in reason
    service.missing = set()
    runner = create_runner(**missing)
    assert runner.unavailable_reason() == ""
    assert service.count("buckets.insert") == 0
    staging = runner._staging(runner._session())
    # Two attempts that start together: another request has created the bucket before the second.
    service.faults["buckets.insert"] = ["answer 409"]
    key = staging.upload_content(b"1", ".py")
    assert (service.buckets / "new-bucket" / key).read_bytes() == b"1"
    [body] = service.bodies("buckets.insert")
    assert (body["name"], body["location"]) == ("new-bucket", "europe-west4")
    assert body["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    other = create_runner(staging="gs://other-bucket/x")
    assert "or set the option create_bucket=true" in other.unavailable_reason()
    with pytest.raises(GcpRequestError):
        other._staging(other._session()).put("x", b"1")


def test_the_check_explains_projects_and_regions(
    service: VertexService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.faults["customJobs.list"] = ["refuse 403 SERVICE_DISABLED"]
    reason = create_runner().unavailable_reason()
    assert "expected a project that uses Vertex AI; enable it with: gcloud services" in reason
    reason = create_runner(project="no-such-one").unavailable_reason()
    assert "project = 'no-such-one': expected a project whose jobs you may list" in reason
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM", "http://127.0.0.1:9/")
    reason = create_runner(region="no-region1").unavailable_reason()
    assert "region = 'no-region1': expected a region of Vertex AI" in reason


def test_the_check_needs_credentials(
    service: VertexService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    reason = create_runner().unavailable_reason()
    assert reason.startswith("credentials: the credentials for Google Cloud cannot be used")
    assert "there are no credentials" in reason
