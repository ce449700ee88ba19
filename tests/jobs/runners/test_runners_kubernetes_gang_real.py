"""Gang steps and rendered chunks as Indexed Jobs of a real Kubernetes, 1.24 or 1.29 or later."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from job_cases import bash, run_job, submit_job, wait_until
from kubernetes_job_objects import SMALL, job_objects, list_left
from services import until
from services_kubernetes import (
    IMAGE,
    LONGEST,
    NAMESPACE,
    OPTIONS,
    kubectl,
    service,
    skip_before,
)
from test_jobs_killed import kill_supervisor
from typer.testing import CliRunner

from hyperplane.cli.app import app
from hyperplane.jobs import JobHandle, Step, list_jobs
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, TIMED_OUT

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST),
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
]

#: A small HTTP store for checkpoints, because pods have no folder that outlives them. It is in the
#: network of the pods, and also records when a value was first and last written.
STORE = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
values, times = {}, {}
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        found = json.dumps(times).encode() if self.path == "/times" else values.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(found or b"")
    def do_PUT(self):
        values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        first, _ = times.get(self.path, (time.time(), 0))
        times[self.path] = first, time.time()
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
class Server(ThreadingHTTPServer):
    def server_bind(self):
        self.socket.bind(self.server_address)  # and no query for its name
with Server((sys.argv[1], int(sys.argv[2])), Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
"""
ADDRESS, PORT = "10.78.0.2", 8123
URL = f"http://{ADDRESS}:{PORT}"

#: Functions of the programs below, which see each other and the store.
COMMON = """
import json, os, signal, socket, sys, time, urllib.error, urllib.request
rank, size = int(os.environ.get("RANK", -1)), int(os.environ.get("WORLD_SIZE", 0))
restarts = os.environ.get("HYPERPLANE_RESTART_COUNT")
store = os.environ.get("HYPERPLANE_CHECKPOINTS")
def get(name):
    try:
        return urllib.request.urlopen(f"{store}/{name}", timeout=10).read().decode()
    except urllib.error.HTTPError:
        return ""
def put(name, text):
    request = urllib.request.Request(f"{store}/{name}", text.encode(), method="PUT")
    urllib.request.urlopen(request, timeout=10).close()
def connect(host, port):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=60).makefile("rw")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
def meet():
    \"\"\"Return the streams of rank 0 to all others, or that of another rank to rank 0.\"\"\"
    if rank:
        return [connect(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])]
    with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
        return [server.accept()[0].makefile("rw") for _ in range(size - 1)]
def reduce(number, streams):
    \"\"\"Return the sum of the numbers of all ranks.\"\"\"
    def send(stream, word):
        stream.write(f"{word}\\n")
        stream.flush()
    def receive(stream):
        line = stream.readline()
        if not line:
            raise ConnectionError("another rank has ended")
        return int(line)
    if rank:
        send(streams[0], number)
        return receive(streams[0])
    total = number + sum(map(receive, streams))
    for stream in streams:
        send(stream, total)
    return total
"""

#: All ranks connect to the address that TF_CONFIG has for the next one, and to MASTER_ADDR.
VARIABLES = (
    COMMON
    + """
config = json.loads(os.environ["TF_CONFIG"])
workers = [address.rpartition(":") for address in config["cluster"]["worker"]]
host, _, port = workers[rank]
server = socket.create_server(("", int(port)))
following = connect(workers[(rank + 1) % size][0], workers[(rank + 1) % size][2])
with server, following, server.accept()[0].makefile("rw") as previous:
    following.write(f"{rank}\\n")
    following.flush()
    from_previous = int(previous.readline())
names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "JOB_COMPLETION_INDEX",
         "HYPERPLANE_RANK", "HYPERPLANE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "HOSTNAME")
found = {name: os.environ.get(name) for name in names}
print(json.dumps({"rank": rank, "size": size, "sum": reduce(rank, meet()), "host": host,
                  "previous": from_previous, "index": config["task"]["index"], **found}))
"""
)

