"""``hyperplane job run machine.asl.json``: state machines in the foreground."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from scale import scaled
from terminal import Begin, Run

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:Double"
MACHINE = {
    "StartAt": "Double",
    "States": {
        "Double": {"Type": "Task", "Resource": ARN, "ResultPath": "$.twice", "Next": "Show"},
        "Show": {"Type": "Task", "Resource": "show", "End": True},
    },
}
SHOW = "import json, sys; data = json.load(sys.stdin); print(json.dumps([data, sys.argv[1:]]))"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "m.asl.json").write_text(json.dumps(MACHINE))
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "my_cli_tasks.py").write_text(
        "def double(data): return 2 * data['n']\ndef fail(data): raise KeyError('no such thing')\n"
    )
    return tmp_path


def tasks(double: str = "my_cli_tasks:double") -> list[str]:
    return ["--task", f"{ARN}={double}", "--task", f"show={sys.executable} show.py 'a b' '$(x)'"]


@pytest.mark.process
@pytest.mark.parametrize("machine_input", ['{"n": 21}', "input.json"])
def test_a_machine_runs_with_functions_and_programs(
    machine_input: str, run: Run, folder: Path
) -> None:
    (folder / "input.json").write_text('{"n": 21}')
    answer = run("job", "run", "m.asl.json", "--input", machine_input, *tasks())
    assert answer.code == 0
    assert answer.json == [{"n": 21, "twice": 42}, ["a b", "$(x)"]]
    lines = [line[9:] for line in answer.err.splitlines()]
    assert lines == ["Double: entered", "Double: succeeded", "Show: entered", "Show: succeeded"]
    document = run("job", "run", "m.asl.json", "--input", machine_input, "--json", *tasks())
    assert (document.json["status"], document.err) == ("done", "")
    assert document.json["output"][0]["twice"] == 42


def test_a_machine_that_fails_ends_with_1(run: Run) -> None:
    answer = run("job", "run", "m.asl.json", *tasks("my_cli_tasks:fail"), "--json")
    assert answer.code == 1
    assert (answer.json["status"], answer.json["error"]) == ("failed", "KeyError")
    assert answer.json["state"] == "Double"
    assert "no such thing" in answer.err
    assert "Traceback" not in answer.err


def test_a_machine_that_takes_too_long_ends_with_124(run: Run, folder: Path) -> None:
    wait = {"Type": "Wait", "Seconds": 60, "End": True}
    slow = {"StartAt": "A", "TimeoutSeconds": 1, "States": {"A": wait}}
    (folder / "slow.asl.json").write_text(json.dumps(slow))
    answer = run("job", "run", "slow.asl.json")
    assert answer.code == 124
    assert answer.out == ""


@pytest.mark.process
@pytest.mark.parametrize(
    "number", scaled([signal.SIGINT], [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
)
def test_a_signal_cancels_a_machine(number: signal.Signals, begin: Begin, folder: Path) -> None:
    program = f"{sys.executable} -c 'import time; time.sleep(60)'"
    state = {"Type": "Task", "Resource": "wait", "End": True}
    (folder / "long.asl.json").write_text(json.dumps({"StartAt": "A", "States": {"A": state}}))
    foreground = begin("job", "run", "long.asl.json", "--task", f"wait={program}")
    assert foreground.process.stderr is not None
    assert "A: entered" in foreground.process.stderr.readline()
    foreground.signal(number, whole_group=True)
    answer = foreground.end()
    assert answer.code == 130
    assert "Traceback" not in answer.err


def test_all_errors_are_reported_together(run: Run, folder: Path) -> None:
    (folder / "bad.asl.json").write_text('{"StartAt": "B", "States": {"A": {"Type": "Nap"}}}')
    answer = run(
        "job", "run", "bad.asl.json", "--input", "{", "--task", "x", "--task", "y='",
        "--task", "z=no_such_module:f", "--task", "w=my_cli_tasks:none", "--task", "v=",
    )  # fmt: skip
    assert answer.code == 2
    for part in ("Nap", "--input", "'x'", "No closing quotation", "no_such_module", "none", "'v='"):
        assert part in answer.err
    assert "Traceback" not in answer.err


def test_a_resource_without_a_task_is_an_error(run: Run) -> None:
    answer = run("job", "run", "m.asl.json")
    assert answer.code == 2
    assert ARN in answer.err


def test_options_of_the_other_kind_are_refused(run: Run, folder: Path) -> None:
    answer = run(
        "job", "run", "m.asl.json", "-p", "a=b", "--timeout", "5", "--runner", "slurm",
        "--runner-option", "image=x",
    )  # fmt: skip
    assert answer.code == 2
    assert "4 faults" in answer.err
    assert "--runner: only for a pipeline" in answer.err
    assert "--timeout: only for a pipeline" in answer.err
    (folder / "say.sh").write_text("true\n")
    answer = run("job", "run", "say.sh", "--task", "a=b:c", "--input", "{}")
    assert answer.code == 2
    assert "2 faults" in answer.err
