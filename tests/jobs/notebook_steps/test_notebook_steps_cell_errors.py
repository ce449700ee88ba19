"""Log of a notebook step with a failed cell."""

from __future__ import annotations

import json

import nbformat
import pytest
from job_cases import run_job

from hyperplane.jobs import Step
from hyperplane.jobs.notebook_steps.cell_errors import describe_error, name_cell
from hyperplane.jobs.store.job_records import FAILED

DASHES, TITLE = "\x1b[31m---------\x1b[39m", "KeyError       Traceback (most recent call last)"
CELL = "\x1b[36mCell\x1b[39m In[2], line 4\n      3 \n----> 4 total(frame)\n"
OWN = (
    "File /home/ada/helper.py:2, in total(frame)\n      1 def total(frame):\n----> 2     frame['b']"
)
PANDAS = "File ~/env/lib/python3.12/site-packages/pandas/core/frame.py:9, in get(self)\n----> 9 x\n"
ERROR = "\x1b[31mKeyError\x1b[39m: 'b'"


def lines(*frames, error="KeyError", message="'b'", last=ERROR):
    report = describe_error(
        "a.ipynb", "cell 3 of 4 (In [2])", error, message, [DASHES, TITLE, *frames, last]
    )
    assert "\x1b" not in report
    return report.splitlines()


def test_a_short_traceback_of_the_users_own_code_is_shown_whole():
    assert lines(CELL, OWN) == [
        "a.ipynb: cell 3 of 4 (In [2]) failed",
        "---------",
        TITLE,
        "Cell In[2], line 4",
        "      3 ",
        "----> 4 total(frame)",
        "File /home/ada/helper.py:2, in total(frame)",
        "      1 def total(frame):",
        "----> 2     frame['b']",
        "KeyError: 'b'",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/env/lib/python3.12/site-packages/pandas/core/frame.py:9",
        "/usr/lib/python3/dist-packages/pandas/frame.py:9",
        "/usr/lib/python3.12/json/decoder.py:355",
        "~/env/lib64/python3.12/asyncio/runners.py:1",
        "C:\\env\\site-packages\\pandas\\frame.py:9",
        "<frozen importlib._bootstrap>:3",
    ],
)
def test_frames_of_packages_are_in_the_whole_traceback_and_not_in_the_summary(path):
    shown = lines(CELL, OWN, f"File {path}, in get(self)\n----> 9 x\n")
    assert shown[0] == "a.ipynb: full traceback of cell 3 of 4 (In [2])"
    assert f"File {path}, in get(self)" in shown
    assert shown[shown.index("") :] == [
        "",
        "a.ipynb: cell 3 of 4 (In [2]) failed",
        "Cell In[2], line 4",
        "----> 4 total(frame)",
        "File /home/ada/helper.py:2, in total(frame)",
        "----> 2     frame['b']",
        "KeyError: 'b'",
    ]


def test_the_summary_is_short_whatever_the_traceback():
    shown = lines(CELL, *[OWN] * 900, PANDAS)
    assert len(shown) > 2700
    summary = shown[shown.index("") + 1 :]
    assert summary[:4] == [
        "a.ipynb: cell 3 of 4 (In [2]) failed",
        "Cell In[2], line 4",
        "----> 4 total(frame)",
        "... 895 more frames",
    ]
    assert summary[-1] == "KeyError: 'b'"
    # Commands show the last twenty lines of a log.
    assert len(summary) < 20


def test_the_last_line_of_a_long_message_stays_last():
    message = "\n".join(f"line {number}" for number in range(40))
    shown = lines(CELL, error="ValueError", message=message, last=f"ValueError: {message}")
    assert shown[-6:] == [
        "----> 4 total(frame)", "ValueError: line 0", "line 1", "line 2", "...", "line 39",
    ]  # fmt: skip
    assert shown.count("line 20") == 1


def test_a_long_line_does_not_hide_the_class_of_the_error():
    message = "x" * 100_000
    shown = lines(CELL, error="ValueError", message=message, last=f"ValueError: {message}")
    assert f"ValueError: {message}" in shown  # in the whole traceback
    assert shown[-1] == f"ValueError: {message}"[:397] + "..."
    assert shown[-2] == "----> 4 total(frame)"
    short = describe_error("a.ipynb", "cell 1", "ValueError", message, []).splitlines()
    assert [len(line) <= 400 for line in short] == [True, True]


@pytest.mark.parametrize(
    ("traceback", "last"),
    [
        ([], "ValueError: no"),
        (["  Cell In[1], line 1\n    x = (\n         ^\nValueError: incomplete"],
         "ValueError: incomplete"),
        (["An exception has occurred, use %tb.\n", "ValueError: no\n"], "ValueError: no"),
        (["text of another kernel"], "ValueError: no"),
    ],
)  # fmt: skip
def test_the_error_is_the_last_line_once(traceback, last):
    shown = describe_error("a.ipynb", "cell 1", "ValueError", "no", traceback).splitlines()
    assert shown[-1] == last
    assert sum(line.startswith("ValueError") for line in shown) == 1


def test_an_error_without_a_message_is_shown_by_its_class():
    assert describe_error("a.ipynb", "cell 1", "KeyboardInterrupt", "", []).splitlines() == [
        "a.ipynb: cell 1 failed",
        "KeyboardInterrupt",
    ]


def test_cells_are_counted_as_in_the_notebook_that_was_submitted(tmp_path):
    output = tmp_path / "done.ipynb"
    tags = [
        ["papermill-error-cell-tag"], [], ["parameters"], ["injected-parameters"],
        ["papermill-error-cell-tag"], [], [],
    ]  # fmt: skip
    cells = [{"metadata": {"tags": each} if each else {}} for each in tags]
    output.write_text(json.dumps({"cells": cells}))
    # Numbers do not count the two cells added for the error.
    assert name_cell(output, 1, 1) == "cell 2 of 4 (In [1])"
    assert name_cell(output, 3, 3) == "cell 3 of 4 (In [3])"
    assert name_cell(output, 2, 2) == "the cell with the job's parameters, after cell 2 (In [2])"
    assert name_cell(output, 4, None) == "cell 4 of 4"
    output.write_text("{")
    assert name_cell(output, 4, None) == "cell 5"


@pytest.mark.slow
@pytest.mark.process
def test_a_step_shows_the_error_of_its_cell_and_no_frames_of_papermill(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# Totals"),
        nbformat.v4.new_code_cell("year = '1990'", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("import json\ndef parsed():\n    return json.loads(year)"),
        nbformat.v4.new_code_cell("parsed()"),
    ]
    nbformat.write(notebook, "totals.ipynb")
    step = Step(name="totals", kind="notebook", path="totals.ipynb")
    job = run_job(step, parameters={"year": "{"}, max_retries=0)
    assert job.status == FAILED
    (attempt,) = job.attempts
    error = "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2"
    assert error in attempt.reason
    assert attempt.fault == "input"
    log = job.logs()
    assert "json/decoder.py" in log
    assert "papermill" not in log
    assert "notebook.py" not in log
    title, *end = log[log.rindex("totals.ipynb: ") :].splitlines()
    assert [title, *end[:4]] == [
        "totals.ipynb: cell 4 of 4 (In [4]) failed",
        "Cell In[4], line 1",
        "----> 1 parsed()",
        "Cell In[3], line 3, in parsed()",
        "----> 3     return json.loads(year)",
    ]
    assert end[4].startswith(error)
