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
from released import Release, contains
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.errors import RequestError
from hyperplane.jobs import JobHandle, list_jobs

pytestmark = pytest.mark.process

LIMIT = 150
#: Jobs that had not ended when their supervisor was killed.
OPEN = ("lost", "unwatched", "marked", "pending", "pending-function", "slurm")
ENDED = ("succeeded", "notebook", "retried", "failed", "chunks", "late", "late-step", "function",
         "cancelled", "nightly")  # fmt: skip
SECRET = "s3cret-and-long"


def run(*words: str) -> str:
    """Run a command in this process; what it prints."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


class Resumed:
    """A store of 0.1.0 after this version has resumed the jobs in it."""

    def __init__(self, release: Release) -> None:
        self.place, self.then = release.place, release.expected("jobs")
        # What somebody does first of all; it starts a supervisor.
        listed = json.loads(run("job", "list", "--limit", "100", "--json"))
        self.listed = {job["name"]: job for job in listed}
        self._run_batch_jobs()
        self.status = {name: self.job(name).wait(LIMIT) for name in OPEN}

    def job(self, name: str) -> JobHandle:
        return JobHandle(self.then[name]["id"])

    def attempts(self, name: str) -> list[tuple[Any, ...]]:
        made = self.job(name).attempts
        return sorted((one.step, one.chunk, one.number, one.status) for one in made)

    def _run_batch_jobs(self) -> None:
        """Start what 0.1.0 has submitted, as Slurm does, once the new supervisor has asked."""
        folder = self.place / "slurm"
        asked = (folder / "asked").read_text()
        deadline = time.monotonic() + LIMIT
        while (folder / "asked").read_text() == asked:
            assert time.monotonic() < deadline
            time.sleep(0.02)
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
                    subprocess.run(
                        ["/bin/sh", batch / "script"],
                        env={**environment, **({"SLURM_ARRAY_TASK_ID": task} if task else {})},
                        stdout=output,
                        stderr=output,
                        check=True,
                    )
        (folder / "queue").unlink()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """What 0.1.0 has written, in force as the folder of jobs; no supervisor is left after it."""
    release = Release("0.1.0", tmp_path_factory.mktemp("jobs") / "release")
    home = release.place / "jobs"
    # Under other names, so that only the numbers that 0.1.0 has written down lead to them.
    array = next(
        one for one in (release.place / "slurm").rglob("options") if "--array" in one.read_text()
    )
    numbers = [f"{array.parent.name}_{task}" for task in (0, 1)]
    numbers += {"100", "101"} - {array.parent.name}
    queue = "".join(f"{number} RUNNING None|a-job\n" for number in numbers)
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


def test_how_a_job_has_ended_is_the_exit_code_of_a_watch(resumed: Resumed) -> None:
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
    texts = [file.read_bytes() for file in (resumed.place / "jobs").rglob("*") if file.is_file()]
    assert len(texts) > 50
    assert not [text for text in texts if SECRET.encode() in text]


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


def test_jobs_that_no_supervisor_had_begun_are_run(resumed: Resumed) -> None:
    assert resumed.status["pending"] == "done"
    # The variables and settings are those of their submission.
    assert resumed.job("pending").logs() == "2015 3 9000000\n"
    assert resumed.job("pending-function").result() == 42


def test_a_job_that_was_cancelled_while_its_disk_was_full_is_cancelled(resumed: Resumed) -> None:
    assert resumed.status["marked"] == "cancelled"
    assert not Path(resumed.job("marked").job.folder, "cancelled").exists()


def test_batch_jobs_in_the_queue_of_slurm_are_waited_for(resumed: Resumed) -> None:
    assert resumed.status["slurm"] == "done"
    assert resumed.attempts("slurm") == [
        ("single", -1, 1, "done"),
        ("years", 0, 1, "done"),
        ("years", 1, 1, "done"),
    ]
    assert sorted(one.name for one in (resumed.place / "slurm").glob("1??")) == ["100", "101"]
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
    for name, parameters in {"often": {}, "yearly": {"year": "50%", "text": "two words"}}.items():
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
