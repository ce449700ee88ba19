"""Errors of submitted functions in the log: the user's frames with their source."""

from __future__ import annotations

import json
import linecache

import pytest

from hyperplane.jobs import calls
from hyperplane.jobs.call_sources import pickle_with_sources
from hyperplane.jobs.execution.failure_kinds import describe_failure
from hyperplane.jobs.pickled_calls import unpickle

PROGRAM = '''"""A program."""


def divide(count):
    return 1 / count  # of rows


def convert(text):
    try:
        return divide(int(text))
    except ZeroDivisionError as error:
        raise ValueError(f"{text} rows") from error


def decorate(count):
    import hyperplane

    return hyperplane.job(max_retries=count)
'''


def pickle_functions(tmp_path, monkeypatch, program=PROGRAM, functions=("convert", "decorate")):
    """Return the functions of a program after it was submitted and removed."""
    file = tmp_path / "program.py"
    file.write_text(program)
    names = {"__name__": "__main__"}
    exec(compile(program, str(file), "exec"), names)
    data, sources = pickle_with_sources([names[name] for name in functions])
    file.unlink()
    (tmp_path / "call-sources.json").write_text(sources)
    monkeypatch.setenv("HYPERPLANE_JOB_FOLDER", str(tmp_path))
    monkeypatch.setattr(linecache, "cache", {})
    return str(file), unpickle(data)


def log_of(call, capsys):
    """Return what the hook of the program of function jobs writes about an error."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any of them
        call()
    first = caught.value.__traceback__.tb_next.tb_next  # the first is this function
    calls._print_error(caught.type, caught.value, first)
    return capsys.readouterr().err


def test_only_the_lines_of_the_functions_are_kept(tmp_path, monkeypatch):
    pickle_functions(tmp_path, monkeypatch, functions=("convert",))
    [kept] = json.loads((tmp_path / "call-sources.json").read_text())["files"].values()
    lines = PROGRAM.splitlines(keepends=True)
    numbers = [4, 5, 8, 9, 10, 11, 12]
    assert kept == {str(number): lines[number - 1] for number in numbers}


def test_the_log_has_the_lines_of_the_user_and_no_frame_of_the_job(tmp_path, monkeypatch, capsys):
    file, (convert, _) = pickle_functions(tmp_path, monkeypatch)
    log = log_of(lambda: convert("0"), capsys)
    assert log.count("File ") == log.count(f'File "{file}"') == 3
    assert f'File "{file}", line 5, in divide\n    return 1 / count  # of rows\n' in log
    assert log.endswith("ValueError: 0 rows\n")


def test_an_error_of_hyperplane_has_its_message_first_and_is_the_reason(
    tmp_path, monkeypatch, capsys
):
    file, (_, decorate) = pickle_functions(tmp_path, monkeypatch)
    log = log_of(lambda: decorate(-1), capsys)
    assert log.startswith("hyperplane.errors.RequestError: 1 fault in the request")
    assert log.count("File ") == 1
    assert f'File "{file}", line 18, in decorate\n    return hyperplane.job(' in log
    reason = describe_failure(1, log)
    assert reason.startswith("exit code 1: hyperplane.errors.RequestError: 1 fault")
    assert "max_retries = -1: expected" in reason


def test_frames_of_libraries_keep_their_file(tmp_path, monkeypatch, capsys):
    lines = json.loads.__code__.co_firstlineno - 1  # the same name and line as in the library
    program = "\n" * lines + "def loads(text):\n    import json\n    return json.loads(text)\n"
    file, (loads,) = pickle_functions(tmp_path, monkeypatch, program, ["loads"])
    log = log_of(lambda: loads("{"), capsys)
    assert log.count(f'File "{file}"') == 1
    assert f'File "{json.__file__}"' in log


def test_the_end_of_the_log_has_the_users_lines_above_those_of_a_library(
    tmp_path, monkeypatch, capsys
):
    program = "def read(text):\n    import re\n    return re.compile(text)\n"
    file, (read,) = pickle_functions(tmp_path, monkeypatch, program, ["read"])
    log = log_of(lambda: read("(" * 4), capsys)
    whole, _, summary = log.partition("\nThe lines of your program in this traceback:\n")
    [line] = [line for line in whole.splitlines() if f'File "{file}"' in line]
    assert summary.splitlines()[:2] == [line, "    return re.compile(text)"]
    assert "File " not in summary.partition("\n")[2]
    assert whole.endswith(summary.splitlines()[-1] + "\n")


def test_a_long_chain_of_errors_is_shown(tmp_path, monkeypatch, capsys):
    file, (convert, _) = pickle_functions(tmp_path, monkeypatch)

    def fail():
        before = None
        for number in range(1000):
            error = ValueError(number)
            error.__context__, before = before, error
        try:
            convert("0")
        except ValueError as error:
            error.__cause__.__context__ = before
            raise

    log = log_of(fail, capsys)
    assert log.endswith("ValueError: 0 rows\n")
    assert f'File "{file}", line 5, in divide\n' in log


def test_jobs_of_earlier_versions_have_no_sources(tmp_path, monkeypatch, capsys):
    _, (convert, _) = pickle_functions(tmp_path, monkeypatch)
    (tmp_path / "call-sources.json").unlink()
    assert log_of(lambda: convert("0"), capsys).endswith("ValueError: 0 rows\n")
