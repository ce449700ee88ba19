"""Functions as jobs: refusals when they are decorated, and when they are submitted."""

from __future__ import annotations

import sys
import threading

import pytest
from job_cases import LIMIT

import hyperplane
from hyperplane.errors import JobFailed, MissingPackage, RequestError, UnknownArgument
from hyperplane.jobs import job_control, supervisor_client
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(call):
    with pytest.raises(RequestError) as caught:
        call()
    return {fault.where: fault for fault in caught.value.faults}


def test_misspelled_options_are_reported_with_the_most_similar_name():
    faults = refused(
        lambda: hyperplane.job(max_retry=1, timout=3, timeout=-3, resources={"core": 2}, retries=11)
    )
    assert faults["max_retry"].advice == "did you mean max_retries?"
    assert "timeout" in faults["timout"].advice
    assert {"timeout", "retries"} < set(faults)
    assert any("core" in where for where in faults)


def test_timeout_is_the_job_option_for_which_minus_one_is_no_limit():
    @hyperplane.job(timeout=-1, active_timeout=-1)
    def double(number):
        return 2 * number

    job = double.submit(4)
    assert job.result() == 8
    assert (job.job.timeout, job.job.active_timeout) == (-1, -1)
    assert job.job.pipeline.steps[0].timeout is None


@pytest.mark.parametrize("option", ["kind", "argv", "path", "depends_on"])
def test_step_fields_set_by_the_decorator_are_no_options(option):
    assert list(refused(lambda: hyperplane.job(**{option: "x"}))) == [option]


@pytest.mark.parametrize("value", ["a label", "", 7])
def test_a_job_type_is_an_option(value, monkeypatch):
    calls = []
    monkeypatch.setattr(
        job_control, "new_job", lambda pipeline, **options: calls.append(options) or 1 / 0
    )
    if value == "a label":
        with pytest.raises(ZeroDivisionError):
            hyperplane.job(job_type=value)(int).submit()
        assert calls == [{"job_type": value}]
    else:
        assert list(refused(lambda: hyperplane.job(job_type=value))) == ["job_type"]


def test_functions_that_cannot_be_jobs_are_refused_when_decorated():
    async def later():
        return 1

    async def some():
        yield 1

    def many():
        yield 1

    for function, kind in ((later, "a coroutine"), (some, "a coroutine"), (many, "a generator")):
        assert refused(lambda function=function: hyperplane.job(function))["function"].asked == kind
    for wrong in ("name", 7, staticmethod(len)):
        fault = refused(lambda function=wrong: hyperplane.job(function))["function"]
        assert "a function" in fault.allowed


def test_positional_keyword_and_variadic_arguments_arrive():
    @hyperplane.job(max_retries=0)
    def every(first, /, second, *others, last=0, **more):
        return (first, second, others, last, more)

    assert every.submit(1, 2, 3, 4, last=5, six=6).result(LIMIT) == (1, 2, (3, 4), 5, {"six": 6})


def test_arguments_that_do_not_match_the_signature_submit_nothing():
    @hyperplane.job
    def add(first, *, second=0):
        return first + second

    before = len(open_store().find())
    assert refused(lambda: add.submit())["submit"].asked == "missing a required argument: 'first'"
    with pytest.raises(UnknownArgument, match="nothing was submitted"):
        add.submit(1, secnd=2)
    with pytest.raises(RequestError) as caught:
        add.submit()
    assert not isinstance(caught.value, TypeError)
    fault = refused(lambda: add.submit(1, secnd=2))["submit"]
    assert fault.allowed == "arguments of add(first, *, second=0)"
    assert fault.advice == "did you mean second?"
    assert len(open_store().find()) == before


def test_a_missing_package_of_jobs_is_an_error_at_once(monkeypatch):
    @hyperplane.job
    def double(number):
        return 2 * number

    def start():
        raise AssertionError("a supervisor that cannot run was started")

    monkeypatch.setattr(supervisor_client, "_start_supervisor", start)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    before = {path for path in jobs_folder().rglob("*") if path.is_file()}
    with pytest.raises(MissingPackage, match=r"pip install 'hyperplane\[jobs\]'"):
        double.submit(4)
    assert {path for path in jobs_folder().rglob("*") if path.is_file()} == before


def test_values_that_cannot_be_pickled_are_named_and_nothing_is_submitted():
    lock = threading.Lock()

    @hyperplane.job
    def count(rows, guard=None):
        with lock:
            return len(rows), guard

    before = list(jobs_folder().glob("*"))
    with pytest.raises(RequestError, match="3 faults in the request, nothing was sub") as caught:
        count.submit([lock], guard=lock)
    faults = {fault.where: fault for fault in caught.value.faults}
    assert list(faults) == ["function", "args[0]", "guard"]
    assert "sent to the job; its variable 'lock' (lock) cannot" in faults["function"].allowed
    assert (faults["args[0]"].asked, faults["guard"].asked) == ("list", "lock")
    assert list(jobs_folder().glob("*")) == before


def test_a_result_that_cannot_be_pickled_is_the_reason_and_is_not_computed_again():
    @hyperplane.job(max_retries=3)
    def lock():
        return [threading.Lock()]

    job = lock.submit()
    with pytest.raises(JobFailed, match="its result of type list cannot be pickled") as caught:
        job.result(LIMIT)
    assert "hyperplane.save" in str(caught.value)
    assert len(job.attempts) == 1
    assert "File " not in job.logs()


def test_a_lack_of_memory_for_a_result_is_no_fault_of_the_result():
    class Large:
        def __reduce__(self):
            raise MemoryError("too large")

    @hyperplane.job(max_retries=0)
    def large():
        return Large()

    job = large.submit()
    with pytest.raises(JobFailed, match="MemoryError: too large"):
        job.result(LIMIT)
    assert [each.fault for each in job.attempts] == ["memory"]


def test_an_error_without_text_is_named_as_the_reason_of_a_result_that_cannot_be_pickled():
    class ErrorWithoutText(Exception):
        def __str__(self):
            raise ValueError("no text")

    class Odd:
        def __reduce__(self):
            raise ErrorWithoutText

    @hyperplane.job
    def odd():
        return Odd()

    with pytest.raises(JobFailed, match="cannot be pickled: ErrorWithoutText; return"):
        odd.submit().result(LIMIT)
