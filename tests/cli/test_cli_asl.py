"""``hyperplane asl``: check, run and export state machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from terminal import Run

DEFECTIVE = Path(__file__).parents[1] / "asl/machines/invalid/states-copied-example.asl.json"
GLUE = "arn:aws:states:::glue:startJobRun.sync"
PIPELINE = """
pipeline:
  name: flights
  tasks:
  - {name: load, type: python, py_path: load.py}
  - name: clean
    type: python
    py_path: clean.py
    depends_on: [load]
    step_functions:
      resource: arn:aws:states:::glue:startJobRun.sync
      parameters: {JobName: clean flights}
  - {name: years, type: bash, bash_script_path: years.sh, chunks: 3, depends_on: [load]}
  - {name: report, type: command, command: [bash, report.sh], depends_on: [clean, years]}
"""
PROGRAMS = {
    "load.py": "import os, pathlib\npathlib.Path('rows').write_text(os.environ['ROWS'] + '\\n')\n",
    "clean.py": "import shutil\nshutil.copy('rows', 'clean')\n",
    "years.sh": 'echo "$CHUNK_ID of $HYPERPLANE_SHARD_COUNT: $(cat rows)" > "year-$CHUNK_ID"\n',
    "report.sh": "cat clean year-* > report\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        for file, text in {**PROGRAMS, "flights.yaml": PIPELINE}.items():
            (tmp_path / name / file).write_text(text)
    return tmp_path


def _results(folder: Path) -> dict[str, str]:
    names = {"rows", "clean", "year-0", "year-1", "year-2", "report"}
    return {file.name: file.read_text() for file in folder.iterdir() if file.name in names}


@pytest.mark.process
@pytest.mark.slow
def test_an_exported_pipeline_has_the_results_of_its_job(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "here")
    assert run("job", "run", "flights.yaml", "-p", "rows=1 2").code == 0
    monkeypatch.chdir(folder)
    exported = run("asl", "export", "there/flights.yaml", "-p", "rows=1 2", "--out", "f.asl.json")
    assert (exported.code, exported.out) == (0, "f.asl.json\n")
    assert run("asl", "check", "f.asl.json").out == "f.asl.json: 5 states, no faults\n"
    answer = run(
        "asl", "run", "f.asl.json", "--input", '{"job_queue": "q", "job_definition": "d"}',
        "--batch-folder", "there", "--batch-logs", "logs",
        "--task", f"clean flights={sys.executable} -c 'import os, runpy; os.chdir(\"there\"); "
        "runpy.run_path(\"clean.py\")'",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert answer.json == {"job_queue": "q", "job_definition": "d"}
    assert len(_results(folder / "here")) == 6
    assert _results(folder / "there") == _results(folder / "here")
    assert _results(folder / "here")["year-1"] == "1 of 3: 1 2\n"
    logs = sorted(log.name for log in (folder / "logs").iterdir())
    assert logs == ["load.log", "report.log", *(f"wave 2.1.years.{each}.log" for each in range(3))]


def test_an_export_is_printed_and_replaces_no_file(run: Run, folder: Path) -> None:
    machine = run("asl", "export", "here/flights.yaml").json
    branches = machine["States"]["wave 2"]["Branches"]
    states = [branch["States"][branch["StartAt"]] for branch in branches]
    assert [state["Resource"] for state in states if state["Resource"] == GLUE] == [GLUE]
    (folder / "old.json").write_text("mine")
    answer = run("asl", "export", "here/flights.yaml", "-o", "old.json")
    assert answer.code == 2
    assert "expected a new file" in answer.err
    assert (folder / "old.json").read_text() == "mine"


def test_a_check_reports_all_faults_at_once(run: Run) -> None:
    answer = run("asl", "check", str(DEFECTIVE))
    assert answer.code == 2
    assert answer.err.count("unreachable: expected a state that is reachable from StartAt") == 3
    assert answer.err.count("expected a name that is unique in the whole machine") == 3
    document = run("asl", "check", str(DEFECTIVE), "--json").json
    assert len(document["faults"]) == 6


@pytest.mark.process
def test_a_lenient_check_and_run_turn_the_six_faults_into_warnings(run: Run) -> None:
    answer = run("asl", "check", str(DEFECTIVE), "--lenient")
    assert (answer.code, answer.err.count("warning: ")) == (0, 6)
    assert answer.out.endswith("7 states, 6 warnings\n")
    assert len(run("asl", "check", str(DEFECTIVE), "--lenient", "--json").json["warnings"]) == 6
    for words in (["asl", "run"], ["job", "run"]):
        answer = run(*words, str(DEFECTIVE), "--lenient", "--task", "f=echo 5")
        assert (answer.code, answer.out) == (0, "5\n")
        assert answer.err.count("warning: ") == 6
        assert answer.err.count("entered") == 1
    assert run("job", "run", str(DEFECTIVE), "--task", "f=echo 5").code == 2


SERVICES = {
    "StartAt": "Glue",
    "States": {
        "Glue": {
            "Type": "Task", "Resource": GLUE, "Parameters": {"JobName": "clean"},
            "ResultPath": "$.glue", "Next": "Spark",
        },
        "Spark": {
            "Type": "Task", "Resource": "arn:aws:states:::elasticmapreduce:addStep.sync",
            "Parameters": {"ClusterId.$": "$.cluster", "Step": {"Name": "count"}},
            "ResultPath": "$.spark", "Next": "Call",
        },
        "Call": {
            "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {"FunctionName": "arn:aws:lambda:eu-west-1:123456789012:function:f"},
            "ResultSelector": {"n.$": "$.Payload"}, "ResultPath": "$.call", "Next": "Job",
        },
        "Job": {
            "Type": "Task", "Resource": "arn:aws:states:::batch:submitJob.sync",
            "Parameters": {"JobName": "j", "JobQueue": "q", "JobDefinition": "train:3"},
            "ResultPath": "$.job", "End": True,
        },
    },
}  # fmt: skip


@pytest.mark.process
def test_tasks_of_services_are_mapped_by_the_names_of_what_they_run(run: Run, folder: Path) -> None:
    (folder / "m.json").write_text(json.dumps(SERVICES))
    (folder / "tasks.yaml").write_text(
        "clean: echo 1\ncount: [echo, '2']\nCall: echo 3\ntrain: echo 4\n"
    )
    answer = run("asl", "run", "m.json", "--input", '{"cluster": 1}', "--task-file", "tasks.yaml")
    assert answer.json == {"cluster": 1, "glue": 1, "spark": 2, "call": {"n": 3}, "job": 4}
    # The command line replaces tasks of the file, and the resource is the last name.
    answer = run(
        "asl", "run", "m.json", "--input", '{"cluster": 1}', "--task-file", "tasks.yaml",
        "--task", "clean=echo 5", "--task", f"{GLUE}=echo 6", "--batch-folder", ".",
    )  # fmt: skip
    assert (answer.json["glue"], answer.json["job"]) == (5, 4)


def test_a_name_that_the_machine_does_not_use_is_a_fault(run: Run, folder: Path) -> None:
    (folder / "m.json").write_text(json.dumps(SERVICES))
    (folder / "tasks.yaml").write_text("clean: echo 1\ncount: echo 2\nf: echo 3\nother: echo 4\n")
    words = ["asl", "run", "m.json", "--task-file", "tasks.yaml", "--batch-folder", "."]
    answer = run(*words, "--task", "trian=echo 5", "--task", "Job=echo 6")
    assert answer.code == 2
    message = " ".join(answer.err.split())
    assert (
        "--task = 'trian': expected a name that the machine uses: clean, Glue, count, Spark"
        in message
    )
    assert "did you mean train or train:3?" in message
    assert "'Job'" not in message


def test_names_in_the_input_of_the_execution_are_compared(run: Run, folder: Path) -> None:
    exported = run("asl", "export", "here/flights.yaml", "-p", "rows=1 2", "-o", "f.asl.json")
    assert exported.code == 0
    words = ["f.asl.json", "--task", "clean_flights=echo 1"]
    machine_input = json.dumps({"job_queue": "q", "job_definition": "d"})
    for command in (["asl", "run", "--batch-folder", "there"], ["job", "run"]):
        answer = run(*command, *words, "--input", machine_input)
        assert answer.code == 2
        assert "did you mean clean flights?" in " ".join(answer.err.split())
    # Without the input, a name may be that of a definition that is known at run time only.
    answer = run("asl", "run", "--batch-folder", "there", *words)
    assert "did you mean" not in answer.err


def test_faults_of_tasks_and_of_the_machine_are_reported_together(run: Run, folder: Path) -> None:
    (folder / "list.yaml").write_text("[1]")
    answer = run(
        "asl", "run", str(DEFECTIVE), "--task", "x", "--task-file", "list.yaml",
        "--batch-folder", "none",
    )  # fmt: skip
    assert (answer.code, "9 faults" in answer.err) == (2, True)
    (folder / "bad.yaml").write_text("a: 3\nb: no_such_module:f\nf: no-such-program 5\n")
    answer = run("asl", "run", str(DEFECTIVE), "--lenient", "--task-file", "bad.yaml")
    assert "3 faults" in answer.err
    assert "check the name 'no-such-program'" in " ".join(answer.err.split())
    (folder / "m.json").write_text(json.dumps(SERVICES))
    answer = run("asl", "run", "m.json")
    assert "4 faults" in answer.err
    assert "the name of what it runs or that of the state" in answer.err
    assert run("asl", "run", "m.json", "--batch-logs", "x").code == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('no  licence')", "RuntimeError: no licence"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("g = 1", "AttributeError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_fault(
    run: Run, folder: Path, text: str, reason: str
) -> None:
    name = f"broken_{abs(hash(text))}"
    (folder / f"{name}.py").write_text(text)
    answer = run("asl", "run", str(DEFECTIVE), "--lenient", "--task", f"f={name}:f")
    assert (answer.code, "Traceback" in answer.err) == (2, False)
    assert f"'f={name}:f'" in answer.err
    assert reason in answer.err
    assert f"python -c 'import {name}'" in answer.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x [echo, 1]\nb: *x\n", "tasks.yaml:1: --task-file = the anchor or alias"),
        ("a: echo 1\nb: echo 2\na: echo 3\n", "tasks.yaml:3: --task-file"),
        ('{"a": "echo 1",\n "a": "echo 2"}', "tasks.yaml:2: --task-file"),
        ("a: !!python/object/apply:os.system [ls]\n", "the tag"),
        ("a: [echo\n", "tasks.yaml:"),
        ("[echo]\n", "expected a YAML or JSON file with a mapping"),
        pytest.param("\ud800", "expected a YAML or JSON file with a mapping", id="no UTF-8"),
        pytest.param(f"a: {'x' * (1 << 20)}\n", "more than 1048576 bytes", id="large"),
    ],
)
def test_a_file_with_tasks_has_each_name_once_and_no_aliases(
    run: Run, folder: Path, text: str, reason: str
) -> None:
    (folder / "tasks.yaml").write_bytes(text.encode(errors="surrogatepass"))
    answer = run("asl", "run", str(DEFECTIVE), "--lenient", "--task-file", "tasks.yaml")
    assert (answer.code, "Traceback" in answer.err) == (2, False)
    assert reason in " ".join(answer.err.split())
