"""``hyperplane job submit``, ``list``, ``watch``, ``cancel`` and ``resume``."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import dask.config
import pytest
from terminal import Begin, Run

from hyperplane.cli import job
from hyperplane.jobs import job_control
from hyperplane.jobs.runners.registry import RUNNERS
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, IN_PROGRESS, OPEN
from hyperplane.jobs.store.jobs_home import open_store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "say.sh").write_text("echo said\n")
    (tmp_path / "long.sh").write_text("sleep 600\n")
    (tmp_path / "bad.sh").write_text("test -e ready || exit 65\n")
    return tmp_path


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with only the jobs of the test."""
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", str(place))
    with dask.config.set({"hyperplane.jobs.home": str(place), "hyperplane.jobs.linger": "0.5s"}):
        yield place


def until(job_id: str, status: str) -> None:
    deadline = time.monotonic() + 150
    while open_store().get(job_id).status != status:
        assert time.monotonic() < deadline, open_store().get(job_id)
        time.sleep(0.05)


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "submit",
        "list",
        "show",
        "compare",
        "clean",
        "watch",
        "logs",
        "cancel",
        "resume",
        "render",
        "schedule",
    ],
)
def test_each_command_explains_itself(command: str, run: Run) -> None:
    assert f" {command} " in run("job", "--help").text
    answer = run("job", command, "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.process
def test_submitting_prints_both_ids_and_does_not_wait(run: Run) -> None:
    answer = run("job", "submit", "long.sh", "--name", "sent")
    assert answer.code == 0
    words = answer.out.split()
    job = open_store().get(words[1])
    assert words == ["job", job.id, "run", job.run_id]
    assert (job.name, job.status in OPEN) == ("sent", True)
    assert run("job", "cancel", job.id, "--json").json == [{"id": job.id, "status": CANCELLED}]
    until(job.id, CANCELLED)
    assert "had already ended: cancelled" in run("job", "cancel", job.id[:8]).out


@pytest.mark.process
def test_waiting_ends_with_the_code_of_the_job(run: Run) -> None:
    answer = run("job", "submit", "say.sh", "--wait")
    assert answer.code == 0
    assert "done in" in answer.out
    assert run("job", "submit", "say.sh", "--wait", "--json").json["status"] == DONE
    answer = run("job", "submit", "bad.sh", "--wait")
    assert answer.code == 1
    assert "exit code 65" in answer.out


@pytest.mark.process
def test_a_job_that_failed_is_resumed(run: Run, folder: Path) -> None:
    job = run("job", "submit", "bad.sh", "--wait", "--json").json
    assert job["status"] == FAILED
    (folder / "ready").touch()
    answer = run("job", "resume", job["id"][:8], "--wait", "--json")
    assert (answer.code, answer.json["status"], answer.json["steps"][0]["attempts"]) == (0, DONE, 2)
    again = run("job", "resume", job["id"])
    assert again.code == 1
    assert "is done" in again.err


@pytest.mark.process
def test_several_jobs_are_watched_and_the_first_failure_gives_the_code(run: Run) -> None:
    names = {"good": "say.sh", "bad": "bad.sh"}
    ids = [
        run("job", "submit", file, "--name", name, "--json").json["id"]
        for name, file in names.items()
    ]
    answer = run("job", "watch", *ids, ids[0])
    assert answer.code == 1
    assert f"job good ({ids[0][:8]}): done" in answer.out
    assert f"job bad ({ids[1][:8]}): failed" in answer.out
    assert f"bad ({ids[1][:8]}) bad: failed" in answer.out
    shown = run("job", "watch", *ids, "--json").json
    assert [job["status"] for job in shown] == [DONE, FAILED]


@pytest.mark.process
def test_a_job_continues_after_watching_ends(run: Run, begin: Begin) -> None:
    sent = run("job", "submit", "long.sh", "--json").json
    until(sent["id"], IN_PROGRESS)
    watching = begin("job", "watch", sent["id"])
    watching.read_until("")  # its first line
    watching.signal(signal.SIGINT, whole_group=True)
    answer = watching.end()
    assert answer.code == 130
    assert sent["id"][:8] in answer.err
    assert open_store().get(sent["id"]).status == IN_PROGRESS
    run("job", "cancel", sent["id"])


@pytest.mark.process
@pytest.mark.usefixtures("alone")
def test_jobs_are_listed_newest_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("job", "list").out == "no job has been submitted\n"
    assert run("job", "list", "--json").json == []
    for name, file in {"one": "say.sh", "two": "bad.sh", "three": "say.sh"}.items():
        run("job", "run", file, "--name", name)
    shown = run("job", "list")
    assert shown.out.split("\n", 1)[0].split()[:4] == ["id", "run", "name", "status"]
    assert [line.split()[1:4] for line in shown.out.splitlines()[2:]] == [
        ["say", "#2", "three"],
        ["bad", "#1", "two"],
        ["say", "#1", "one"],
    ]
    assert "exit code 65" in shown.text
    monkeypatch.setenv("COLUMNS", "68")
    narrow = [line.split()[:6] for line in run("job", "list").out.splitlines()[2:]]
    assert [line[:4] for line in narrow] == [
        line.split()[:4] for line in shown.out.splitlines()[2:]
    ]
    assert [line[4] for line in narrow] == ["done", "failed", "done"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", line[5]) for line in narrow)
    assert [job["pipeline"] for job in run("job", "list", "--json").json] == ["say", "bad", "say"]
    assert [job["name"] for job in run("job", "list", "--json", "--limit=2").json] == [
        "three",
        "two",
    ]
    assert [job["name"] for job in run("job", "list", "--json", "--status=failed").json] == ["two"]
    assert run("job", "list", "--status", "timed-out").out == "no job has this status\n"
    wrong = run("job", "list", "--status", "finished", "--limit", "0")
    assert wrong.code == 2
    assert "2 faults" in wrong.err
    assert "in progress" in wrong.err


@pytest.mark.parametrize(
    "command", [["watch"], ["cancel"], ["resume"], ["logs"], ["watch", "--json"]]
)
def test_an_unknown_id_is_an_error(command: list[str], run: Run) -> None:
    answer = run("job", *command, "zzzz")
    assert answer.code == 1
    assert "no such job" in answer.err
    assert "Traceback" not in answer.err


def test_all_unknown_ids_are_reported(run: Run) -> None:
    for command in ("watch", "cancel"):
        lines = run("job", command, "yyyy", "zzzz").err.splitlines()
        assert [line.partition(":")[0] for line in lines] == ["job yyyy", "job zzzz"]


@pytest.mark.process
def test_nothing_is_cancelled_when_one_of_several_ids_is_wrong(run: Run) -> None:
    sent = run("job", "submit", "long.sh", "--json").json
    assert run("job", "cancel", sent["id"], "zzzz").code == 1
    assert not open_store().get(sent["id"]).cancelled
    run("job", "cancel", sent["id"])


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("alone")
def test_a_run_of_a_schedule_does_not_wait_and_does_not_overlap(run: Run) -> None:
    first = run("job", "submit", "long.sh", "--schedule", "nightly", "--no-overlap", "--json").json
    assert open_store().get(first["id"]).schedule == "nightly"
    second = run("job", "submit", "long.sh", "--schedule", "nightly", "--no-overlap", "--json")
    assert (second.code, second.json) == (0, {"id": None, "run_id": None, "going_on": first["id"]})
    assert (
        "nothing submitted"
        in run("job", "submit", "say.sh", "--schedule", "nightly", "--no-overlap").out
    )
    other = run("job", "submit", "say.sh", "--schedule", "daily", "--no-overlap", "--json").json
    assert other["id"] is not None
    run("job", "cancel", first["id"])
    until(first["id"], CANCELLED)
    third = run("job", "submit", "say.sh", "--schedule", "nightly", "--no-overlap", "--json").json
    assert third["id"] is not None
    until(third["id"], DONE)
    answer = run("job", "submit", "say.sh", "--no-overlap")
    assert answer.code == 2
    assert "--schedule NAME" in answer.err


def test_the_cost_is_not_in_the_output_of_a_submission(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = SimpleNamespace(id="job-id", run_id="run-id")
    monkeypatch.setattr(job, "describe_cost", lambda job, options: ["step 'say': 1 USD"])
    monkeypatch.setattr(job_control, "submit_job", lambda job, **options: ids)
    answer = run("job", "submit", "say.sh")
    assert (answer.out, answer.err) == ("job  job-id\nrun  run-id\n", "cost  step 'say': 1 USD\n")
    assert "cost  step 'say': 1 USD\n" in run("job", "submit", "say.sh", "--dry-run").out
    store = SimpleNamespace(find=lambda **filters: [ids])
    monkeypatch.setattr(job, "open_store", lambda: store)
    monkeypatch.setattr(job_control, "ensure_supervisor", lambda store: None)
    answer = run("job", "submit", "say.sh", "--schedule", "nightly", "--no-overlap")
    assert answer.out.startswith("nothing submitted")
    assert "cost" not in answer.out + answer.err


def test_an_unknown_or_unusable_runner_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = run("job", "submit", "say.sh", "--runner", "slrum")
    assert answer.code == 2
    assert (
        f"runner = 'slrum': expected one of {', '.join(RUNNERS.names())}; did you mean slurm?"
        in answer.err
    )
    monkeypatch.setenv("PATH", "/nonexistent")
    answer = run("job", "submit", "say.sh", "--runner", "slurm")
    assert answer.code == 2
    assert "no sbatch, squeue, scancel on the PATH" in answer.err


def test_invalid_runner_options_are_refused(run: Run) -> None:
    answer = run("job", "submit", "say.sh", "--runner", "kubernetes", "--runner-option", "imag=x")
    assert answer.code == 2
    assert "runner_options.imag = 'x'" in answer.err
    assert "did you mean image?" in answer.err
    answer = run("job", "submit", "say.sh", "--runner", "kubernetes", "--runner-option", "image")
    assert "--runner-option = 'image': expected NAME=VALUE" in answer.err
    wrong = ("-p", "a", "--runner-option=b", "--runner-option=c", "--no-overlap")
    answer = run("job", "submit", "none.sh", *wrong)
    assert "5 faults in the request, nothing was submitted" in answer.err
    answer = run("job", "submit", "say.sh", "--runner", "kubernetes")
    assert "set an image with hyperplane.engines.kubernetes.image" in answer.err
    answer = run("job", "run", "say.sh", "--runner-option", "image=x")
    assert "unknown option; the runner local has none" in answer.err
