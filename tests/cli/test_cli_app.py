"""The application: help, version, exit codes, errors as text and as JSON."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import dask.config
import pytest
from terminal import Run
from typer.main import get_command

import hyperplane
from hyperplane.cli import app
from hyperplane.errors import ConfigError, EngineError, RequestError

COMMANDS = tuple(get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = ("distributed", "pandas", "numpy", "pyarrow", "matplotlib", "dask.dataframe")


def test_version_is_that_of_the_package(run: Run) -> None:
    answer = run("--version")
    assert (answer.code, answer.out) == (0, f"hyperplane {hyperplane.__version__}\n")


def test_help_names_every_command_and_the_exit_codes(run: Run) -> None:
    answer = run("--help")
    assert answer.code == 0
    for command in COMMANDS:
        assert f" {command} " in answer.text
    assert "0 success, 1 failure, 2" in answer.text


@pytest.mark.parametrize(
    "command",
    [*([name] for name in COMMANDS), *(["cluster", c] for c in ("start", "list", "stop"))],
)
def test_each_command_explains_itself(command: list[str], run: Run) -> None:
    answer = run(*command, "--help")
    assert answer.code == 0
    assert "Usage:" in answer.text
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("plural", "singular"), [("jobs", "job"), ("clusters", "cluster"), ("pool", "pools")]
)
def test_command_groups_have_singular_and_plural_names(
    plural: str, singular: str, run: Run
) -> None:
    answer, same = run(plural, "--help"), run(singular, "--help")
    assert (answer.code, answer.text) == (same.code, same.text) == (0, same.text)
    assert f"\u2502 {plural} " not in run("--help").out


@pytest.mark.parametrize(
    "arguments",
    [["sise"], ["size"], ["pools", "--jsn"], ["plan", "--nprocs", "x"], ["cluster", "restart"]],
)
def test_an_invalid_command_line_ends_with_2(arguments: list[str], run: Run) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "Usage:" in answer.err


@pytest.mark.slow
@pytest.mark.process
def test_commands_that_start_no_cluster_import_no_large_package() -> None:
    program = (
        "import sys\n"
        "from hyperplane.cli import app, main\n"
        "for arguments in (['--help'], ['pools'], ['plan'], ['size', '100GB']):\n"
        "    try: app(arguments)\n"
        "    except SystemExit as end: assert end.code == 0, end.code\n"
        f"    assert not [name for name in {HEAVY} if name in sys.modules], arguments\n"
        "sys.argv = ['x', 'pools', '--jsn']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # Of the last command, which is the entry point with an invalid option.
    assert done.returncode == 2, done.stderr
    assert done.stderr.lstrip().startswith("Usage: hyperplane pools")


@pytest.mark.process
def test_the_package_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "hyperplane", "pools", "--jsn"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.lstrip().startswith("Usage: hyperplane pools")


def test_all_faults_of_the_configuration_are_reported_with_exit_code_2(run: Run) -> None:
    faulty = {"hyperplane.memory.pause": 2, "hyperplane.memory.spill": "much"}
    with dask.config.set(faulty):
        answer = run("plan")
    assert answer.code == 2
    assert answer.out == ""
    assert "2 faults in the configuration" in answer.err
    assert "hyperplane.memory.pause = 2" in answer.err
    assert "hyperplane.memory.spill = 'much'" in answer.err
    assert "Traceback" not in answer.err


def test_an_error_as_json_has_its_message_and_every_fault(run: Run) -> None:
    answer = run("plan", "--nprocs=0", "--engine=locl", "--dashboard-port=http", "--json")
    assert answer.code == 2
    with pytest.raises(RequestError) as expected:
        hyperplane.plan_cluster(nprocs=0, engine="locl", dashboard_port="http")
    assert answer.json == {
        "error": str(expected.value),
        "faults": [
            {
                "where": fault.where,
                "asked": fault.asked,
                "allowed": fault.allowed,
                "advice": fault.advice,
                "source": fault.source,
            }
            for fault in expected.value.faults
        ],
    }
    assert len(answer.json["faults"]) == 3
    assert answer.err == f"{expected.value}\n"


def test_errors_of_other_kinds_end_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**request: object) -> None:
        raise EngineError("local", "no room", "last words")

    monkeypatch.setattr(hyperplane, "plan_cluster", refuse)
    answer = run("plan", "--json")
    assert answer.code == 1
    assert answer.json == {
        "error": "engine local: no room\nlast lines of the log:\nlast words",
        "faults": [],
    }


def test_an_internal_error_shows_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**request: object) -> None:
        raise ZeroDivisionError("a slip of ours")

    monkeypatch.setattr(hyperplane, "plan_cluster", fail)
    with pytest.raises(ZeroDivisionError, match="a slip of ours"):
        run("plan")


@pytest.mark.slow
@pytest.mark.process
def test_a_shell_gets_a_script_and_the_names_of_commands_and_options() -> None:
    def ask(**variables: str) -> str:
        # The name of the program decides about the variable.
        code = "import sys; sys.argv[0] = 'hyperplane'; from hyperplane.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "complete -o default" in ask(_HYPERPLANE_COMPLETE="source_bash")

    def complete(words: str, place: int) -> list[str]:
        return ask(
            _HYPERPLANE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(place)
        ).split()

    assert complete("hyperplane h", 1) == ["history"]
    assert "watch" in complete("hyperplane jobs w", 2)
    assert "--dry-run" in complete("hyperplane job submit --dr", 3)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_installed_script_completes_hyperplane_also_from_the_module(tmp_path: Path) -> None:
    # The last command must not replace the shell, which typer finds among the parents.
    install = f'"{sys.executable}" -m hyperplane --install-completion; exit $?'
    done = subprocess.run(
        ["bash", "-c", install],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    scripts = [file.read_text() for file in tmp_path.rglob("*hyperplane*") if file.is_file()]
    assert len(scripts) == 1
    assert scripts[0].splitlines()[-1] == "complete -o default -F _hyperplane_completion hyperplane"
    # A new shell reads it, and completes as after the key Tab.
    ask = """source ~/.bashrc
    complete() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hyperplane_completion hyperplane; }
    complete hyperplane hist; echo "${COMPREPLY[@]}"
    complete hyperplane job submit --dr; echo "${COMPREPLY[@]}"
    complete hyperplane job ""; echo "${COMPREPLY[@]}"
    """
    done = run_shell(["bash", "-c", ask], tmp_path)
    assert done.stderr == ""
    command, option, commands = done.stdout.splitlines()
    assert (command, option) == ("history", "--dry-run")
    assert {"list", "show", "submit", "watch"} <= set(commands.split())


def run_shell(words: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell with another home; it finds ``hyperplane`` as a program."""
    program = home / "bin" / "hyperplane"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hyperplane "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environ = {**os.environ, "HOME": str(home), "PATH": path}
    return subprocess.run(words, capture_output=True, text=True, env=environ, timeout=170)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", "compdef _hyperplane_completion hyperplane"),
        ("fish", "complete --command hyperplane"),
    ],
)
def test_other_shells_get_a_script_and_answers(shell: str, line: str, tmp_path: Path) -> None:
    def ask(**variables: str) -> str:
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), "hyperplane"]
        done = run_shell(words, tmp_path)
        assert done.stderr == ""
        return done.stdout

    script = ask(_HYPERPLANE_COMPLETE=f"source_{shell}")
    assert line in script
    variables = {"_TYPER_COMPLETE_ARGS": "hyperplane job sub"}
    if shell == "fish":
        variables |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args",
                      "_TYPER_COMPLETE_WORD_TO_COMPLETE": "sub"}  # fmt: skip
    assert "submit" in ask(_HYPERPLANE_COMPLETE=f"complete_{shell}", **variables)
    if found := shutil.which(shell):  # the shell itself accepts it
        (tmp_path / "script").write_text(script)
        assert run_shell([found, "-n", str(tmp_path / "script")], tmp_path).stderr == ""


def test_a_fault_of_the_configuration_has_no_error_of_another_library() -> None:
    with dask.config.set({"hyperplane.memory.pause": 2}), pytest.raises(ConfigError) as caught:
        hyperplane.plan_cluster()
    with pytest.raises(RequestError) as refused:
        hyperplane.ClusterRequest(num_workers=0)
    for error in (caught.value, refused.value):
        text = "".join(traceback.format_exception(error))
        assert "ValidationError" not in text
        assert "direct cause" not in text


def test_paragraphs_of_help_are_wrapped_at_the_width_of_the_terminal(run: Run) -> None:
    lines = [line.strip() for line in run("ui", "--help").out.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("The page is for"))
    assert [line for line in lines[first : first + 3] if len(line) < 60] == []
