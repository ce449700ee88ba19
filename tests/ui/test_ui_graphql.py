"""GraphQL queries of published programs, answered by a server in a separate process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from graphql_requests import CREATE, VARIABLES, address_of, ask, create, error_of, errors_of, post
from job_cases import LIMIT, until_exists, wait_until
from scale import scaled
from slack_server import serve
from ui_server import UiServer

from hyperplane import notebook_common as nc
from hyperplane.errors import QueryFailed
from hyperplane.jobs import JobHandle
from hyperplane.jobs.graphql_server import find_server
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = [pytest.mark.process, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "programs" / "send_batch.py"


@pytest.fixture(scope="module")
def repository(place: Path) -> Path:
    """A repository with programs, in which the server is started."""
    folder = place / "repository"
    (folder / "batch").mkdir(parents=True)
    (folder / "batch" / "run.sh").write_text('cd batch && echo "file $FILE_ID of $PWD"\n')
    (folder / "load.sh").write_text('echo "loading $HYPERPLANE_JOB_PARAMETER_TABLE"\n')
    (folder / "fail.sh").write_text("echo 'no such table'; exit 3\n")
    (folder / "wait.sh").write_text(until_exists(folder / "go") + "\n")
    (folder / "address.sh").write_text(
        f"{sys.executable} -c \"import os; print(os.environ['HYPERPLANE_GRAPHQL_URL'])\"\n"
        'echo "the token is $HYPERPLANE_GRAPHQL_TOKEN"\n'
    )
    (folder / "nested.py").write_text(
        "import asyncio, os\n"
        "from hyperplane import notebook_common as nc\n"
        'query = \'mutation { createPipelineJob(data: {pipelineYamlPath: "load.sh", jobName: '
        '"nested"}) { id } }\'\n'
        "print(asyncio.run(nc.graphql_operation(query))[0]['createPipelineJob']['id'])\n"
    )
    (folder / "steps.yaml").write_text(
        "pipeline:\n  name: two-steps\n  tasks:\n"
        "  - {name: one, type: bash script, bash_script_path: load.sh}\n"
        "  - {name: two, type: bash script, bash_script_path: load.sh}\n"
    )
    return folder


@pytest.fixture(scope="module")
def server(start_server: Callable[..., UiServer], repository: Path) -> UiServer:
    """A server without actions on its page."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HYPERPLANE_GRAPHQL_URL", "HYPERPLANE_GRAPHQL_TOKEN"):
            patch.delenv(name, raising=False)
        return start_server(folder=repository)


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPERPLANE_GRAPHQL_URL", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_the_mutation_of_published_programs_submits_a_job(server: UiServer) -> None:
    parameters = {"create": [{"key": "table", "value": "orders"}]}
    job = create(server, parameters=parameters, customMessage=None)
    assert (job["status"], job["statusReason"], job["schedule"]) == ("pending", None, "immediate")
    assert (job["jobName"], job["jobType"], job["pipelineYamlPath"]) == (
        "orders-eu", "basic", "load.sh",
    )  # fmt: skip
    assert job["parameters"] == [{"key": "table", "value": "orders"}]
    assert (job["timeout"], job["activeTimeout"], job["maxRetries"]) == (14400, 14400, 0)
    assert job["hyperplaneUserEmail"] == "ada@example.org"
    assert job["startTime"].endswith("Z")
    assert datetime.fromisoformat(job["startTime"]).timestamp() > 1e9
    handle = JobHandle(job["id"])
    assert handle.wait(LIMIT) == DONE
    assert "loading orders" in handle.logs()
    query = (
        "query ($id: String!) { pipelineJob(where: {id: $id}) { status completionTime duration } }"
    )
    found = ask(server, query, {"id": job["id"]})["pipelineJob"]
    assert found["status"] == DONE
    assert found["completionTime"] >= job["startTime"]
    assert found["duration"] > 0


def test_the_notebook_call_of_older_programs_finds_the_server(server: UiServer) -> None:
    query = """mutation { createPipelineJob(data: {
        jobType: "basic", timeout: 3600, activeTimeout: 3600, maxRetries: 2,
        pipelineYamlPath: "steps.yaml", parameters: {create: [{key: "table", value: "items"}]}
    }) { id status } }"""
    results = asyncio.run(nc.graphql_operation([query, query]))
    created = [each["createPipelineJob"] for each in results]
    assert [each["status"] for each in created] == ["pending", "pending"]
    for each in created:
        handle = JobHandle(each["id"])
        assert handle.wait(LIMIT) == DONE
        assert handle.logs("two").strip().endswith("loading items")
    with pytest.raises(QueryFailed, match=r"pipelineYamlPath = '.*absent\.sh': expected an exist"):
        asyncio.run(nc.graphql_operation(query.replace("steps.yaml", "absent.sh")))


