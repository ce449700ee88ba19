"""Arguments, refusals and results of the functions for jobs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import replace

import pytest
from job_cases import LIMIT, bash, run_job, submit_job

from hyperplane import notebook_common as nc
from hyperplane.errors import JobCancelled, JobError, RequestError
from hyperplane.jobs import JobHandle, Pipeline, Step, job_control, job_output, submit
from hyperplane.jobs.execution import requirements
from hyperplane.jobs.execution.step_command import attempt_prefix
from hyperplane.jobs.execution.step_environment import step_variables, without_other_secrets
from hyperplane.jobs.job_control import Submitted, cancel, new_job, resume, to_job_id
from hyperplane.jobs.job_summary import summarize_jobs
from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    Attempt,
    WorkUnit,
)
from hyperplane.jobs.store.jobs_home import open_store, this_machine
from hyperplane.jobs.submission.parameters import is_protected, parameter_faults

pytestmark = pytest.mark.process

PLAIN = """
PIPELINE NODES NODE_ID LDAP_HOST SPARKLINE RAYLEIGH GITHUB_ISSUE CUDALIKE JAVA UVULA PERLITE
SSLMODE OMPHALOS YEAR MODEL_NAME PATHS HOMEPAGE ENVIRONMENT MY_PATH RUBY
"""
DECIDING = """
PATH HOME LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES PYTHONPATH PYTHONSTARTUP PYTHON
BASH_ENV BASHOPTS ENV NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS OPENSSL_CONF GCONV_PATH LOCPATH
NLSPATH RES_OPTIONS HOSTALIASES TERMINFO PERL5OPT PERL5LIB PERLLIB RUBYOPT RUBYLIB
JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS SSLKEYLOGFILE SSL_CERT_FILE GIT_SSH_COMMAND
PIP_INDEX_URL HTTPS_PROXY DASK_CONFIG HYPERPLANE_CLUSTER AWS_PROFILE LC_ALL IPYTHONDIR
CUDA_VISIBLE_DEVICES IFS SPARK_HOME RAY_ADDRESS _ 1ST GLIBC_TUNABLES
"""


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def stored_job(*steps, name="kept", **options):
    """A job in the store that no supervisor of this machine runs."""
    job = new_job(Pipeline.from_steps("test", steps or [bash("a", "true")]), name=name, **options)
    job = replace(job, machine="other@elsewhere")
    open_store().add(job)
    return job


def refused(**options):
    with pytest.raises(RequestError) as caught:
        new_job(Pipeline.from_steps("test", [bash("a", "true")]), **options)
    return {fault.where: fault for fault in caught.value.faults}


def test_times_of_jobs_may_be_text():
    job = stored_job(timeout="10 min", active_timeout="1.5 hrs")
    assert (job.timeout, job.active_timeout) == (600, 5400)
    assert "'10 min'" in refused(timeout="10 parsecs")["timeout"].allowed
    for timeout, duration in (("1 ms", "after 0.001 s"), (0, "after 0 s")):
        with pytest.raises(TimeoutError, match=duration):
            JobHandle(job.id).wait(timeout)
    with pytest.raises(RequestError, match=r"timeout = 'soon': .*'10 min'"):
        JobHandle(job.id).wait("soon")


def test_a_pending_job_is_cancelled_at_once_without_a_supervisor(monkeypatch):
    notifications = []
    monkeypatch.setattr(
        job_control.supervisor_client, "notify_supervisor", lambda *args: notifications.append(args)
    )
    job = stored_job()
    assert cancel(job.id).status == "pending"
    now = open_store().get(job.id)
    assert (now.status, notifications) == (CANCELLED, [])
    by = rf"cancelled by {re.escape(this_machine())} at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(f"{by}, from Python", now.reason)
    assert now.ended >= now.submitted
    with pytest.raises(JobCancelled, match=r"cancelled by .* from Python"):
        JobHandle(job.id).result(1)
    open_store().update(job.id, status=IN_PROGRESS)
    cancel(job.id)
    now = open_store().get(job.id)
    assert (now.status, now.cancelled, notifications) == (IN_PROGRESS, True, [()])


def test_a_job_that_runs_is_not_resumed(tmp_path):
    job = submit_job(bash("waits", "until [ -e go ]; do sleep 0.02; done"), max_retries=0)
    while job.status != IN_PROGRESS:
        time.sleep(0.02)
    with pytest.raises(JobError, match="already in progress; cancel it"):
        job.resume()
    (tmp_path / "go").touch()
    assert job.wait(LIMIT) == DONE
    with pytest.raises(JobError, match="is done"):
        resume(Submitted(job.id, "any"))


@pytest.mark.parametrize("label", [7, "", "x" * 65, "two\nlines", "half \ud800"])
def test_a_label_that_is_not_one_line_of_text_is_refused(label):
    assert list(refused(job_type=label)) == ["job_type"]


def test_an_undocumented_label_is_stored_with_a_warning():
    steps = [bash("a", "true")]
    known = ("basic", "gpu-full", "custom", "16_16", "hyperplane-med")
    jobs_by_label = {label: new_job(Pipeline.from_steps("test", steps), job_type=label)
            for label in (*known, "minibsic", "zz9")}  # fmt: skip
    warnings_by_label = {name: job_control.job_warnings(job) for name, job in jobs_by_label.items()}
    assert [name for name, warnings in warnings_by_label.items() if warnings] == ["minibsic", "zz9"]
    assert "did you mean minibasic" in warnings_by_label["minibsic"][0]
    assert "minibasic, basic, dl" in warnings_by_label["zz9"][0]
    with pytest.warns(UserWarning, match="job_type 'minibsic' is neither"):
        job = submit(Pipeline.from_steps("test", steps), job_type="minibsic")
    assert (job.wait(LIMIT), job.job.job_type) == (DONE, "minibsic")


def test_a_label_comes_from_the_call_or_the_file_and_is_basic_otherwise():
    step = bash("a", "true")
    pipeline = Pipeline.from_steps("test", [step], job_type="large")
    assert [new_job(pipeline, job_type=label).job_type for label in (None, "x" * 64)] == [
        "large",
        "x" * 64,
    ]
    assert new_job(Pipeline.from_steps("test", [step])).job_type == "basic"
    long = Pipeline.from_steps("test", [step], job_type="x" * 65)
    with pytest.raises(RequestError, match="1 to 64 characters"):
        new_job(long)


def test_parameters_that_no_environment_can_hold_are_refused():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    faults = refused(
        parameters={
            "long": "x" * 120_000,
            "half": "a\ud800",
            "deep": deep,
            "\udfff": 1,
            "zero": "\0",
        }
    )
    assert {fault.asked for fault in faults.values()} == {
        "120012 bytes", "text with a lone surrogate", "list", "'\\udfff'",
        "text with a NUL character",
    }  # fmt: skip
    str(RequestError(list(faults.values()))).encode()
    (together,) = parameter_faults({"a": "x" * 70_000, "b": "y" * 70_000})
    assert (together.where, together.asked) == ("parameters", "140018 bytes")
    for fault in (faults["parameters['long']"], together):
        assert "to a file and pass its path" in str(RequestError([fault]))


def test_the_longest_parameter_arrives():
    text = "ü" * 59_990
    script = "import os; print(len(os.environ['TEXT'].encode()), len(os.environ))"
    step = Step(name="a", kind="command", argv=(sys.executable, "-c", script))
    job = run_job(step, parameters={"text": text}, max_retries=0)
    assert job.status == DONE, job.job.reason
    assert job.logs().split()[0] == "119980"


@pytest.mark.parametrize(
    "name",
    PLAIN.split(),
)
def test_plain_parameter_names_are_not_protected(name):
    assert not is_protected(name)


@pytest.mark.parametrize(
    "name",
    DECIDING.split(),
)
def test_protected_parameters_are_set_with_the_prefix_only(name):
    assert is_protected(name)
    variables = step_variables(
        stored_job(parameters={name: "value"}), bash("a", "true"), WorkUnit("a"), 1
    )
    assert name not in variables
    assert variables[f"HYPERPLANE_JOB_PARAMETER_{name}"] == "value"


def test_secrets_of_other_steps_are_hidden_in_every_spelling():
    one = bash("one", "true", secrets=("db/password", "token"))
    two = bash("two", "true", secrets=("token",))
    environment = {
        "DB_PASSWORD": "a", "db/password": "a", "HYPERPLANE_CUSTOM_SECRET_KEY_DB_PASSWORD": "a",
        "token": "b", "TOKEN": "b", "PATH": "/bin",
    }  # fmt: skip
    assert without_other_secrets(one, [one, two], environment) == environment
    assert set(without_other_secrets(two, [one, two], environment)) == {"token", "TOKEN", "PATH"}
    assert set(without_other_secrets(bash("three", "true"), [one, two], environment)) == {"PATH"}


def test_jobs_are_found_by_their_submission_and_by_a_prefix_of_the_id():
    first, second = stored_job(name="first"), stored_job(name="second")
    submitted = Submitted(first.id, first.run_id)
    assert (
        to_job_id(submitted)
        == to_job_id((first.id, "any"))
        == to_job_id(JobHandle(submitted))
        == first.id
    )
    text = summarize_jobs([first.id])[0]
    for ids in (
        first.id,
        first.id[:13],
        submitted,
        JobHandle(first.id),
        [submitted],
        iter([first.id]),
    ):
        assert summarize_jobs(ids)[0] == text
    assert "0 / 2 in progress" in summarize_jobs([first.id[:13], second.id])[0]
    assert asyncio.run(nc.get_a_job_output(submitted)) is None
    assert asyncio.run(nc.cancel_pipeline_job(submitted)) == {"id": first.id, "status": "cancelled"}
    assert asyncio.run(nc.checkjobs(submitted, loop=True)).endswith(f"{first.id} cancelled None")
    asyncio.run(nc.cancel_pipeline_job(second.id[:13]))
    for bad in (7, None, [7], b"x"):
        with pytest.raises(RequestError):
            summarize_jobs(bad)
    for call in (JobHandle, cancel, resume, job_output.get_output):
        with pytest.raises((RequestError, JobError)):
            call(7.5)


def test_an_output_is_set_for_existing_jobs_only():
    job = stored_job()
    job_output.set_output("value", job.id[:13])
    assert job_output.get_output(job.id) == "value"
    with pytest.raises(JobError, match="no such job"):
        job_output.set_output("value", "no-such-job")
    cancel(job.id)


def test_earlier_runs_are_found_behind_many_later_ones():
    runs = [new_job(Pipeline.from_steps("test", [bash("a", "true")]), name="daily")] * 9
    runs = [replace(job, id=f"run-{i}", submitted=100.0 + i) for i, job in enumerate(runs)]
    for job in runs:
        open_store().add(replace(job, status=DONE))
    earlier = [
        [run["id"] for run in job_output.previous_runs(f"run-{i}", limit=2)] for i in (0, 1, 4)
    ]
    assert earlier == [[], ["run-0"], ["run-3", "run-2"]]


def test_generated_names_differ():
    names = [new_job(Pipeline.from_steps("test", [bash("a", "true")])).name for _ in range(200)]
    assert len(set(names)) > 195
    assert all(re.fullmatch("[a-z]+_[a-z]+_[0-9a-f]{4}", name) for name in names)


def test_the_name_of_the_installation_step_is_reserved(tmp_path):
    (tmp_path / "requirements.txt").write_text("")
    step = bash(requirements.INSTALL_STEP, "true")
    with pytest.raises(RequestError, match="reserved for the installation"):
        new_job(Pipeline.from_steps("test", [step], requirements="requirements.txt"))
    job = new_job(
        Pipeline.from_steps("test", [bash("pip install", "true")], requirements="requirements.txt")
    )
    places = {
        attempt_prefix(job, WorkUnit(name), 1)
        for name in ("pip install", requirements.INSTALL_STEP)
    }
    assert len({place.parent for place in places}) == 2


def attempt(job, step, number, status, *, began, text, chunk=-1):
    log = f"{step}.{chunk}.{number}.log"
    job.folder_path.mkdir(parents=True, exist_ok=True)
    (job.folder_path / log).write_text(text)
    ended = 0.0 if status == IN_PROGRESS else began + 1
    open_store().save_attempt(
        Attempt(job.id, step, chunk, number, status, started=began, ended=ended, log=log)
    )


def test_logs_are_those_of_the_step_that_failed_or_ended_last():
    record = stored_job(bash("a", "true"), bash("b", "true"), name="logs")
    job = JobHandle(record.id)
    attempt(record, "a", 1, FAILED, began=10, text="a failed")
    assert job.logs() == "a failed"
    attempt(record, "a", 2, DONE, began=20, text="a worked")
    assert job.logs() == job.logs("a") == "a worked"
    attempt(record, "b", 1, IN_PROGRESS, began=30, text="b runs")
    assert job.logs() == "b runs"
    attempt(record, "b", 1, DONE, began=30, text="b worked")
    assert (job.logs(), job.logs("a")) == ("b worked", "a worked")
    for chunk, status in enumerate((DONE, FAILED, DONE)):
        attempt(record, "c", 1, status, began=40 + chunk, text=status, chunk=chunk)
    assert job.logs() == job.logs("c") == FAILED
    with pytest.raises(JobError, match="has no step 'd'; its steps are 'a', 'b'"):
        job.logs("d")
    (record.folder_path / "a.-1.2.log").unlink()
    with pytest.raises(JobError, match=r"cannot be read \(No such file or directory\)"):
        job.logs("a")
    cancel(record.id)


@pytest.mark.parametrize("lines", [-1, 1.5, "3", True])
def test_an_invalid_number_of_log_lines_is_refused(lines):
    job = stored_job()
    with pytest.raises(RequestError, match="a whole number, at least 0"):
        JobHandle(job.id).logs(lines=lines)
    cancel(job.id)


def test_a_handle_shows_the_status_of_its_job(tmp_path):
    job = submit(Pipeline.from_steps("test", [bash("a", "echo one; echo two")]))
    job.wait(LIMIT)
    assert (job.logs(lines=1), job.logs(lines=0)) == ("two", "")
    assert json.loads(json.dumps(job.job.as_dict()))["status"] == DONE


def test_the_old_name_of_the_folder_of_a_job_is_accepted_with_a_warning():
    job = new_job(Pipeline.from_steps("x", [Step(name="a", kind="command", argv=("true",))]))
    with pytest.warns(FutureWarning, match="renamed to Job.folder_path"):
        assert job.place == job.folder_path


def test_a_step_with_more_memory_than_the_machine_is_a_warning_of_the_local_runner(monkeypatch):
    from hyperplane.platforms.local import machine

    monkeypatch.setattr(machine, "total_ram", lambda: 16 * 10**9)
    large = Step(name="large", kind="command", argv=("true",), resources={"ram_gb": 64})
    gang = Step(name="gang", kind="command", argv=("true",), resources={"ram_gb": 5}, gang=4)
    small = Step(name="small", kind="command", argv=("true",), resources={"ram_gb": 16})
    job = job_control.new_job(Pipeline.from_steps("p", [large, gang, small]))
    first, second = job_control.job_warnings(job)
    assert first.startswith("step 'large' asks for 64 GB (resources.ram_gb), but this machine has")
    assert "'gang' asks for 20 GB (resources.ram_gb x gang of 4), but" in second
    assert job_control.job_warnings(replace(job, runner="slurm")) == []


def test_steps_with_more_cores_or_gpus_than_the_machine_are_warnings(monkeypatch):
    from hyperplane.jobs.submission import option_checks
    from hyperplane.platforms.local import machine
    from hyperplane.platforms.local.gpus import Gpus

    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(option_checks, "detect_gpus", lambda: Gpus(1, ("0",), None))
    gang = Step(name="gang", kind="command", argv=("true",), resources={"cores": 0.7}, gang=4)
    wide = Step(name="wide", kind="command", argv=("true",), resources={"cores": 3, "gpus": 2})
    fits = Step(name="fits", kind="command", argv=("true",), resources={"cores": 2, "gpus": 1})
    warnings = job_control.job_warnings(new_job(Pipeline.from_steps("p", [gang, wide, fits])))
    advice = "Ask for less, or choose another runner"
    assert warnings == [
        "step 'gang' asks for 2.8 cores (resources.cores x gang of 4), but this machine has 2 "
        f"cores: it runs alone, and takes longer. {advice}",
        "step 'wide' asks for 3 cores (resources.cores), but this machine has 2 cores: it runs "
        f"alone, and takes longer. {advice}",
        "step 'wide' asks for 2 GPUs (resources.gpus), but this machine has 1 GPU: it gets no "
        f"more, and may fail. {advice}",
    ]


def test_the_handle_of_a_job_with_a_damaged_definition_shows_what_is_known():
    damaged = replace(stored_job(name="damaged"), id="d" * 32, definition="{}", status=FAILED)
    damaged = replace(damaged, machine=this_machine())
    open_store().add(damaged)
    handle = JobHandle(damaged.id)
    assert "damaged; the steps that have begun are shown" in str(handle)
    with pytest.raises(JobError, match="has no step 'a'; its steps are unknown: its def"):
        handle.logs("a")
    with pytest.raises(JobError, match="definition of this job is damaged; submit its pipeline"):
        handle.resume()
    open_store().save_attempt(Attempt(damaged.id, "a", -1, 1, FAILED, 100.0, 101.0))
    assert ("a", "failed") in handle.as_rows()
    with pytest.raises(JobError, match="has no step 'b'; its steps are 'a'"):
        handle.logs("b")
