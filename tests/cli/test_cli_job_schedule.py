"""``hyperplane job schedule``: lines for cron, manifests for Kubernetes."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path

import dask.config
import pytest
import yaml
from terminal import Run

from hyperplane.jobs.store.job_records import DONE
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store

GOLDEN = Path(__file__).parents[1] / "jobs" / "golden" / "schedule.yaml"
CRONTAB = '#!/bin/sh\nf={place}\nif [ "$1" = -l ]; then cat "$f"; else cat >"$f"; fi\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "my project"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "say.sh").write_text('echo "said $MONTH"\n')
    return place


@pytest.fixture
def crontab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program, place = tmp_path / "bin" / "crontab", tmp_path / "crontab"
    program.parent.mkdir()
    place.write_text("5 4 * * * backup\n")
    program.write_text(CRONTAB.format(place=shlex.quote(str(place))))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return place


@pytest.mark.slow
@pytest.mark.process
def test_the_line_submits_a_run_of_the_schedule(run: Run, folder: Path) -> None:
    """Run the line as cron does: in another folder, with few variables, ``\\%`` for ``%``."""
    answer = run(
        "job", "schedule", "say.sh", "--cron", "*/30 * * * *", "--name", "half-hourly",
        "-p", "month=50% of it's", "--no-overlap",
    )  # fmt: skip
    assert (answer.code, answer.err) == (0, "")
    line = answer.out.rstrip("\n")
    assert line.startswith(f"*/30 * * * * cd '{folder}' && ")
    assert line.endswith(" # hyperplane schedule half-hourly")
    command = line.split(None, 5)[5].replace("\\%", "%")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    subprocess.run(["/bin/sh", "-c", command], cwd="/", env=environment, check=True)
    log = (jobs_folder() / "schedule-half-hourly.log").read_text()
    (job,) = open_store().find(schedule="half-hourly")
    assert job.id in log
    assert (job.name, dict(job.parameters)) == ("half-hourly", {"month": "50% of it's"})
    deadline = time.monotonic() + 150
    while not (now := open_store().get(job.id)).processed and time.monotonic() < deadline:
        time.sleep(0.05)
    assert now.status == DONE


def test_a_schedule_without_spaces_is_accepted_with_a_warning(run: Run) -> None:
    answer = run("job", "schedule", "say.sh", "--cron", "*/30***", "--json")
    assert answer.json["cron"] == "*/30 * * * *"
    assert answer.json["installed"] is False
    assert answer.err.startswith("warning: ")


@pytest.mark.process
def test_a_schedule_is_installed_listed_and_removed(run: Run, crontab: Path) -> None:
    ask = ["job", "schedule", "say.sh", "--name", "often", "--install"]
    assert run(*ask, "--cron", "0 * * * *").out == "often is installed\n"
    assert (
        run(*ask, "--cron", "30 * * * *").out
        == "often is installed and replaces the earlier line\n"
    )
    lines = crontab.read_text().splitlines()
    assert (lines[0], len(lines)) == ("5 4 * * * backup", 2)
    assert lines[1].startswith("30 * * * * ")
    run("job", "run", "say.sh", "--schedule", "often")
    assert "often 30 * * * * 20" in run("job", "schedule", "--list").text
    (listed,) = run("job", "schedule", "--list", "--json").json
    assert (listed["name"], listed["last"]["status"]) == ("often", DONE)
    assert run("job", "schedule", "--remove", "--name", "often").out == "often is removed\n"
    assert crontab.read_text() == "5 4 * * * backup\n"
    assert run("job", "schedule", "--list").out == "no schedule is installed\n"
    assert run("job", "schedule", "--remove", "--name", "often").code == 2


def test_the_manifest_equals_the_golden_file(run: Run) -> None:
    answer = run(
        "job", "schedule", "say.sh", "--cron", "*/30 8-18 * * mon-fri", "--name", "Half_Hourly",
        "--runner", "kubernetes", "--image", "registry.local/pipelines:1.2", "--folder", "/app",
        "-p", "month=50% of it's", "-p", "text=a: b # c", "--no-overlap",
    )  # fmt: skip
    assert answer.code == 0
    assert answer.out == GOLDEN.read_text()
    manifest = yaml.safe_load(answer.out)
    container = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-5:] == ["-p", "month=50% of it's", "-p", "text=a: b # c", "say.sh"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_kubernetes_puts_no_variable_into_a_scheduled_command(run: Run) -> None:
    answer = run(
        "job", "schedule", "say.sh", "--cron", "0 0 * * *", "--name", "n", "--runner", "kubernetes",
        "--image", "i", "-p", "text=$(HOME)", "-p", "mode=y",
    )  # fmt: skip
    manifest = yaml.safe_load(answer.out)
    container = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert "text=$$(HOME)" in container["command"]


def test_schedules_that_kubernetes_does_not_support_are_refused(run: Run) -> None:
    answer = run(
        "job", "schedule", "say.sh", "--cron", "0 0 * * 5-7", "--name", "n" * 60,
        "--runner", "kubernetes",
    )  # fmt: skip
    assert answer.code == 2
    assert "3 faults" in answer.err
    for part in ("--image", "0 for Sunday", "5-7 as 0,5-6", "52 characters"):
        assert part in answer.err


def test_faults_of_kubernetes_and_of_the_job_are_reported_together(run: Run) -> None:
    answer = run(
        "job", "schedule", "missing.yaml", "--cron", "0 0 * * 7", "--runner", "kubernetes",
        "-p", "nothing",
    )  # fmt: skip
    assert answer.code == 2
    for part in ("--image", "0 for Sunday", "missing.yaml", "-p: number 1"):
        assert part in answer.err


def test_kubernetes_gets_a_step_of_seven_days(run: Run) -> None:
    answer = run(
        "job", "schedule", "say.sh", "--cron", "0 0 * * */7", "--name", "n",
        "--runner", "kubernetes", "--image", "i",
    )  # fmt: skip
    assert yaml.safe_load(answer.out)["spec"]["schedule"] == "0 0 * * */7"


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ([], ["a pipeline file", "--cron"]),
        (["say.sh"], ["--cron"]),
        (["--remove"], ["--name"]),
        (["--remove", "--list"], ["only one of them"]),
        (["--list", "-p", "a=b", "--name", "x"], ["-p: not with", "--name: not with --list"]),
        (["say.sh", "--remove", "--name", "x"], ["file: not with --remove"]),
        (["--remove", "--name", "x", "--cron", "* * * * *"], ["--cron: not with --remove"]),
        (["--list", "--no-overlap"], ["--no-overlap: not with --list"]),
        (["say.sh", "--cron", "* * * * *", "--runner", "at"], ["one of cron, kubernetes"]),
        (["say.sh", "--cron", "* * * * *", "--runner=kubernetes", "--install"], ["kubectl apply"]),
        (["say.sh", "--cron", "* * * * *", "--image", "x"], ["only with --runner kubernetes"]),
        (["say.sh", "--cron", "61 * * * *"], ["numbers from 0 to 59"]),
        (["none.sh", "--cron", "* * * * *"], ["an existing file"]),
        (["none.sh", "--cron", "* *", "--name", "a b"], ["3 faults", "five fields", "existing"]),
        (["none.sh", "--cron", "* *", "--image", "x"], ["3 faults", "only with --runner kub"]),
        (["say.sh", "--cron", "* * * * *", "--name", "a b"], ["ending with a letter or digit"]),
        (["say.sh", "--cron", "* * * * *", "-p", "a=b\nc"], ["arguments without line breaks"]),
    ],
)
def test_invalid_arguments_are_reported(
    arguments: list[str], messages: list[str], run: Run
) -> None:
    answer = run("job", "schedule", *arguments)
    assert answer.code == 2
    assert answer.out == ""
    for part in messages:
        assert part in answer.err


def test_variables_that_cron_does_not_set_are_reported(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "p.yaml").write_text(
        "pipeline:\n  name: p\n  tasks:\n"
        "  - {name: a, type: bash script, bash_script_path: say.sh, secrets: [API_KEY]}\n"
    )
    monkeypatch.setenv("API_KEY", "s3cret-value")
    url = f"sqlite:///{folder}/team.db"
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__STORE", url)
    with dask.config.set({"hyperplane.jobs.store": url}):
        answer = run("job", "schedule", "p.yaml", "--cron", "* * * * *")
    assert answer.code == 0
    assert "the secret API_KEY is not set under cron" in answer.err
    assert "store of this terminal is not set under cron" in answer.err
    assert "s3cret-value" not in answer.out + answer.err
    assert "team.db" not in answer.out + answer.err
    assert f"PATH={Path(sys.executable).parent}:" in answer.out
