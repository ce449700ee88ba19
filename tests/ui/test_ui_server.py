"""The page of real jobs and clusters, from a server in a separate process."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_cases import bash, submit_job, until_exists, wait_until
from ui_server import LIMIT, UiServer, read

import hyperplane
from hyperplane.clusters import records
from hyperplane.jobs.store.job_records import IN_PROGRESS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NASTY = "<script>alert('1')</script>&\"><b onload=x>"


@pytest.fixture
def cluster() -> Iterator[Any]:
    client, started = hyperplane.initialize_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", name="flights"
    )
    assert sum(client.gather(client.map(abs, range(100), key="absolute"))) == 4950
    yield started
    client.close()
    started.close()


def test_a_job_that_fails_is_shown_live(server: UiServer, tmp_path: Path) -> None:
    go = tmp_path / "go"
    lines = f"echo 'loaded {NASTY[:17]}'; {until_exists(go)}; echo the-end; exit 3"
    job = submit_job(bash("load", "true"), bash(NASTY, lines), parameters={"x": NASTY})
    path = f"/jobs/{job.id}"
    wait_until(lambda: "loaded <script>" in server.get(path).text)
    page = server.get(path)
    assert page.facts["status"] == IN_PROGRESS
    content = page.root.find(".//*[@id='content']")
    assert float(content.get("data-seconds")) > 0
    assert content.get("data-state").endswith(": in progress")
    part = server.request(path, x_hyperplane_content="other")
    assert part.text.startswith('<div id="content"')
    go.touch()
    job.wait(170)

    def read_ended() -> Any:
        return read(server.request(path, x_hyperplane_content="other").text)

    wait_until(lambda: "the-end" in read_ended().text)
    ended = read_ended()
    assert ended.facts["status"] == "failed"
    assert ended.facts["parameter"] == f"x = {NASTY}"
    assert ended.root.get("data-seconds") == "0"
    assert "exit code 3" in ended.text
    same = server.request(path, x_hyperplane_content=ended.root.get("data-digest"))
    assert (same.code, same.text) == (204, "")
    listed = server.get("/jobs", status="failed")
    assert job.id[:8] in listed.text
    assert server.get("/").text.count(job.id[:8]) == 1
    report = server.request(f"{path}/report")
    assert "the-end" in read(report.text).text
    assert server.get("/jobs/latest").title == page.title


def test_jobs_are_cancelled_only_with_actions(
    server: UiServer, acting_server: UiServer, tmp_path: Path
) -> None:
    job = submit_job(bash("wait", until_exists(tmp_path / "never")))
    path = f"/jobs/{job.id}"
    wait_until(lambda: server.get(path).facts["status"] == IN_PROGRESS)
    assert server.get(path).root.find(".//form") is None
    refused = server.post(f"{path}/cancel")
    assert refused.code == 403
    assert "--allow-actions" in refused.text
    assert server.get(path).facts["status"] == IN_PROGRESS
    assert acting_server.get(path).root.find(".//form").get("action") == f"{path}/cancel"
    response = acting_server.post(f"{path}/cancel")
    assert (response.code, response.headers["location"]) == (303, path)
    assert job.wait(170) == "cancelled"
    facts = server.get(path).facts
    assert facts["status"] == "cancelled"
    assert "with hyperplane ui" in facts["reason"]
    ended = acting_server.post(f"{path}/cancel")
    assert (ended.code, "already cancelled" in ended.text) == (409, True)


def test_a_cluster_is_shown_and_stopped_only_with_actions(
    server: UiServer, acting_server: UiServer, cluster: Any
) -> None:
    path = "/clusters/local/flights"
    listed = server.get("/clusters")
    assert listed.links["flights"] == path
    assert listed.links["dashboard"] == cluster.dashboard_link
    wait_until(lambda: "absolute" in server.get(path).text)
    page = server.get(path)
    assert page.facts["planned"] == "2 worker processes, 2 threads, 1 GB"
    assert page.facts["nodes"] == "1 node"
    assert page.facts["workers"] == "2 connected"
    assert page.facts["memory"].endswith("of 1 GB")
    assert page.facts["core-hours"].startswith("about ")
    assert "cost so far" not in page.facts, "the pool has no price"
    headings = ["".join(each.itertext()) for each in page.root.iter("h2")]
    assert headings == [
        "Memory over the time", "Operations over the time", "Slowest operations",
        "Operations with the largest results", "Longest computations", "Workers",
    ]  # fmt: skip
    assert page.root.find(".//form") is None
    refused = server.post(f"{path}/stop")
    assert refused.code == 403
    assert [record.name for record in records.read_all()] == ["flights"]
    assert cluster.status.name == "running"
    assert acting_server.get(path).root.find(".//form").get("action") == f"{path}/stop"
    response = acting_server.post(f"{path}/stop")
    assert (response.code, response.headers["location"]) == (303, "/clusters?closed=flights")
    wait_until(lambda: cluster.status.name == "closed")
    assert "flights is closed" in acting_server.get("/clusters", closed="flights").text
    assert server.request(path).code == 404
    records_page = server.get("/records")
    [name] = [text for text in records_page.links if text.endswith("-flights")]
    record = server.get(f"/records/{name}")
    assert "Slowest operations" in record.text


def test_a_cluster_in_a_pool_with_a_price_shows_its_cost(
    start_server: Callable[..., UiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_HYPERPLANE__POOLS__8_8__PRICE_PER_HOUR", "1000")
    monkeypatch.setenv("DASK_HYPERPLANE__SIZING__CURRENCY", "EUR")
    server = start_server()
    server.login()
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, pool="8_8", name="priced"
    )
    try:
        wait_until(
            lambda: server.get("/clusters/local/priced").facts["cost so far"] != "about 0 EUR"
        )
        facts = server.get("/clusters/local/priced").facts
        assert facts["nodes"] == "1 node of pool 8_8"
        words = facts["cost so far"].split()
        assert (words[0], words[2]) == ("about", "EUR")
        assert float(words[1]) > 0
    finally:
        client.close()
        cluster.close()


def test_the_other_pages_answer(server: UiServer) -> None:
    for path in ("/", "/clusters", "/jobs", "/records", "/schedules", "/pools", "/size"):
        page = server.get(path)
        current = page.root.find(".//nav[@aria-label='Pages']//a[@aria-current='page']")
        assert current.get("href") == path
    for path in ("/no-page", "/jobs/absent", "/clusters/local/absent", "/jobs/", "/records/absent",
                 "/jobs/../../etc/passwd", "/clusters/local/..%2F..%2Fx"):  # fmt: skip
        response = server.request(path)
        assert response.code == 404, path
        assert read(response.text).root.find(".//nav") is not None
    assert server.request("/style.css").headers["content-type"].startswith("text/css")
    assert server.request("/live.js").headers["content-type"].startswith("text/javascript")
    assert "Ask all platforms" in server.get("/clusters").text
    assert server.get("/other-clusters").title == "Clusters elsewhere"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_log_has_no_secret(
    start_server: Callable[..., UiServer], number: signal.Signals
) -> None:
    server = start_server("--allow-actions")
    server.login()
    for path in ("/jobs", f"/jobs/absent?token={server.token}x", "/size?data=x", "/%ff"):
        server.request(path)
    code, out, err = server.end(number)
    assert code == 0
    assert err == ""
    assert server.token not in out


@pytest.fixture
def silent_cluster() -> Iterator[None]:
    """A record of a cluster whose scheduler accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        records.write(
            records.ClusterRecord(
                name="silent", scheduler=address, pid=os.getpid(), engine="local", dashboard="",
                started=records.own_start_time(), workers=1, threads=1, ram_gb=1.0,
            )
        )  # fmt: skip
        yield
        records.remove("silent", "/no-scratch")


@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_ends_it_while_a_cluster_is_being_stopped(
    start_server: Callable[..., UiServer], silent_cluster: None, count: int
) -> None:
    server = start_server("--allow-actions")
    server.login()

    def stop() -> None:
        with contextlib.suppress(http.client.HTTPException, OSError):
            server.post("/clusters/local/silent/stop")

    request = threading.Thread(target=stop)
    request.start()
    time.sleep(1)  # until the thread of the request waits for the scheduler
    if count == 2:
        os.killpg(server.process.pid, signal.SIGINT)
        time.sleep(1)
    code, _, err = server.end()
    request.join()
    assert code == 0
    assert err.splitlines() == [
        "hyperplane ui has ended; a request was not finished: a cluster that it was stopping may "
        "still run"
    ]


def test_the_end_of_the_terminal_removes_its_folder(place: Path) -> None:
    script = "from hyperplane.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "ui"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ, "BROWSER": "true"},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # for tests in nohup
    )  # fmt: skip
    assert process.stdout.readline().startswith("hyperplane ui is at ")
    assert [*(place / "tmp").glob("hyperplane-ui-*")]
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, "")
    assert not [*(place / "tmp").glob("hyperplane-ui-*")]