def test_the_working_folder_of_the_platform_is_that_of_the_server(
    server: UiServer, repository: Path
) -> None:
    parameters = {"create": {"key": "FILE_ID", "value": "a1"}}  # one value counts as a list
    for working, path in {
        "/tmp/git/monorepo/": "batch/run.sh",
        "/tmp/git/monorepo": "/tmp/git/monorepo/batch/run.sh",
        str(repository): "batch/run.sh",
        "": str(repository / "batch" / "run.sh"),
    }.items():
        job = create(server, workingDir=working, yamlPath=path, parameters=parameters)
        handle = JobHandle(job["id"])
        assert handle.wait(LIMIT) == DONE, handle.logs()
        assert f"file a1 of {repository / 'batch'}" in handle.logs()
    inner = create(server, workingDir="batch", yamlPath="load.sh")
    assert JobHandle(inner["id"]).wait(LIMIT) == DONE
    assert open_store().get(inner["id"]).pipeline.working_dir == "batch"
    message = error_of(server, CREATE, {**VARIABLES, "workingDir": "absent"})
    assert "workingDir = 'absent': expected an existing folder" in message


def test_jobs_are_found_counted_and_cancelled(server: UiServer, repository: Path) -> None:
    (repository / "go").unlink(missing_ok=True)
    ids = [create(server, jobName=f"held-{n}", yamlPath="wait.sh")["id"] for n in range(3)]
    held = '{jobName: {startsWith: "HELD-", mode: insensitive}}'
    wait_until(lambda: {JobHandle(each).status for each in ids} == {IN_PROGRESS})
    listed = ask(
        server,
        f"""query ($take: Int!) {{
            pipelineJobs(where: {held}, orderBy: {{jobName: asc}}, take: $take, skip: 1) {{
                id jobName status }}
            all: countJobs(whereOveride: {held})
            started: countJobs(whereOveride: {{AND: [{held}, {{status: {{in: ["in progress"]}}}}]}})
            others: countJobs(whereOveride: {{NOT: [{held}]}})
            every: countJobs
            busy: getJobStat(stat: COUNT_IN_PROGRESS, timeFrame: T_10M)
            busyOnly: getJobStat(stat: COUNT_ALL, timeFrame: TOTAL, status: IN_PROGRESS)
            none: getJobStat(stat: COUNT_DONE, timeFrame: TOTAL, status: IN_PROGRESS)
        }}""",
        {"take": 1},
    )
    assert listed["pipelineJobs"] == [{"id": ids[1], "jobName": "held-1", "status": IN_PROGRESS}]
    assert (listed["all"], listed["started"]) == (3, 3)
    assert listed["every"] == listed["all"] + listed["others"] == len(open_store().find())
    assert (listed["busy"], listed["busyOnly"], listed["none"]) == (3, 3, 0)
    where = """query countJobs($whereClause: PipelineJobWhereInput!) {
        countJobs(whereOveride: $whereClause) }"""
    clause = {"AND": [{"jobName": {"startsWith": "held"}}, {"status": {"notIn": ["done"]}},
                      {"jobType": {"equals": "basic"}}, {"schedule": {"equals": "immediate"}},
                      {"startTime": {"gte": "2026-01-01T00:00:00Z"}}]}  # fmt: skip
    assert ask(server, where, {"whereClause": clause}) == {"countJobs": 3}
    one = """mutation ($id: String!) { updatePipelineJob(where: {id: $id},
        data: {status: {set: "cancelled"}}) { id status } }"""
    assert ask(server, one, {"id": ids[0]})["updatePipelineJob"]["status"] == "cancelled"
    assert JobHandle(ids[0]).wait(LIMIT) == "cancelled"
    assert "with GraphQL" in open_store().get(ids[0]).reason
    many = f"""mutation {{ updateManyPipelineJob(where: {held},
        data: {{status: {{set: "cancelled"}}}}) {{ count }} }}"""
    assert ask(server, many) == {"updateManyPipelineJob": {"count": 2}}
    assert [JobHandle(each).wait(LIMIT) for each in ids[1:]] == ["cancelled", "cancelled"]
    assert ask(server, many) == {"updateManyPipelineJob": {"count": 0}}
    stat = "{ getJobStat(stat: COUNT_CANCELLED, timeFrame: T_1H) }"
    assert ask(server, stat)["getJobStat"] >= 3


