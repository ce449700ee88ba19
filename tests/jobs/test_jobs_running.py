"""Runs of pipelines: order, parameters, retries, timeouts, and stored records."""

from __future__ import annotations

import json
import sys

import dask.config
import psutil
import pytest
from job_cases import LIMIT, bash, is_alive, run_job, submit_job, wait_until

from hyperplane.errors import JobCancelled, JobFailed, JobTimeout, RequestError
from hyperplane.jobs import Resources, Step, submit
from hyperplane.jobs.store.job_records import DONE, FAILED, TIMED_OUT
from hyperplane.jobs.store.jobs_home import this_machine

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def spans(job):
    return {attempt.step: (attempt.started, attempt.ended) for attempt in job.attempts}


def test_steps_without_dependencies_run_in_order():
    job = run_job(*(bash(f"s{i}", "sleep 0.1") for i in range(3)))
    assert job.status == DONE
    ends = spans(job)
    assert [name for name, _ in sorted(ends.items(), key=lambda item: item[1])] == [
        "s0",
        "s1",
        "s2",
    ]
    assert ends["s0"][1] <= ends["s1"][0]
    assert ends["s1"][1] <= ends["s2"][0]


def test_steps_wait_for_those_they_name_and_for_no_others():
    names = ("m0", "m1", "m2")
    # Each continues when all of them run.
    together = "touch $0.on; until [ $(ls *.on | wc -l) = 3 ]; do sleep 0.02; done"
    first = bash("first", "sleep 0.2")
    middle = [bash(name, together.replace("$0", name), depends_on=("first",)) for name in names]
    last = bash("last", "true", depends_on=names)
    intervals = spans(run_job(first, *middle, last))
    starts, ends = zip(*(intervals[name] for name in names), strict=True)
    assert intervals["first"][1] <= min(starts)
    assert max(starts) < min(ends)
    assert intervals["last"][0] >= max(ends)


def test_only_steps_that_depend_on_a_failed_step_are_skipped():
    job = run_job(
        bash("bad", "echo nothing there >&2; exit 64"),
        bash("after", "true"),
        bash("other", "true", depends_on=()),
    )
    assert job.status == FAILED
    assert {attempt.step: attempt.status for attempt in job.attempts} == {
        "bad": FAILED,
        "other": DONE,
    }
    assert "exit code 64: nothing there" in job.job.reason
    with pytest.raises(JobFailed, match="nothing there"):
        job.result()


@pytest.mark.parametrize(
    "value",
    [
        'it\'s "quoted"',
        "two\nlines",
        "$(touch canary) `touch canary`",
        "a; touch canary",
        "ü 漢 🙂",
        "-n",
        "\\n\t",
    ],
)
def test_parameters_arrive_unchanged(value, tmp_path):
    script = tmp_path / "show.py"
    script.write_text(
        "import json, os\n"
        "names = ('MODEL_NAME', 'HYPERPLANE_JOB_PARAMETER_MODEL_NAME')\n"
        "print(json.dumps([os.environ[name] for name in names]))\n"
    )
    job = submit(str(script), parameters={"model-name": value, "n": 3, "on": True})
    job.wait(LIMIT)
    assert json.loads(job.logs()) == [value, value]
    assert not (tmp_path / "canary").exists()
    assert job.job.parameters == {"model-name": value, "n": "3", "on": "true"}


def test_parameters_do_not_replace_protected_variables():
    job = run_job(
        bash(
            "show",
            "p=HYPERPLANE_JOB_PARAMETER_; a=${p}PATH; b=${p}LD_PRELOAD; "
            'echo "$PATH|${!a}|${!b}|${LD_PRELOAD-none}"',
        ),
        parameters={"path": "/evil", "ld-preload": "/evil.so"},
    )
    path, *others = job.logs().strip().split("|")
    assert others == ["/evil", "/evil.so", "none"]
    assert path != "/evil"


def test_transient_failures_are_retried_and_input_errors_are_not(tmp_path):
    count = (
        f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n+1)) > {tmp_path}/n; echo try $n;"
    )
    job = run_job(bash("flaky", f"{count} [ $n -ge 2 ]", retries=3))
    assert [(attempt.number, attempt.status) for attempt in job.attempts] == [
        (1, FAILED),
        (2, FAILED),
        (3, DONE),
    ]
    assert [job.job.folder_path.joinpath(attempt.log).read_text() for attempt in job.attempts] == [
        "try 0\n",
        "try 1\n",
        "try 2\n",
    ]
    bad = run_job(Step(name="bad", kind="command", argv=("python3", "-c", "int('x')"), retries=3))
    assert [(attempt.status, attempt.fault) for attempt in bad.attempts] == [(FAILED, "input")]


