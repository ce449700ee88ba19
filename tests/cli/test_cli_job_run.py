"""``hyperplane job run``: a job in the foreground of a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from scale import FULL, scaled
from terminal import Begin, Run

from hyperplane.jobs.store.job_records import CANCELLED, DONE, IN_PROGRESS
from hyperplane.jobs.store.jobs_home import open_store, this_machine

pytestmark = pytest.mark.process

PIPELINE = """
pipeline:
  name: "three"
  tasks:
  - {name: first, type: bash script, bash_script_path: say.sh}
  - {name: many, type: bash script, bash_script_path: say.sh, chunks: 3}
  - {name: last, type: bash script, bash_script_path: say.sh}
"""
#: Ignores SIGTERM, and writes a file when it gets it.
# Without seq: a signal could kill it after "trapped" is created, and the loop would be empty.
STUBBORN = """\
trap 'touch asked' TERM INT HUP
touch trapped
for ((i = 0; i < 1500; i++)); do sleep 0.1; done
"""
COMMAND = [sys.executable, "-c", "from hyperplane.cli import main; main()", "job", "run"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "say.sh").write_text('echo "said ${KEY:-nothing}"\n')
    (tmp_path / "long.sh").write_text("echo begun\nsleep 600\n")
    (tmp_path / "stubborn.sh").write_text(STUBBORN)
    (tmp_path / "bad.sh").write_text("echo before\necho wrong data >&2\nexit 65\n")
    (tmp_path / "three.yaml").write_text(PIPELINE)
    return tmp_path


def here(folder: Path) -> list[psutil.Process]:
    """Return the processes that run a script of this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if words[:1] == ["bash"] and any(str(folder) in word for word in words):
            found.append(process)
    return found


def wait_for(folder: Path) -> None:
    wait_until(lambda: here(folder))


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_job_runs_to_its_end_with_a_line_for_each_change(run: Run) -> None:
    answer = run("job", "run", "three.yaml", "--name", "trio")
    assert (answer.code, answer.err) == (0, "")
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in answer.out.splitlines()]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in answer.out.splitlines())
    ends = [line for line in lines if "done in" in line]
    assert [line.split(":")[0] for line in ends[:3]] == ["first", "many", "last"]
    assert "(3 of 3 done)" in ends[1]
    assert re.fullmatch(r"job trio \(\w{8}\): done in [\d.]+ s", lines[-1])


def test_the_json_document_has_the_job_and_its_steps(run: Run) -> None:
    answer = run("job", "run", "three.yaml", "--json", "-p", "key=x", "--max-retries", "1")
    assert (answer.code, answer.err) == (0, "")
    shown = answer.json
    assert (shown["status"], shown["parameters"], shown["max_retries"]) == (DONE, {"key": "x"}, 1)
    many = shown["steps"][1]
    assert (many["name"], many["status"], many["chunks_done"]) == ("many", DONE, 3)
    assert [Path(log).read_text() for log in many["logs"]] == ["said x\n"] * 3


@pytest.mark.parametrize("value", ["a=b", "two\nlines", "$(touch canary); ü 🙂", "", "'\""])
def test_parameters_are_passed_unchanged(value: str, run: Run, folder: Path) -> None:
    (folder / "show.py").write_text("import os, json; print(json.dumps(os.environ['KEY']))\n")
    shown = run("job", "run", "show.py", "-p", f"key={value}", "--json").json
    assert json.loads(Path(shown["steps"][0]["logs"][0]).read_text()) == value
    assert not (folder / "canary").exists()


def test_a_job_that_fails_ends_with_1_and_the_end_of_its_log(run: Run) -> None:
    answer = run("job", "run", "bad.sh")
    assert answer.code == 1
    assert "failed in" in answer.out
    assert "exit code 65: wrong data" in answer.out
    assert "before\nwrong data\n" in answer.err
    assert run("job", "run", "bad.sh", "--json").json["steps"][0]["reasons"] == [
        "exit code 65: wrong data; not retried, because it would fail again"
    ]


def test_a_job_that_takes_too_long_ends_with_124(run: Run, folder: Path) -> None:
    answer = run("job", "run", "long.sh", "--active-timeout", "1s")
    assert answer.code == 124
    assert "timed out" in answer.out
    wait_until(lambda: not here(folder))


def test_all_errors_are_reported_together_and_nothing_is_stored(run: Run) -> None:
    before = len(open_store().find())
    answer = run(
        "job", "run", "none.sh", "-p", "sEcret", "-p", "a=1", "-p", "a=sEcret", "--timeout", "soon",
        "--max-retries", "11", "--name", "a b",
    )  # fmt: skip
    assert answer.code == 2
    assert answer.err.startswith("6 faults in the request, nothing was started:")
    for part in (
        "number 1",
        "a is given twice",
        "--timeout = 'soon'",
        "max_retries",
        "name",
        "none.sh",
    ):
        assert part in answer.err
    assert "sEcret" not in answer.err
    assert len(open_store().find()) == before


def test_warnings_of_the_pipeline_go_to_standard_error(run: Run, folder: Path) -> None:
    (folder / "curly.yaml").write_text(PIPELINE.replace('"three"', "“three”"), encoding="utf-8")
    answer = run("job", "run", "curly.yaml", "--json")
    assert answer.json["status"] == DONE
    assert answer.err.startswith("warning: ")
    assert "quotes" in answer.err