def test_mass_cancellation_needs_a_condition_and_jobs_are_only_cancelled(server: UiServer) -> None:
    data = 'data: {status: {set: "cancelled"}}'
    for where in ("{}", '{hyperplaneUserEmail: {equals: "ada@example.org"}}'):
        message = error_of(
            server, f"mutation {{ updateManyPipelineJob(where: {where}, {data}) {{ count }} }}"
        )
        assert "where = no condition: expected at least one" in message
    other = 'mutation { updatePipelineJob(where: {id: "x"}, data: {status: {set: "done"}}) { id } }'
    assert "data.status.set = 'done': expected 'cancelled'" in error_of(server, other)
    absent = f'mutation {{ updatePipelineJob(where: {{id: "absent"}}, {data}) {{ id }} }}'
    assert "no such job" in error_of(server, absent)
    assert ask(server, '{ pipelineJob(where: {id: "absent"}) { id } }') == {"pipelineJob": None}


def test_every_fault_of_a_submission_is_reported_and_nothing_is_submitted(server: UiServer) -> None:
    before = len(open_store().find())
    errors = errors_of(
        server,
        CREATE,
        {
            **VARIABLES, "jobName": "no spaces", "timeout": 0, "maxRetries": 11, "podSpec": "{}",
            "imageHash": "sha256:1", "schedule": "0 6 * * *", "yamlPath": "absent.yaml",
            "hyperplaneSecrets": [{"id": "1"}], "cloudSqlProxyEnabled": True, "commitId": "",
            "parameters": {"create": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]},
            "notificationsEnabled": True, "notificationTargetIds": ["684c580b"],
            "customMessage": "x" * 1001,
        },
    )  # fmt: skip
    [error] = errors
    assert error["path"] == ["createPipelineJobWithAlerting"]
    assert "nothing was submitted" in error["message"]
    assert error["extensions"]["error"] == "RequestError"
    faults = {each["argument"]: each for each in error["extensions"]["faults"]}
    assert faults.keys() == {
        "podSpec", "imageHash", "hyperplaneSecrets", "cloudSqlProxyEnabled", "schedule",
        "parameters['a']", "notificationTargetIds", "pipelineYamlPath", "jobName", "timeout",
        "maxRetries", "customMessage",
    }  # fmt: skip
    assert "kubernetes" in faults["podSpec"]["advice"]
    assert faults["timeout"]["given"] == "0"
    assert len(open_store().find()) == before