def test_a_retry_of_a_job_does_not_repeat_finished_steps(tmp_path):
    once = f"echo x >> {tmp_path}/first"
    flaky = f"echo x >> {tmp_path}/second; [ $(wc -l < {tmp_path}/second) -ge 3 ]"
    job = run_job(bash("first", once), bash("second", flaky), max_retries=2)
    assert (job.status, job.job.tries) == (DONE, 2)
    assert (tmp_path / "first").read_text() == "x\n"
    assert (tmp_path / "second").read_text() == "x\n" * 3
    again = run_job(bash("first", "exit 1"), max_retries=0)
    assert (again.status, len(again.attempts)) == (FAILED, 1)


def test_a_step_that_takes_too_long_is_ended_with_all_it_started(tmp_path):
    child = tmp_path / "child"
    lines = f"sleep 600 & echo $! > {tmp_path}/draft; mv {tmp_path}/draft {child}; wait"
    for timeout in (0.5, 5, 50):  # until the step has enough time to start
        job = run_job(bash("slow", lines, timeout=timeout), max_retries=0)
        (attempt,) = job.attempts
        assert (job.status, attempt.status) == (FAILED, TIMED_OUT)
        assert attempt.reason == f"exceeded the step's timeout of {timeout} s"
        if child.exists():
            break
    wait_until(lambda: not is_alive(int(child.read_text())))


def test_a_job_that_takes_too_long_is_timed_out():
    job = run_job(bash("slow", "sleep 600"), active_timeout=0.5)  # shorter than the step
    assert job.status == TIMED_OUT
    with pytest.raises(JobTimeout, match=r"exceeded its active_timeout of 0\.5 s"):
        job.result()
    for timeout in (0.5, 5, 50):  # until the job has enough time to start
        early = run_job(bash("slow", "sleep 600"), timeout=timeout, active_timeout=100)
        reason = f"exceeded its timeout of {timeout} s from its submission or last resume"
        if early.job.started:
            break
        assert early.job.reason == f"not started in time: {reason}"
    assert (early.status, early.job.reason) == (TIMED_OUT, reason)


def test_a_cancelled_job_ends_its_steps_with_sigterm(tmp_path):
    polite = f"trap 'echo bye; exit 3' TERM; touch {tmp_path}/on; while :; do sleep 0.05; done"
    with dask.config.set({"hyperplane.jobs.grace": "100s"}):
        job = submit_job(bash("polite", polite), bash("never", "true"))
    wait_until((tmp_path / "on").exists)
    job.cancel()
    assert job.wait(LIMIT) == "cancelled"
    assert "bye" in job.logs()
    assert job.attempts[0].exit_code == 3
    assert [attempt.step for attempt in job.attempts] == ["polite"]
    with pytest.raises(JobCancelled, match=f"cancelled by {this_machine()} at .* UTC, from Python"):
        job.result()
    job.cancel()
    assert job.status == "cancelled"


@pytest.mark.slow
def test_a_step_that_ignores_sigterm_is_killed_before_the_job_has_ended(tmp_path):
    stubborn = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    with dask.config.set({"hyperplane.jobs.grace": "1s"}):
        job = submit_job(bash("stubborn", stubborn))
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    job.cancel()
    assert job.wait(LIMIT) == "cancelled"
    assert [attempt.status for attempt in job.attempts] == ["cancelled"]
    # It was killed, and ends when it is scheduled on a busy machine.
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_a_resumed_job_does_not_repeat_finished_steps(tmp_path):
    job = run_job(
        bash("first", f"echo x >> {tmp_path}/first"),
        bash("second", f"test -e {tmp_path}/there"),
        max_retries=0,
    )
    assert job.status == FAILED
    (tmp_path / "there").touch()
    submitted = job.job.submitted
    assert job.resume().wait(LIMIT) == DONE
    assert (tmp_path / "first").read_text() == "x\n"
    assert job.job.submitted == submitted < job.job.resumed <= job.job.started


def test_chunks_have_their_numbers_and_only_those_that_failed_run_again(tmp_path):
    text = (
        'shard="$HYPERPLANE_SHARD_INDEX/$HYPERPLANE_SHARD_COUNT";'
        f'echo "$CHUNK_ID $ITEM $shard" >> {tmp_path}/$CHUNK_ID;'
        f"[ $CHUNK_ID != 1 ] || [ -e {tmp_path}/there ]"
    )
    job = run_job(bash("fan", text, foreach=("a", "b", "c")), max_retries=0)
    assert job.status == FAILED
    assert "step 'fan' [1] failed" in job.job.reason
    (tmp_path / "there").touch()
    assert job.resume().wait(LIMIT) == DONE
    lines = [(tmp_path / str(chunk)).read_text().splitlines() for chunk in range(3)]
    assert lines == [["0 a 0/3"], ["1 b 1/3"] * 2, ["2 c 2/3"]]


