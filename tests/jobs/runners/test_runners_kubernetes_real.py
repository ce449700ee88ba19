"""Steps as pods of a real Kubernetes: environment, retries and ends."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from job_cases import bash, run_job, submit_job
from kubernetes_job_objects import SMALL, job_objects, list_left
from services import until
from services_kubernetes import LONGEST, NAMESPACE, kubectl, minor_version, service
from test_jobs_killed import kill_supervisor

from hyperplane.errors import RequestError
from hyperplane.jobs import JobHandle, Pipeline, Step, submit
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, PROCESSED, TIMED_OUT
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.store.tables import STEPS

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST),
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _kubernetes():
    with service():
        yield
    kill_supervisor()  # it has the configuration of this module


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    until(lambda: not list_left(), 90)


def python(name, text, **options):
    """A step that runs a line of Python."""
    return Step(name=name, kind="command", argv=("python", "-c", text), **options)


SHOW = """
import json, os
names = ("TEXT", "HYPERPLANE_JOB_PARAMETER_YEAR", "THE_TOKEN", "HOME", "MY_OWN", "TWO")
print(json.dumps({**{name: os.environ.get(name) for name in names}, "folder": os.getcwd()}))
"""


def test_variables_and_secrets_arrive_unchanged(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "s3cret 'word' $(HOME)")
    monkeypatch.setenv("MY_OWN", "stays here")
    text = "a 'b' \"c\"\n$(TEXT) $$ $HOME; ü \\n %j"
    step = python("first", SHOW, env={"TEXT": text, "TWO": "$(TEXT)"}, secrets=("THE_TOKEN",))
    seen = []

    job = submit_job(step, runner="kubernetes", parameters={"year": text})
    until(lambda: seen.extend(job_objects("jobs")) or seen)
    assert job.wait(120) == DONE, job.logs()
    # The value of the secret is masked in the log.
    assert "s3cret" not in job.logs()
    variables = json.loads(job.logs("first"))
    assert variables["TEXT"] == variables["HYPERPLANE_JOB_PARAMETER_YEAR"] == text
    assert variables["TWO"] == "$(TEXT)"
    assert variables["HOME"] == "/tmp"
    assert variables["MY_OWN"] is None
    assert variables["folder"] == "/var/lib/hyperplane"
    assert "s3cret" not in json.dumps(seen)
    assert job.job.runner == "kubernetes"


def test_a_secret_has_the_value_of_the_submission(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "s3cret 'word' $(HOME) ü")
    count = "import os; print(len(os.environ['THE_TOKEN'].encode()))"
    job = run_job(python("a", count, secrets=("THE_TOKEN",)), runner="kubernetes", wait=120)
    assert job.logs() == f"{len(b's3cret') + len(''' 'word' $(HOME) ü'''.encode())}\n"


def test_the_file_of_a_step_is_staged(tmp_path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "clean.py").write_text(
        "import os, pathlib, sys\npathlib.Path('made').write_text('x')\n"
        "print(sys.argv[0], os.environ['YEAR'])\n"
    )
    (tmp_path / "flights.yaml").write_text(
        "pipeline:\n  name: flights\n  tasks:\n  - name: clean\n    type: python script\n"
        "    py_path: steps/clean.py\n"
    )
    job = submit(tmp_path / "flights.yaml", runner="kubernetes", parameters={"year": "2013"})
    assert job.wait(120) == DONE, job.logs()
    assert job.logs() == "/var/lib/hyperplane/clean.py 2013\n"


def test_an_executed_notebook_comes_back_also_when_a_cell_fails(tmp_path):
    cells = [nbformat.v4.new_code_cell(text) for text in ("print(year)", "1 / 0", "print('no')")]
    cells[0].metadata["tags"] = []
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(notebook, tmp_path / "flights.ipynb")
    (tmp_path / "flights.yaml").write_text(
        "pipeline:\n  name: flights\n  tasks:\n  - name: years\n    type: jupyter notebook\n"
        "    notebook_path: flights.ipynb\n    notebook_output_path: out/done.ipynb\n"
    )
    job = submit(
        tmp_path / "flights.yaml", runner="kubernetes", parameters={"year": 2013}, max_retries=0
    )
    assert job.wait(120) == FAILED
    done = nbformat.read(tmp_path / "out" / "done.ipynb", as_version=4)
    outputs = [cell.get("outputs") for cell in done.cells if cell.cell_type == "code"]
    assert "ZeroDivisionError" in json.dumps(outputs)
    assert "2013" in json.dumps(outputs)
    assert "ZeroDivisionError" in job.job.reason
    assert "hyperplane-notebook:" not in job.logs()


def test_steps_run_in_order_and_chunks_concurrently():
    job = run_job(
        bash("a", "echo first; sleep 1"),
        bash("chunks", "echo $CHUNK_ID $ITEM; sleep 1", foreach=("x y", "ü", "'"), resources=SMALL),
        bash("last", "echo last"),
        runner="kubernetes",
        wait=200,
    )
    assert job.status == DONE, job.logs()
    ended = {attempt.step: attempt.ended for attempt in job.attempts if attempt.chunk in (-1, 0)}
    assert ended["a"] < ended["chunks"] < ended["last"]
    logs = [
        Path(job.job.folder, attempt.log).read_text()
        for attempt in job.attempts
        if attempt.chunk >= 0
    ]
    assert sorted(logs) == ["0 x y\n", "1 ü\n", "2 '\n"]
    assert {attempt.number for attempt in job.attempts} == {1}


def test_output_is_readable_while_the_step_runs():
    job = submit_job(bash("slow", "echo begun; sleep 20; echo ended"), runner="kubernetes")
    until(lambda: "begun" in job.logs(), 60)
    assert "ended" not in job.logs()
    assert job.wait(90) == DONE
    assert job.logs() == "begun\nended\n"


def test_a_killed_supervisor_costs_no_attempt():
    steps = [bash(name, f"echo {name}; sleep 5; echo {name}") for name in "ab"]
    job = submit_job(*steps, runner="kubernetes")
    until(lambda: "a" in job.logs(), 60)
    assert kill_supervisor()
    time.sleep(8)  # the pod ends while no supervisor is running
    assert JobHandle(job.id).wait(120) == DONE
    assert [(attempt.step, attempt.number) for attempt in job.attempts] == [("a", 1), ("b", 1)]
    assert job.logs("a") == "a\na\n"


def test_supervisors_killed_at_any_moment_repeat_nothing(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "s3cret")
    moments = random.Random(7)
    chunks = bash("a", "sleep 1", chunks=8, resources=SMALL, secrets=("THE_TOKEN",))
    job = submit_job(chunks, bash("b", "true"), runner="kubernetes", max_retries=0)
    kills = 0
    while kills < 8 and job.status not in PROCESSED:
        time.sleep(moments.uniform(0.2, 2.5))
        kills += kill_supervisor()
        with suppress(TimeoutError):
            JobHandle(job.id).wait(0.05)  # starts another supervisor
    assert JobHandle(job.id).wait(120) == DONE
    assert kills > 1
    attempts = sorted((attempt.step, attempt.chunk, attempt.status) for attempt in job.attempts)
    assert attempts == [*(("a", chunk, DONE) for chunk in range(8)), ("b", -1, DONE)]


def test_cancelling_ends_running_and_waiting_attempts():
    polite = "trap 'echo asked; exit 3' TERM; echo begun; sleep 60 & wait"
    large = {"cores": 0.7, "ram_gb": 0.1}
    job = submit_job(bash("slow", polite, chunks=4, resources=large), runner="kubernetes")

    def logs():
        # job.logs() may be that of a chunk without room.
        return "".join(log.read_text() for log in Path(job.job.folder).rglob("*.log"))

    until(lambda: "begun" in logs(), 60)
    job.cancel()
    assert job.wait(90) == CANCELLED
    assert "asked" in logs()


def test_a_step_that_runs_out_of_memory_gets_more():
    hungry = "x = bytearray(300_000_000); print('fits')"
    job = run_job(
        python("hungry", hungry, resources={"cores": 0.2, "ram_gb": 0.1}, more_memory=6),
        runner="kubernetes",
        max_retries=1,
        wait=180,
    )
    first, second = job.attempts
    assert (first.status, first.fault) == (FAILED, "memory"), (first, job.logs())
    assert second.status == DONE
    assert job.status == DONE


def test_what_a_step_took_is_recorded():
    hold = "import time; x = bytearray(b'x') * 100_000_000; time.sleep(3); print('held')"
    job = run_job(python("hold", hold), runner="kubernetes", wait=120)
    assert (job.status, job.logs()) == (DONE, "held\n")
    [record] = open_store().runs(job.job.machine, job_id=job.id, kind=STEPS)
    assert 100e6 < record.workers[0].peak < 300e6
    assert record.cpu_seconds > 0


def test_the_timeout_of_a_step_ends_its_pod():
    job = run_job(
        bash("slow", "echo begun; sleep 100", timeout=4), runner="kubernetes", max_retries=0
    )
    assert job.status == FAILED
    assert [attempt.status for attempt in job.attempts] == [TIMED_OUT]
    assert "exceeded the step's timeout of 4 s" in job.job.reason


def test_the_exit_code_decides_on_a_retry():
    job = run_job(bash("a", "echo no >&2; exit 65"), runner="kubernetes", max_retries=3, wait=120)
    assert (job.status, len(job.attempts)) == (FAILED, 1)
    assert "exit code 65: no" in job.job.reason
    job = run_job(bash("a", "exit 9"), runner="kubernetes", max_retries=1, wait=120)
    assert [attempt.exit_code for attempt in job.attempts] == [9, 9]


def test_a_deleted_pod_is_lost_and_created_again():
    polite = "trap 'exit 3' TERM; echo begun; sleep 30 & wait"
    job = submit_job(bash("a", polite), runner="kubernetes", max_retries=1)
    until(lambda: "begun" in job.logs(), 60)
    [pod] = job_objects("pods")
    kubectl("-n", NAMESPACE, "delete", "pod", pod["metadata"]["name"], "--wait=false")
    assert job.wait(150) == DONE
    assert [attempt.status for attempt in job.attempts] == ["lost", DONE]


@pytest.mark.parametrize(
    ("program", "options", "reason"),
    [
        ("true", {"image": "test.invalid/hyperplane/nothing:1"}, "ErrImageNeverPull"),
        ("true", {"image": "test.invalid/hyperplane/pause:1"}, "will run as root"),
        ("no-such-program", {}, "executable file not found"),
    ],
)
def test_an_attempt_that_can_never_run_fails_without_retries(program, options, reason):
    step = Step(name="a", kind="command", argv=(program,))
    job = submit_job(step, runner="kubernetes", runner_options=options, max_retries=3)
    assert job.wait(120) == FAILED
    assert reason in job.job.reason
    assert len(job.attempts) == 1


def test_the_log_has_the_reason_why_a_step_is_pending():
    job = submit_job(bash("a", "true", resources={"cores": 64}), runner="kubernetes")
    until(lambda: "Insufficient cpu" in job.logs(), 90)
    job.cancel()
    assert job.wait(60) == CANCELLED


def test_unsupported_pipelines_are_refused_at_submission(tmp_path):
    (tmp_path / "needs.txt").write_text("polars\n")
    steps = [Step(name="a", kind="command", argv=("true",))]
    with pytest.raises(RequestError, match=r"requirements = 'needs\.txt'"):
        submit(
            Pipeline.from_steps("a", steps, root=tmp_path, requirements="needs.txt"),
            runner="kubernetes",
        )
    with pytest.raises(RequestError, match="did you mean image"):
        submit_job(*steps, runner="kubernetes", runner_options={"imag": "x"})


def test_a_submission_without_an_api_server_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("KUBECONFIG", str(tmp_path / "none"))
        with pytest.raises(RequestError, match="no usable configuration of kubectl"):
            submit_job(bash("a", "true"), runner="kubernetes")


def test_a_gang_needs_a_newer_kubernetes():
    if minor_version() >= 24:
        pytest.skip(f"this Kubernetes, 1.{minor_version()}, has Indexed Jobs")
    job = run_job(bash("meet", "true", gang=2, resources=SMALL), runner="kubernetes", wait=120)
    assert job.status == FAILED
    [attempt] = job.attempts
    assert "no Indexed Jobs" in attempt.reason
    assert "1.24 or later" in attempt.reason