@pytest.mark.slow
def test_invalid_arguments_are_reported_once_on_standard_error(run: Run, folder: Path) -> None:
    cells = [{"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "year = 1",
              "outputs": [], "execution_count": None}]  # fmt: skip
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (folder / "book.ipynb").write_text(json.dumps(book))
    for command in (["submit", "--wait", "--json"], ["submit", "--dry-run"]):
        answer = run("job", *command, "book.ipynb", "-p", "yaer=2")
        assert answer.code == 0
        assert answer.err.splitlines() == [
            "warning: book.ipynb names no kernel; it runs with python3",
            "warning: no step reads the parameter 'yaer': did you mean year?",
        ]
    book["metadata"] = {"kernelspec": {"name": "julia-9", "display_name": "x"}}
    (folder / "book.ipynb").write_text(json.dumps(book))
    answer = run("job", "run", "book.ipynb")
    assert answer.code == 2
    assert "step 'book': book.ipynb = the kernel 'julia-9'" in " ".join(answer.err.split())


# SIGHUP is also what a closed terminal sends.
@pytest.mark.slow
@pytest.mark.parametrize(
    "number", scaled([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
)
def test_a_signal_cancels_the_job(number: signal.Signals, begin: Begin, folder: Path) -> None:
    foreground = begin("job", "run", "long.sh", "--name", f"by.{number.name}")
    wait_for(folder)
    foreground.signal(number, whole_group=True)
    answer = foreground.end()
    assert answer.code == 130
    assert "Traceback" not in answer.err
    (job,) = open_store().find(name=f"by.{number.name}")
    assert job.status == CANCELLED
    assert job.reason.startswith(f"cancelled by {this_machine()} at 20")
    assert number.name in job.reason
    assert [one.status for one in open_store().attempts(job.id)] == [CANCELLED]
    wait_until(lambda: not here(folder))


@pytest.mark.slow
def test_a_second_signal_kills_processes_that_do_not_end(
    begin: Begin, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__GRACE", "100s")
    foreground = begin("job", "run", "stubborn.sh", "--name", "stubborn")
    wait_until((folder / "trapped").exists)
    asked = time.monotonic()
    foreground.signal(signal.SIGINT, whole_group=True)
    wait_until((folder / "asked").exists)  # or the second signal could come with the first one
    assert here(folder) != []
    foreground.signal(signal.SIGINT, whole_group=True)
    assert foreground.end().code == 130
    assert time.monotonic() - asked < 90
    wait_until(lambda: not here(folder))


@pytest.mark.slow
def test_a_closed_pipe_cancels_the_job(folder: Path) -> None:
    # Noticed at the next output, when the second step begins.
    (folder / "wait.sh").write_text("until [ -e go ]; do sleep 0.05; done\n")
    (folder / "unread.yaml").write_text(
        "pipeline:\n  name: unread\n  tasks:\n"
        "  - {name: first, type: bash script, bash_script_path: wait.sh}\n"
        "  - {name: then, type: bash script, bash_script_path: long.sh}\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "unread.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    (folder / "go").touch()
    assert process.wait(120) == 130
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    wait_until(lambda: not here(folder))


@pytest.mark.slow
def test_a_terminal_shows_a_tree_that_remains(folder: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([*COMMAND, "three.yaml"], stdout=theirs, env=environment)
    os.close(theirs)
    written = b""
    try:
        while block := os.read(ours, 4096):
            written += block
    except OSError:  # how a terminal ends
        pass
    os.close(ours)
    assert process.wait(120) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    last = text[text.rindex("├── first") :].split()
    assert "first  waits" in text
    assert last[:4] == ["├──", "first", "done", last[3]]
    assert "3 of 3 done" in " ".join(last)
    assert "└── last   done" in text


@pytest.mark.slow
def test_another_terminal_can_watch_and_cancel_it(run: Run, begin: Begin, folder: Path) -> None:
    foreground = begin("job", "run", "long.sh", "--name", "watched")
    wait_for(folder)
    (job,) = open_store().find(name="watched")
    assert "watched" in run("job", "list").out
    assert run("job", "cancel", job.id[:8]).code == 0
    assert run("job", "watch", job.id[:8]).code == 130
    assert foreground.end().code == 130
    assert open_store().get(job.id).reason.endswith("UTC, with hyperplane job cancel")
    wait_until(lambda: not here(folder))


@pytest.mark.slow
def test_steps_have_the_environment_of_the_foreground(run: Run, folder: Path) -> None:
    # A supervisor with another environment also runs, and reads the store twice a second.
    sent = run("job", "submit", "long.sh", "--json").json
    wait_for(folder)
    (folder / "here.sh").write_text("echo $ONLY_HERE\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONLY_HERE", "yes")
        shown = run("job", "run", "here.sh", "--json").json
    assert Path(shown["steps"][0]["logs"][0]).read_text() == "yes\n"
    run("job", "cancel", sent["id"])
    run("job", "watch", sent["id"])


@pytest.mark.skipif(not FULL, reason="test_jobs_killed.py kills more: at full scale")
def test_the_job_of_a_killed_terminal_is_continued(run: Run, begin: Begin, folder: Path) -> None:
    (folder / "once.sh").write_text("echo run >>runs\nwhile ! test -e go; do sleep 0.1; done\n")
    foreground = begin("job", "run", "once.sh", "--name", "killed")
    wait_for(folder)
    foreground.signal(signal.SIGKILL, whole_group=True)
    assert foreground.end().code == -signal.SIGKILL
    (job,) = open_store().find(name="killed")
    assert job.status == IN_PROGRESS
    (folder / "go").touch()
    assert run("job", "watch", job.id).code == 0
    assert (folder / "runs").read_text() == "run\n"
    assert [one.status for one in open_store().attempts(job.id)] == [DONE]


@pytest.mark.skipif(not FULL, reason="a closed pipe and signals do, too: at full scale")
def test_a_terminal_that_is_closed_cancels_the_job(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "long.sh"], stdout=theirs, stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    wait_for(folder)
    os.close(ours)
    assert process.wait(120) == 130
    wait_until(lambda: not here(folder))