@pytest.mark.slow
def test_a_plan_is_kept_when_half_of_its_chunks_are_lost(tmp_path):
    files = tmp_path / "in"
    files.mkdir()
    for number in range(40):
        (files / f"part-{number}.csv").write_bytes(b"x" * (number + 1))
    plan = tmp_path / "plan.parquet"
    code = f"import hyperplane; hyperplane.plan_shards({str(files)!r}, 8, {str(plan)!r})"
    convert = tmp_path / "convert.py"
    convert.write_text(
        "import os, pathlib, signal, hyperplane\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "idx = hyperplane.shard().idx\n"
        f"with (folder / f'out-{{idx}}').open('a') as out:\n"
        f"    print(*hyperplane.planned_files({str(plan)!r}), file=out)\n"
        "if idx % 2 and not (folder / 'again').exists():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    job = run_job(
        Step(name="plan", kind="command", argv=(sys.executable, "-c", code)),
        Step(name="convert", kind="python", path=str(convert), chunks=8),
        max_retries=0,
    )
    assert job.status == FAILED
    (files / "new.csv").touch()  # not in the plan
    (tmp_path / "again").touch()
    assert job.resume().wait(LIMIT) == DONE
    lines = [(tmp_path / f"out-{idx}").read_text().splitlines() for idx in range(8)]
    assert [len(each) for each in lines] == [1, 2] * 4
    assert all(len(set(each)) == 1 for each in lines)
    done = [path for each in lines for path in each[0].split()]
    assert sorted(done) == sorted(map(str, files.glob("part-*.csv")))


def test_max_parallel_limits_the_concurrent_chunks(tmp_path):
    text = (
        # Once three were seen at once, the others need not wait.
        "touch on.$CHUNK_ID; until [ -e three ]; do n=$(ls | grep -c on); echo $n >> seen; "
        "[ $n -lt 3 ] || touch three; sleep 0.02; done; "
        "ls | grep -c on >> seen; sleep 0.1; rm on.$CHUNK_ID"
    )
    job = run_job(bash("fan", text, chunks=8, max_parallel=3))
    assert job.status == DONE
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert max(seen) == 3


def test_steps_that_need_most_of_the_cores_run_one_at_a_time(tmp_path):
    half = Resources(cores=max(0.5, (psutil.cpu_count() or 1) * 0.6))
    text = f"mkdir {tmp_path}/alone && sleep 0.2 && rmdir {tmp_path}/alone"
    steps = [bash(f"s{i}", text, depends_on=(), resources=half) for i in range(3)]
    assert run_job(*steps, max_retries=0).status == DONE


def test_a_step_that_ran_out_of_memory_gets_more_or_smaller_pieces(tmp_path):
    text = (
        f'echo "${{HYPERPLANE_JOB_PARAMETER_PIECES-1}} $HYPERPLANE_CLUSTER" >> {tmp_path}/seen;'
        "python3 -c 'import os; raise MemoryError' || "
        '[ "${HYPERPLANE_JOB_PARAMETER_PIECES-1}" -ge 4 ]'
    )
    step = bash(
        "big", text, chunks=1, retries=3, split=2, more_memory=1.5, cluster={"ram_gb_per_proc": 2}
    )
    job = run_job(step, max_retries=0)
    assert job.status == DONE
    seen = [line.split(" ", 1) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [int(pieces) for pieces, _ in seen] == [1, 2, 4]
    assert [json.loads(cluster)["ram_gb_per_proc"] for _, cluster in seen] == [2, 3.0, 4.5]


def test_all_faults_of_a_submission_are_reported_together():
    with pytest.raises(RequestError) as caught:
        submit(
            "nowhere.yaml",
            name="no spaces",
            timeout=0,
            max_retries=11,
            parameters={"a-b": 1, "a_b": 2, "c": None},
        )
    wheres = [fault.where for fault in caught.value.faults]
    for where in ("name", "timeout", "max_retries", "parameters['a_b']", "parameters['c']"):
        assert where in wheres
    assert any("nowhere.yaml" in str(fault) for fault in caught.value.faults)


def test_a_missing_program_is_an_input_failure():
    job = run_job(Step(name="none", kind="command", argv=("no-such-program",)))
    assert [(attempt.status, attempt.fault) for attempt in job.attempts] == [(FAILED, "input")]
