"""Jobs of version 0.1.0 are shown, resumed and repeated by this version."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
import yaml
from release import Release, contains
from scale import scaled
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.errors import RequestError
from hyperplane.jobs import JobHandle, list_jobs
from scripts.compat.fixtures.relocation import SYSTEM, this_system

pytestmark = pytest.mark.process

LIMIT = 150
#: Jobs that had not ended when their supervisor was killed.
OPEN = ("lost", "unwatched", "marked", "running", "stopped", "pending", "pending-function", "slurm")
ENDED = ("succeeded", "notebook", "retried", "failed", "chunks", "late", "late-step", "function",
         "cancelled", "nightly")  # fmt: skip
SECRET = "s3cret-and-long"


def run(*words: str) -> str:
    """Return the output of a command that runs in this process."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


#: The files of a running step, as the step wrapper of 0.1.0 writes them.
STEP = """
import fcntl, os, sys
traces, system = sys.argv[1:]
lock = open(traces + ".lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
started = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
with open(traces + ".pid", "w") as file:
    file.write(f"{os.getpid()} {started} {system}")
print("begun", flush=True)
sys.stdin.readline()
with open(traces + ".exit", "w") as file:
    file.write("0".ljust(16))
"""


class OldStep:
    """A step of 0.1.0 that still runs after its supervisor was killed.

    Parameters
    ----------
    job : JobHandle
        A job with one step.
    """

    def __init__(self, job: JobHandle) -> None:
        [attempt] = job.attempts
        traces = Path(job.job.folder, attempt.log).with_suffix("")
        self.process = subprocess.Popen(
            [sys.executable, "-c", STEP, traces, this_system()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"begun\n"

    def finish(self) -> None:
        """Let the step end with exit code 0."""
        self.process.communicate(b"\n", timeout=LIMIT)

    def wait_until_killed(self) -> None:
        """Reap the killed process: a zombie counts as running."""
        self.process.wait(LIMIT)
        self.process.communicate()


def another_boot(submission: Path) -> None:
    """Change the boot of a submission, as if the machine had been restarted since."""
    document = json.loads(submission.read_text())
    assert document["system"] == this_system()
    submission.write_text(json.dumps({**document, "system": SYSTEM}))


class Resumed:
    """A store of 0.1.0 after this version has resumed the jobs in it."""

    def __init__(self, release: Release) -> None:
        self.place, self.then = release.place, release.expected("jobs")
        another_boot(self.job("pending-function").job.folder_path / "submission.json")
        self.running = {name: OldStep(self.job(name)) for name in ("running", "stopped")}
        # This command starts a supervisor.
        listed = json.loads(run("job", "list", "--limit", "100", "--json"))
        self.listed = {job["name"]: job for job in listed}
        # Returns after the supervisor has looked at all jobs.
        self.exit_codes = self._run_batch_jobs()
        self.running["running"].finish()
        run("job", "cancel", self.then["stopped"]["id"])
        self.running["stopped"].wait_until_killed()
        # Without its batch jobs, the job would wait for Slurm.
        ended = [name for name in OPEN if name != "slurm" or not any(self.exit_codes)]
        self.status = {name: self.job(name).wait(LIMIT) for name in ended}

    def job(self, name: str) -> JobHandle:
        return JobHandle(self.then[name]["id"])

    def attempts(self, name: str) -> list[tuple[Any, ...]]:
        attempts = self.job(name).attempts
        return sorted((one.step, one.chunk, one.number, one.status) for one in attempts)

    def _run_batch_jobs(self) -> list[int]:
        """Run the batch jobs of 0.1.0 after the new supervisor's query; return their exit codes."""
        folder = self.place / "slurm"
        asked = (folder / "asked").read_text()
        deadline = time.monotonic() + LIMIT
        while (folder / "asked").read_text() == asked:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        codes = []
        for batch in sorted(folder.glob("1??")):
            lines = (batch / "environment").read_text().splitlines()
            environment = dict(line.split("=", 1) for line in lines)
            options = dict(
                line.removeprefix("--").partition("=")[::2]
                for line in (batch / "options").read_text().splitlines()
            )
            for task in options.get("array", "").split(","):
                log = options["output"].replace("%3a", f"{task:>03}")
                with Path(log).open("wb") as output:
                    done = subprocess.run(
                        ["/bin/sh", batch / "script"],
                        env={**environment, **({"SLURM_ARRAY_TASK_ID": task} if task else {})},
                        stdout=output,
                        stderr=output,
                        check=False,
                    )
                codes.append(done.returncode)
        (folder / "queue").unlink()
        return codes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Yield files of 0.1.0, and use its folder of jobs; end the supervisor afterwards."""
    release = Release("0.1.0", tmp_path_factory.mktemp("jobs") / "release")
    home = release.place / "jobs"
    # With other job names, so that only the numbers in the files of 0.1.0 match.
    array = next(
        one for one in (release.place / "slurm").rglob("options") if "--array" in one.read_text()
    )
    numbers = [f"{array.parent.name}_{task}" for task in (0, 1)]
    numbers += {"100", "101"} - {array.parent.name}
    queue = "".join(f"{number}|RUNNING|30:00|None|a-job\n" for number in numbers)
    (release.place / "slurm" / "queue").write_text(queue)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_HYPERPLANE__JOBS__HOME", str(home))
        patch.setenv("PATH", f"{release.place}/bin:{os.environ['PATH']}")
        patch.setenv("API_TOKEN", SECRET)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.chdir(release.place / "project")
        dask.config.refresh()
        try:
            yield release
        finally:
            for lock in home.glob("supervisor-*.lock"):
                with suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
                    supervisor = psutil.Process(int(lock.read_text()))
                    supervisor.send_signal(signal.SIGTERM)
                    supervisor.wait(60)
    dask.config.refresh()


@pytest.fixture(scope="module")
def resumed(place: Release) -> Resumed:
    return Resumed(place)


@pytest.mark.parametrize("name", ENDED)
def test_a_job_that_has_ended_is_shown_as_it_was(resumed: Resumed, name: str) -> None:
    then = dict(resumed.then[name])
    attempts, logs = then.pop("attempts"), then.pop("logs")
    assert contains(resumed.listed[name], then) == []
    found = [vars(one) for one in resumed.job(name).attempts]
    assert len(found) == len(attempts)
    for one, before in zip(found, attempts, strict=True):
        assert contains(one, before) == []
    for one in attempts:
        chunk = ["--chunk", str(one["chunk"])] if one["chunk"] >= 0 else []
        words = ["job", "logs", then["id"], "--step", one["step"], *chunk]
        assert run(*words, "--attempt", str(one["number"])) == logs[one["log"]]


def test_the_exit_code_of_watch_is_that_of_the_job(resumed: Resumed) -> None:
    codes = {"succeeded": 0, "failed": 1, "late": 124, "cancelled": 130}
    ids = {name: resumed.then[name]["id"] for name in codes}
    found = {
        name: CliRunner().invoke(app, ["job", "watch", job_id]).exit_code
        for name, job_id in ids.items()
    }
    assert found == codes


def test_its_pipeline_is_read(resumed: Resumed) -> None:
    pipeline = resumed.job("succeeded").job.pipeline
    assert [step.name for step in pipeline.steps] == ["count", "output"]
    assert pipeline.steps[0].argv == ("bash", "-c", "echo counted $YEAR")
    assert pipeline.steps[0].env == {"MODE": "fast"}
    assert pipeline.steps[0].resources.pool == "16_16"
    assert pipeline.steps[1].depends_on == ("count",)
    assert resumed.job("chunks").job.pipeline.steps[0].foreach == ("2013", "2014", "2015")


def test_results_and_outputs_are_read(resumed: Resumed) -> None:
    assert resumed.job("function").result() == 3
    assert resumed.job("succeeded").result() == "42"
    notebook = json.loads((resumed.place / "project" / "out" / "report.ipynb").read_text())
    printed = notebook["cells"][-1]["outputs"][0]["text"]
    assert printed == ["2014 " + "*" * len(SECRET) + "\n"]


def test_no_secret_was_written_down(resumed: Resumed) -> None:
    home = resumed.place / "jobs"
    assert len([file for file in home.rglob("*") if file.is_file()]) > 50
    # In another process: closing a file of the store drops this process's locks on it, and the
    # supervisor would then, at its end, remove the store's write-ahead log as its last user.
    found = subprocess.run(["grep", "-rlaF", SECRET, home], capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (1, b"", b"")


def test_a_job_whose_step_was_lost_goes_on_from_its_finished_steps(resumed: Resumed) -> None:
    assert resumed.status["lost"] == "done"
    assert (resumed.place / "project" / "told").read_text() == "first\nsecond\n"
    assert resumed.attempts("lost") == [
        ("first", -1, 1, "done"),
        ("second", -1, 1, "lost"),
        ("second", -1, 2, "done"),
    ]


def test_a_step_that_ended_while_no_supervisor_ran_is_not_repeated(resumed: Resumed) -> None:
    assert resumed.status["unwatched"] == "done"
    assert resumed.attempts("unwatched") == [("only", -1, 1, "done")]
    assert resumed.job("unwatched").logs() == "unwatched\n"


def test_a_step_that_runs_is_waited_for(resumed: Resumed) -> None:
    assert resumed.status["running"] == "done"
    assert resumed.attempts("running") == [("only", -1, 1, "done")]


def test_a_step_that_runs_is_ended(resumed: Resumed) -> None:
    assert resumed.status["stopped"] == "cancelled"
    assert resumed.attempts("stopped") == [("only", -1, 1, "cancelled")]
    assert resumed.running["stopped"].process.returncode == -signal.SIGTERM


def test_jobs_that_no_supervisor_had_begun_are_run(resumed: Resumed) -> None:
    assert resumed.status["pending"] == "done"
    # The variables and settings are those of their submission.
    assert resumed.job("pending").logs() == "2015 3 9000000\n"
    assert resumed.job("pending-function").result() == 42


def test_a_job_that_was_cancelled_while_its_disk_was_full_is_cancelled(resumed: Resumed) -> None:
    assert resumed.status["marked"] == "cancelled"
    assert not Path(resumed.job("marked").job.folder, "cancelled").exists()


def test_batch_jobs_in_the_queue_of_slurm_are_waited_for(resumed: Resumed) -> None:
    assert resumed.exit_codes == [0, 0, 0]
    assert resumed.status["slurm"] == "done"
    assert resumed.attempts("slurm") == [
        ("single", -1, 1, "done"),
        ("years", 0, 1, "done"),
        ("years", 1, 1, "done"),
    ]
    assert sorted(one.name for one in (resumed.place / "slurm").glob("1??")) == ["100", "101"]
    # A number that is not in the queue would be asked for by itself.
    asked = (resumed.place / "slurm" / "asked").read_text().splitlines()
    assert [line for line in asked if not line.startswith("squeue --me ")] == []
    logs = {
        log.parent.name: log.read_text()
        for log in Path(resumed.job("slurm").job.folder).rglob("*.log")
    }
    assert logs == {"000-single": "single x\n", "chunk-00000": "2013\n", "chunk-00001": "2014\n"}


def test_a_failed_job_is_resumed_by_hand(resumed: Resumed) -> None:
    done = CliRunner().invoke(app, ["job", "resume", resumed.then["chunks"]["id"], "--wait"])
    assert done.exit_code == 1, done.output
    assert resumed.attempts("chunks") == [
        ("years", 0, 1, "done"),
        ("years", 1, 1, "failed"),
        ("years", 1, 2, "failed"),
        ("years", 2, 1, "done"),
    ]


def test_schedules_are_listed_with_their_last_runs(resumed: Resumed) -> None:
    found = {one["name"]: one for one in json.loads(run("job", "schedule", "--list", "--json"))}
    assert {name: one["cron"] for name, one in found.items()} == {
        "nightly": "0 2 * * *",
        "often": "*/15 6-20 * jan,JUN-aug mon-fri",
        "yearly": "59 23 31 12 0",
    }
    assert found["nightly"]["last"]["id"] == resumed.then["nightly"]["id"]
    assert found["often"]["last"] is None


def test_the_lines_in_the_crontab_submit_jobs(resumed: Resumed) -> None:
    schedules = {"yearly": {"year": "50%", "text": "two words"}, **scaled({}, {"often": {}})}
    for name, parameters in schedules.items():
        lines = (resumed.place / "crontab").read_text().splitlines()
        [line] = [line for line in lines if line.endswith(f"# hyperplane schedule {name}")]
        command = line.split(" ", 5)[5].replace("\\%", "%")
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.run(["/bin/sh", "-c", command], env=path, check=True)
        log = (resumed.place / "jobs" / f"schedule-{name}.log").read_text()
        [job_id] = re.findall(r"^job +(\S+)$", log, re.MULTILINE)
        job = JobHandle(job_id)
        assert job.wait(LIMIT) == "done"
        assert (job.job.schedule, job.job.parameters) == (name, parameters)


def test_a_schedule_is_removed(resumed: Resumed) -> None:
    kept = (resumed.place / "crontab").read_text().splitlines()[1:]
    run("job", "schedule", "--remove", "--name", "nightly")
    assert (resumed.place / "crontab").read_text().splitlines() == kept


def test_the_command_of_a_cron_job_of_kubernetes_runs(resumed: Resumed) -> None:
    manifest = yaml.safe_load((resumed.place / "cron-job.yaml").read_text())
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    program, *words = pod["containers"][0]["command"]
    assert program == "hyperplane"
    run(*words)
    last = list_jobs(schedule="nightly")[0]
    assert (last.status, last.name) == ("done", "nightly")
    assert last.id != resumed.then["nightly"]["id"]


def test_new_jobs_are_added_to_the_store(resumed: Resumed) -> None:
    words = run("job", "submit", "nightly.yaml", "--json")
    assert JobHandle(json.loads(words)["id"]).wait(LIMIT) == "done"


def test_the_columns_of_the_store_are_checked(tmp_path: Path) -> None:
    release = Release("0.1.0", tmp_path / "release")
    home = release.place / "jobs"
    with closing(sqlite3.connect(home / "jobs.db")) as connection:
        connection.execute("ALTER TABLE hyperplane_attempts RENAME COLUMN fault TO failure")
    with (
        dask.config.set({"hyperplane.jobs.home": str(home)}),
        pytest.raises(RequestError) as caught,
    ):
        list_jobs()
    assert [fault.where for fault in caught.value.faults] == ["hyperplane.jobs.store"]
