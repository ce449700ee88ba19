"""Warnings and errors of awaited calls name the line of the program that made the call."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import pickle
import traceback
import warnings
from pathlib import Path

import pytest

import hyperplane
from hyperplane import jobs
from hyperplane import notebook_common as nc
from hyperplane.errors import RequestError
from hyperplane.jobs import call_site
from hyperplane.jobs.call_site import attribute_to_caller

pytestmark = pytest.mark.process

AWAITED = [
    "cancel_pipeline_job", "checkjobs", "get_a_job_output", "get_current_job_output",
    "get_previous_job_runs", "graphql_operation", "set_current_job_output", "submit_pipeline_job",
]  # fmt: skip

CELL = """
import asyncio
import hyperplane.notebook_common as nc

async def main():
    return {call}

def run():
    return asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.sh").write_text("exit 0")


def cell(call, name="<cell 7>"):
    """A program whose file is named as that of a notebook's cell; the call is in its line 6."""
    namespace = {"__name__": "__main__"}
    exec(compile(CELL.format(call=call), name, "exec"), namespace)
    return namespace["run"]


SUBMIT = "nc.submit_pipeline_job(pipelineYamlPath='step.sh', jobType='bsaic')"


@pytest.mark.parametrize(
    "call",
    [f"await {SUBMIT}", f"await asyncio.gather({SUBMIT})", f"await asyncio.create_task({SUBMIT})"],
)
def test_a_warning_is_at_the_line_of_the_cell(call):
    with pytest.warns(UserWarning, match="bsaic") as caught:
        cell(call)()
    assert {(warning.filename, warning.lineno) for warning in caught} == {("<cell 7>", 6)}


def test_a_warning_of_a_plain_call_is_at_its_line():
    with pytest.warns(UserWarning, match="bsaic") as caught:
        jobs.submit("step.sh", job_type="bsaic")
    assert {warning.filename for warning in caught} == {__file__}


def test_a_repeated_warning_at_one_line_is_shown_once():
    run = cell(f"[await {SUBMIT} for _ in range(2)]")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        run()
    assert len(caught) == 1


def test_a_warning_that_is_an_error_submits_nothing():
    before = len(jobs.list_jobs(limit=None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="bsaic"):
            cell(f"await {SUBMIT}")()
    assert len(jobs.list_jobs(limit=None)) == before


@pytest.mark.parametrize(
    "call",
    [
        "await nc.submit_pipeline_job(pipelineYamlPath='none.yaml')",
        "await nc.checkjobs(['none'])",
        "await nc.checkjobs(['none'], loop=True)",
        "await nc.checkjobs(7)",
        "await nc.get_a_job_output(7)",
        "await nc.cancel_pipeline_job(7)",
        "await asyncio.gather(nc.cancel_pipeline_job(7))",
    ],
)
def test_the_traceback_of_an_error_has_the_cell_and_no_thread(call):
    with pytest.raises(RequestError) as caught:
        cell(call)()
    frames = traceback.extract_tb(caught.value.__traceback__)
    [line] = [number for number, frame in enumerate(frames) if frame.lineno == 6
              and frame.filename == "<cell 7>"]  # fmt: skip
    files = [frame.filename for frame in frames[line:]]
    assert not [file for file in files if "concurrent" in file or "asyncio" in file]
    assert Path(files[-1]).is_relative_to(Path(hyperplane.__file__).parent)


@pytest.mark.parametrize("name", AWAITED)
def test_every_coroutine_function_is_wrapped_and_keeps_its_signature(name):
    function = getattr(nc, name)
    assert inspect.unwrap(function) is not function
    assert inspect.iscoroutinefunction(inspect.unwrap(function))
    assert inspect.signature(function) == inspect.signature(inspect.unwrap(function))
    assert function.__doc__


def test_the_list_of_coroutine_functions_is_complete():
    public = {name: getattr(nc, name) for name in nc.__all__}
    unwrapped = {inspect.unwrap(value) for value in public.values() if inspect.isfunction(value)}
    coroutines = {value.__name__ for value in unwrapped if inspect.iscoroutinefunction(value)}
    assert sorted(coroutines) == AWAITED


def test_a_call_that_is_never_awaited_is_named():
    with pytest.warns(RuntimeWarning, match="'checkjobs' was never awaited"):
        _ = [nc.checkjobs([])].clear()


def test_a_warning_after_an_awaited_call_is_at_its_own_line():
    @attribute_to_caller
    async def outer():
        call_site.warn("inside")

    async def main():
        await outer()
        call_site.warn("outside")

    with pytest.warns(UserWarning, match="side") as caught:
        asyncio.run(main())
    lines = {str(warning.message): warning.lineno for warning in caught}
    first = inspect.getsourcelines(main)[1]
    assert lines == {"inside": first + 1, "outside": first + 2}


def test_closing_a_call_in_another_context_raises_nothing():
    @attribute_to_caller
    async def waits():
        await asyncio.sleep(0)

    work = waits()
    contextvars.copy_context().run(work.send, None)
    contextvars.copy_context().run(work.close)


def test_an_unknown_argument_suggests_the_similar_one():
    with pytest.raises(TypeError, match=r"jobNam='x': .*; did you mean jobName\?") as caught:
        nc.submit_pipeline_job(jobNam="x")
    assert isinstance(caught.value, RequestError)
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)
    with pytest.raises(TypeError, match="jobID"):  # Python reports a missing argument
        asyncio.run(nc.cancel_pipeline_job())