#: 20 steps, each of which needs all ranks; rank 0 saves the step and the sum. When rank 1 is
#: killed, rank 0 fails at once, and rank 2 ignores SIGTERM and writes to the store to its end.
TRAIN = (
    COMMON
    + """
state = json.loads(get("state") or '{"step": 0, "total": 0}')
put(f"begin-{restarts}-{rank}", "")
print(f"rank {rank} begins at step {state['step']}", flush=True)
try:
    streams = meet()
    for step in range(state["step"], 20):
        total = state["total"] + reduce(rank + step, streams)
        state = {"step": step + 1, "total": total}
        if rank == 0:
            put("state", json.dumps(state))
        put(f"beat-{restarts}-{rank}", str(step))
        time.sleep(0.2)
except ConnectionError:
    if rank != 2:
        raise
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        put(f"beat-{restarts}-{rank}", "still here")
        time.sleep(0.1)
print(f"rank {rank} total {total}", flush=True)
"""
)


@pytest.fixture(scope="module", autouse=True)
def _kubernetes():
    with service():
        skip_before(24, "gang steps")
        yield
    kill_supervisor()  # it has the configuration of this module


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    until(lambda: not list_left(), 90)


@pytest.fixture
def store():
    """The store, empty."""
    words = [
        "nsenter",
        "--net=/var/run/netns/hpkube",
        sys.executable,
        "-c",
        STORE,
        ADDRESS,
        str(PORT),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield URL
        finally:
            process.terminate()


def fetch(path):
    """Return a value of the store, or None."""
    with suppress(OSError), urllib.request.urlopen(f"{URL}/{path}", timeout=10) as answer:
        return json.load(answer)


def gang(text, n=3, **options):
    """A step whose n processes run a line of Python."""
    argv = ("python", "-c", text)
    return Step(name="meet", kind="command", argv=argv, gang=n, resources=SMALL, **options)


def read_log(job, number=1):
    [log] = Path(job.job.folder).rglob(f"attempt-{number}.log")
    return log.read_text()


def find_rank(number):
    """Return the process of a rank on this machine, whose processes include those of pods."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            variables = process.environ()
            if variables.get("RANK") == str(number) and "HYPERPLANE_JOB_ID" in variables:
                return process
    raise AssertionError(f"no process of rank {number}")


def test_three_ranks_find_each_other():
    job = submit_job(gang(VARIABLES), runner="kubernetes", max_retries=0)
    wait_until(lambda: job_objects("services"), 60)
    [stored], [named] = job_objects("jobs"), job_objects("services")
    assert job.wait(120) == DONE, read_log(job)
    spec, name = stored["spec"], stored["metadata"]["name"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert named["spec"]["clusterIP"] == "None"
    lines = [line.partition(" | ") for line in read_log(job).splitlines()]
    found = {rank: json.loads(text) for rank, _, text in lines}
    assert sorted(found) == ["rank 0", "rank 1", "rank 2"]
    for number in range(3):
        shown = str(number)
        assert found[f"rank {number}"] == {
            "rank": number, "size": 3, "sum": 3, "index": number, "previous": (number - 1) % 3,
            "host": f"{name}-{number}.{name}", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": shown, "MASTER_ADDR": f"{name}-0.{name}", "HYPERPLANE_RANK": shown,
            "HYPERPLANE_WORLD_SIZE": "3", "TORCHELASTIC_RESTART_COUNT": "0",
            "JOB_COMPLETION_INDEX": None, "HOSTNAME": f"{name}-{number}",
        }  # fmt: skip


def test_a_killed_rank_ends_all_and_the_retry_resumes(store):
    step = gang(TRAIN, env={"HYPERPLANE_CHECKPOINTS": store})
    job = submit_job(step, runner="kubernetes", max_retries=1)
    wait_until(lambda: (fetch("state") or {"step": 0})["step"] >= 3, 90)
    find_rank(1).send_signal(signal.SIGKILL)
    assert job.wait(150) == DONE, (job.attempts, read_log(job))
    first, second = sorted(job.attempts, key=lambda attempt: attempt.number)
    assert (first.status, first.exit_code, second.status) == (FAILED, -9, DONE), first
    assert first.reason.startswith("rank 1: ended by SIGKILL")
    # Every process of the first attempt had ended before the second attempt began.
    times = fetch("times")
    last = max(times[f"/beat-0-{rank}"][1] for rank in range(3))
    assert last < min(times[f"/begin-1-{rank}"][0] for rank in range(3))
    log = read_log(job, 2)
    [began] = {line.rpartition(" ")[2] for line in log.splitlines() if "begins at step" in line}
    assert 3 <= int(began) < 20
    total = sum(rank + step for rank in range(3) for step in range(20))
    assert sorted(log.splitlines())[1::2] == [
        f"rank {rank} | rank {rank} total {total}" for rank in range(3)
    ]


def test_the_failure_is_that_of_the_first_rank():
    # The other ranks fail some milliseconds later, when their connections end.
    text = COMMON + (
        "streams = meet()\n"
        "reduce(rank, streams)\n"
        "time.sleep(1)\n"
        "if rank == 2:\n"
        "    print('ValueError: no such column', file=sys.stderr)\n"
        "    os._exit(65)\n"
        "reduce(rank, streams)\n"
    )
    job = run_job(gang(text), runner="kubernetes", max_retries=3, wait=120)
    [attempt] = job.attempts
    assert (job.status, attempt.exit_code, attempt.fault) == (FAILED, 65, "input"), read_log(job)
    assert attempt.reason.startswith("rank 2: exit code 65: ValueError: no such column")
    # It depends on the moment whether a connection is closed or reset.
    assert re.search(r"^rank [01] \| Connection\w*Error: ", read_log(job), re.MULTILINE)
    assert read_log(job).endswith("rank 2 | ValueError: no such column\n")


def test_a_rank_that_fails_in_each_attempt_fails_the_step():
    text = (
        "import os, sys, time; time.sleep(600 * (os.environ['RANK'] != '1')); "
        "print('broken'); os._exit(9)"
    )
    job = run_job(gang(text), runner="kubernetes", max_retries=1, wait=150)
    assert job.status == FAILED
    reasons = [attempt.reason for attempt in job.attempts]
    assert reasons == ["rank 1: exit code 9: broken"] * 2


def test_a_rank_without_enough_memory_is_reported():
    text = "import os; x = bytearray(400_000_000 * (os.environ['RANK'] == '1')); print('fits')"
    job = run_job(gang(text, 2), runner="kubernetes", max_retries=0, wait=120)
    [attempt] = job.attempts
    assert (job.status, attempt.fault) == (FAILED, "memory"), (attempt, read_log(job))
    assert "rank 1" in attempt.reason


def test_a_killed_supervisor_costs_no_attempt_of_a_gang():
    text = "import os, time; print('begun'); time.sleep(8); print('ended')"
    job = submit_job(gang(text, 2), runner="kubernetes", max_retries=0)
    until(lambda: "begun" in job.logs(), 60)
    assert kill_supervisor()
    time.sleep(10)  # the pods end while no supervisor is running
    assert JobHandle(job.id).wait(120) == DONE
    lines = read_log(job).splitlines()
    assert sorted(lines) == [f"rank {n} | {word}" for n in range(2) for word in ("begun", "ended")]


def test_cancelling_and_the_timeout_end_all_ranks():
    polite = "trap 'echo asked; exit 3' TERM; echo begun; sleep 600 & wait"
    job = submit_job(bash("meet", polite, gang=2, resources=SMALL), runner="kubernetes")
    until(lambda: job.logs().count("begun") == 2, 60)
    began = time.monotonic()
    job.cancel()
    assert job.wait(60) == CANCELLED
    assert time.monotonic() - began < 30
    until(lambda: not list_left(), 60)
    # A program that does not handle SIGTERM ends with it, as elsewhere.
    job = submit_job(gang("import time; time.sleep(600)", timeout=5), runner="kubernetes",
                     max_retries=0)  # fmt: skip
    assert job.wait(90) == FAILED
    assert [attempt.status for attempt in job.attempts] == [TIMED_OUT]


def test_the_end_of_the_other_ranks_does_not_count_against_the_timeout():
    # Rank 0 ignores SIGTERM, and ends only after the timeout.
    text = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['RANK'] == '1': time.sleep(1); print('broken'); os._exit(9)\n"
        "time.sleep(600)"
    )
    job = run_job(gang(text, 2, timeout=9), runner="kubernetes", max_retries=0, wait=90)
    assert [each.reason for each in job.attempts] == ["rank 1: exit code 9: broken"]


def test_a_gang_without_room_waits_with_the_reason():
    step = bash("meet", "true", gang=2, resources={"cores": 64})
    job = submit_job(step, runner="kubernetes")
    until(lambda: "Insufficient cpu" in job.logs(), 90)
    job.cancel()
    assert job.wait(60) == CANCELLED


def test_a_training_program_of_the_image():
    options = {name: OPTIONS[name] for name in ("image", "image_pull_policy", "namespace")}
    options["root"] = "/srv/training"
    words = ["train", "--module-name", "trainer.task", "--distributed", "--worker-count", "1"]
    words += ["--parameter-server-count", "1", "--runner", "kubernetes", "--max-retries", "0"]
    words += [f"--runner-option={name}={value}" for name, value in options.items()]
    command = [sys.executable, "-c", "from hyperplane.cli import main; main()", *words]
    command += ["--", "--below", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    [job] = list_jobs(limit=1)
    log = JobHandle(job.id).logs()
    assert "chief-0 | chief 0 of 2: total 499500\n" in log
    assert "worker-0 | worker 1 of 2: total" in log


def render(folder, tasks, *words):
    """Render a pipeline, and return the manifests."""
    (folder / "flights.yaml").write_text(
        json.dumps({"pipeline": {"name": "flights", "tasks": tasks}})
    )
    command = ["job", "render", "flights.yaml", "--runner", "kubernetes", "--out", "manifests"]
    result = CliRunner().invoke(
        app, [*command, "--option", f"image={IMAGE}", "--option", "root=/tmp", *words]
    )
    assert result.exit_code == 0, result.output
    return sorted((folder / "manifests").glob("*.yaml"))


@pytest.fixture
def applied():
    """Delete the Jobs of rendered manifests."""
    yield
    kubectl("-n", NAMESPACE, "delete", "jobs", "-l", "hyperplane.dev/job", "--wait=true")


def test_chunks_of_a_rendered_job_are_retried_singly(store, applied, tmp_path):
    skip_before(29, "retries of each index")
    # Chunk a succeeds, b at its second attempt; c fails in both, and the input of d is wrong.
    program = COMMON + (
        "item = os.environ['ITEM']\n"
        "attempt = int(get(item) or 0) + 1\n"
        "put(item, str(attempt))\n"
        "print(item, attempt, os.environ['CHUNK_ID'], os.environ['HYPERPLANE_SHARD_COUNT'])\n"
        "sys.exit({'b': 9 * (attempt == 1), 'c': 9, 'd': 65}.get(item, 0))\n"
    )
    task = {
        "name": "years", "type": "command", "command": ["python", "-c", program],
        "foreach": ["a", "b", "c", "d"], "retries": 1, "resources": SMALL,
        "env": {"HYPERPLANE_CHECKPOINTS": store},
    }  # fmt: skip
    [manifest] = render(tmp_path, [task])
    kubectl("-n", NAMESPACE, "apply", "-f", str(manifest))

    def status():
        [job] = job_objects("jobs")
        return job["status"]

    until(lambda: any(each["type"] == "Failed" for each in status().get("conditions", ())), 150)
    assert (status()["completedIndexes"], status()["failedIndexes"]) == ("0,1", "2,3")
    assert [fetch(item) for item in "abcd"] == [1, 2, 2, 1]
    pods = {pod["metadata"]["name"]: pod for pod in job_objects("pods")}
    logs = [kubectl("-n", NAMESPACE, "logs", name).strip() for name in pods]
    assert sorted(logs) == ["a 1 0 4", "b 1 1 4", "b 2 1 4", "c 1 2 4", "c 2 2 4", "d 1 3 4"]


def test_rendered_steps_run_in_the_documented_order(applied, tmp_path):
    first = {"name": "clean", "type": "command", "command": ["bash", "-c", "echo $$ $HOME clean"]}
    then = {
        "name": "years", "type": "command", "command": ["bash", "-c", "echo $CHUNK_ID"],
        "chunks": 3, "max_parallel": 2, "depends_on": ["clean"], "resources": SMALL,
    }  # fmt: skip
    render(tmp_path, [first, then])
    skip_before(29, "retries of each index")
    kubectl("-n", NAMESPACE, "apply", "-f", str(tmp_path / "manifests"))
    jobs = {
        job["metadata"]["annotations"]["hyperplane.dev/step-name"]: job
        for job in job_objects("jobs")
    }
    clean, years = (jobs[name]["metadata"] for name in ("clean", "years"))
    assert years["annotations"]["hyperplane.dev/depends-on"] == clean["name"]

    def wait(name):
        words = ("wait", "--for=condition=complete", "--timeout=50s", f"job/{name}")
        kubectl("-n", NAMESPACE, *words)

    wait(clean["name"])
    assert "status" not in jobs["years"] or not jobs["years"]["status"].get("active")
    patch = '{"spec": {"suspend": false}}'
    kubectl("-n", NAMESPACE, "patch", "job", years["name"], "--type=strategic", "--patch", patch)
    wait(years["name"])
    assert job_objects("jobs")[1]["status"]["completedIndexes"] == "0-2"