def test_a_commit_must_be_checked_out_and_another_branch_is_a_warning(
    server: UiServer, repository: Path
) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(repository), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    asked = {**VARIABLES, "commitId": "0123abc"}
    assert "expected a commit of a git repository; git finds none in" in error_of(
        server, CREATE, asked
    )
    for odd in ("--upload-pack=x", "HEAD", "\0"):
        assert "commitId = " in error_of(server, CREATE, {**VARIABLES, "commitId": odd})
    git("init", "-q", "-b", "trunk")
    git("commit", "-q", "--allow-empty", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert f"the commit that is checked out, {commit}" in error_of(server, CREATE, asked)
    job = create(server, commitId=commit[:8], branchName="trunk")
    assert (job["commitId"], job["branchNameOrCommit"]) == (commit[:8], commit[:8])
    document = post(server, CREATE, {**VARIABLES, "branchName": "example-batch-job"}).json()
    [warning] = document["extensions"]["warnings"]
    assert "branchName is 'example-batch-job'" in warning
    assert "the branch 'trunk'" in warning
    with pytest.warns(UserWarning, match="the branch 'trunk'"):
        asyncio.run(
            nc.graphql_operation(
                'mutation { createPipelineJob(data: {pipelineYamlPath: "load.sh", '
                'branchName: "main"}) { id } }'
            )
        )


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    slack, end = serve()
    monkeypatch.setenv("WEBHOOK_URL", f"{slack.url}/hook")
    yield slack
    end()


def test_alerts_of_failed_jobs_go_to_the_targets_of_the_submission(
    start_server: Callable[..., UiServer], repository: Path, webhook: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__NOTIFY", '["webhook"]')
    server = start_server(folder=repository)
    quiet = create(server, jobName="quiet", yamlPath="fail.sh", notificationsEnabled=False)
    loud = create(server, jobName="loud", yamlPath="fail.sh", notificationsEnabled=True)
    named = create(
        server, jobName="named", yamlPath="fail.sh", notificationsEnabled=True,
        notificationTargetIds=["webhook"], customMessage="[prod], orders & <items>",
    )  # fmt: skip
    assert named["notificationTargets"] == [{"notificationTarget": {"email": None}}]
    for job in (quiet, loud, named):
        assert JobHandle(job["id"]).wait(LIMIT) == FAILED
        found = ask(server, f'{{ pipelineJob(where: {{id: "{job["id"]}"}}) {{ statusReason }} }}')
        assert "exit code 3" in found["pipelineJob"]["statusReason"]
    wait_until(lambda: len(webhook.documents) == 2)
    texts = [each["text"] for each in webhook.documents]
    assert sorted(name for name in ("quiet", "loud", "named") for text in texts
                  if f"Job *{name}* failed" in text) == ["loud", "named"]  # fmt: skip
    assert all("no such table" in text for text in texts)
    of_message = [text for text in texts if "message  [prod], orders &amp; &lt;items&gt;" in text]
    assert [text.split()[1] for text in of_message] == ["*named*"]
    server.end()


def test_without_configured_targets_an_alert_is_a_fault(server: UiServer) -> None:
    message = error_of(server, CREATE, {**VARIABLES, "notificationsEnabled": True})
    assert "notificationTargetIds is not set" in message
    assert "hyperplane.jobs.notify" in message


def test_steps_find_the_server_and_their_logs_do_not_show_its_token(
    server: UiServer, repository: Path
) -> None:
    token = address_of(server)["token"]
    job = create(server, yamlPath="address.sh")
    handle = JobHandle(job["id"])
    assert handle.wait(LIMIT) == DONE
    assert f"@127.0.0.1:{server.port}/graphql" in handle.logs()
    assert "the token is ****" in handle.logs()
    for file in open_store().get(job["id"]).folder_path.rglob("*"):
        assert not file.is_file() or token not in file.read_text(errors="replace")
    outer = create(server, yamlPath="nested.py", jobName="outer")
    handle = JobHandle(outer["id"])
    assert handle.wait(LIMIT) == DONE, handle.logs()
    inner = JobHandle(handle.logs().split()[-1])
    assert inner.wait(LIMIT) == DONE
    assert open_store().get(inner.id).name == "nested"


def test_the_file_is_private_and_removed_with_the_server(
    start_server: Callable[..., UiServer], repository: Path, server: UiServer
) -> None:
    newest = start_server(folder=repository)
    assert newest.graphql_file != server.graphql_file
    assert newest.graphql_file.stat().st_mode & 0o777 == 0o600
    document = address_of(newest)
    assert document["port"] == newest.port
    assert document["token"] != address_of(server)["token"]
    assert find_server().port == newest.port
    assert ask(newest, "{ countJobs }")["countJobs"] >= 0
    code, out, err = newest.end()
    assert (code, err) == (0, "")
    assert document["token"] not in out
    assert not newest.graphql_file.exists()
    assert find_server().port == server.port


JOBS, AT_MOST = scaled(30, 1_000), scaled(10, 100)


@pytest.mark.timeout(1_700)
def test_a_program_that_sends_many_jobs_runs_unchanged(server: UiServer, repository: Path) -> None:
    began = time.time()  # a job of an earlier test may end now
    completed = subprocess.run(
        [sys.executable, str(PROGRAM), str(JOBS), str(AT_MOST), "0.2"],
        env={**os.environ, "HYPERPLANE_GRAPHQL_URL": address_of(server)["url"]},
        capture_output=True, text=True, timeout=1_600, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stdout + completed.stderr
    result = json.loads(completed.stdout)
    assert result["sent"] == JOBS
    assert result["most"] <= AT_MOST
    wait_until(lambda: len(open_store().find(statuses=[DONE], since=began)) == JOBS)
    assert ask(server, "{ getJobStat(stat: COUNT_PENDING, timeFrame: TOTAL) }")["getJobStat"] == 0
    logs = [*open_store().get(open_store().find(limit=1)[0].id).folder_path.rglob("*.log")]
    assert any(f"of {repository / 'batch'}" in log.read_text() for log in logs)


def test_programs_send_at_the_same_time(server: UiServer) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = [*pool.map(lambda number: create(server, jobName=f"parallel-{number}"), range(24))]
    assert len({each["id"] for each in jobs}) == 24
    assert [JobHandle(each["id"]).wait(LIMIT) for each in jobs] == [DONE] * 24
    numbers = [open_store().get(each["id"]).number for each in jobs]
    assert len(set(numbers)) == 24


def test_requests_of_the_published_library_need_no_header(server: UiServer) -> None:
    url = address_of(server)["url"]
    response = requests.post(url, json={"query": "{ countJobs }"}, timeout=60)
    assert response.status_code == 200
    assert response.json()["data"]["countJobs"] >= 0
