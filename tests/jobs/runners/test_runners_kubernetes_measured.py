"""Programs of steps in pods that are measured where the image has Python, and start without it."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import kubernetes_server
import pytest
from gang_cases import MEET
from job_cases import bash, run_job
from services import until
from test_runner_contract_kubernetes import ProcessPod
from test_runners_kubernetes_gang import attempt as gang_attempt
from test_runners_kubernetes_gang import run as run_gang
from test_runners_kubernetes_gang import server as gang_server
from test_runners_measured_program import container, first_process
from typer.testing import CliRunner

from hyperplane.cli.app import app
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.execution.run_recording import read_usage
from hyperplane.jobs.runners.kubernetes import measured_command
from hyperplane.jobs.runners.kubernetes.measured_command import (
    measuring_words,
    stage_measuring_programs,
)
from hyperplane.jobs.runners.measured_program import SEND_VARIABLE, USAGE_MARKER
from hyperplane.jobs.runners.usage_lines import split_usage
from hyperplane.jobs.step_records import describe_usage
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.store.tables import STEPS

pytestmark = pytest.mark.process
__all__ = ["container", "gang_server"]

OPTIONS = {"image": "registry.example/flights:1"}
#: Takes 100 MB, and prints no end of line.
SUM = "block = bytearray(b'x') * 100_000_000; print(sum(range(10_000_000)), end='')"


@pytest.fixture
def pods(tmp_path_factory, monkeypatch):
    """An API server whose pods are processes; ``path`` is where their image has programs."""
    monkeypatch.setattr("hyperplane.jobs.runners.kubernetes.pod_process.POLL_SECONDS", 0.1)
    monkeypatch.setattr("hyperplane.platforms.kubernetes.job_watcher.CACHE_SECONDS", 0.0)
    folder, started = tmp_path_factory.mktemp("server"), []
    with kubernetes_server.running_api_server(folder, monkeypatch) as server:
        server.path = ""

        def start(job):
            started.append(ProcessPod(server, job, folder, server.path))
            return [started[-1].content]

        server.run = start
        yield server
        for pod in started:
            pod.end()


def run(*steps, root="."):
    """Run a job in the fake pods; return it and the record of its step."""
    pipeline = Pipeline.from_steps("test", steps, root=root)
    job = submit(pipeline, runner="kubernetes", runner_options=OPTIONS, max_retries=0)
    job.wait(120)
    [record] = open_store().runs(job.job.machine, job_id=job.id, kind=STEPS)
    return job, record


def python(text):
    return Step(name="sum", kind="command", argv=("python", "-c", text))


@pytest.mark.slow
@pytest.mark.parametrize("step", [python(SUM), bash("sum", f'python -c "{SUM}"')])
def test_what_a_step_took_is_recorded_and_not_in_its_log(pods, step):
    job, record = run(step)
    assert job.status == DONE, job.logs()
    assert job.logs() == "49999995000000\n"
    [worker] = record.workers
    assert 100e6 < worker.peak < 300e6
    assert 0.05 < record.cpu_seconds < 100
    assert record.read > 0
    assert worker.busy_cores >= 0
    shown = CliRunner().invoke(app, ["job", "show", job.id])
    assert describe_usage(record)[0] in shown.output
    assert pods.objects == {}


def test_a_script_is_measured_and_sees_only_its_file(pods, tmp_path):
    (tmp_path / "a.py").write_text("import os, sys; print(sys.argv[0]); sys.exit(7)\n")
    job, record = run(Step(name="a", kind="python", path="a.py"), root=tmp_path)
    [attempt] = job.attempts
    assert (job.status, attempt.exit_code) == (FAILED, 7)
    assert job.logs().endswith("/var/lib/hyperplane/a.py\n")
    assert record.workers[0].peak > 0
    files = [file.path for file in stage_measuring_programs()]
    assert not any(path.startswith("/var/lib/hyperplane/") for path in files)


def test_a_program_that_is_killed_counts_as_out_of_memory(pods):
    job, record = run(bash("one", "kill -KILL $$"))
    [attempt] = job.attempts
    assert (attempt.exit_code, attempt.fault) == (-9, "memory")
    assert record.workers[0].peak > 0


def image(folder, *programs):
    """Return the PATH of an image that has only these programs."""
    folder.mkdir()
    for name in programs:
        (folder / name).symlink_to(shutil.which(name))
    return str(folder)


@pytest.mark.parametrize("stub", ["", "#!/bin/sh\necho no such version >&2\nexit 127\n"])
def test_a_step_whose_image_has_no_python_runs_without_figures(pods, tmp_path, stub):
    pods.path = image(tmp_path / "bin", "bash", "sh")
    if stub:
        (tmp_path / "bin" / "python3").write_text(stub)
        (tmp_path / "bin" / "python3").chmod(0o755)
    job, record = run(bash("one", "echo $0 $#; exit 3"))
    assert job.logs() == "bash 0\n"
    assert job.attempts[0].exit_code == 3
    assert record.workers[0].peak == 0


def test_a_program_that_is_neither_starts_unchanged_and_needs_no_secret(pods, tmp_path):
    pods.path = image(tmp_path / "bin", "echo")
    job, record = run(Step(name="one", kind="command", argv=("echo", "begun")))
    assert (job.status, job.logs()) == (DONE, "begun\n")
    assert record.workers[0].peak == 0
    assert ("POST", "secrets") not in pods.requests


@pytest.mark.parametrize("message", ["", "exceeded quota: lab, requested: secrets=1"])
def test_a_namespace_without_secrets_runs_steps_that_need_none(pods, message):
    respond = pods.respond

    def refuse(method, path, body):
        if method == "POST" and "/secrets" in path:
            pods.requests.append((method, "secrets"))
            return 403, {"message": message}
        return respond(method, path, body)

    pods.respond = refuse
    job = run_job(
        bash("one", "echo begun"), bash("two", "true"),
        runner="kubernetes", runner_options=OPTIONS, max_retries=0,
    )  # fmt: skip
    assert (job.status, [each.number for each in job.attempts]) == (DONE, [1, 1])
    assert job.logs("one") == "begun\n"
    records = open_store().runs(job.job.machine, job_id=job.id, kind=STEPS)
    assert [record.workers[0].peak for record in records] == [0, 0]
    first = [request for request in pods.requests if request[0] == "POST"]
    assert first[-2:] == [("POST", "jobs")] * 2  # the second step does not ask again
    assert pods.objects == {}


def test_a_secret_that_the_step_needs_is_not_given_up(pods, monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "s3cret")
    pods.refusals["POST", "secrets"] = [403] * 20
    job = run_job(
        bash("one", "true", secrets=("THE_TOKEN",)),
        runner="kubernetes",
        runner_options=OPTIONS,
        max_retries=0,
    )
    assert job.status == FAILED
    assert "create secrets" in job.job.reason


@pytest.mark.slow
def test_the_figures_of_a_gang_are_those_of_the_pod_that_took_most(gang_server, tmp_path):
    hold = f"import os; block = bytearray(100_000_000 * int(os.environ['RANK']))\n{MEET}"
    step = Step(name="one", kind="command", argv=("true",), gang=2)
    started = gang_attempt(tmp_path, "python", "-c", hold)
    assert run_gang(gang_server, started, step) == 0
    lines = sorted(started.file(".log").read_text().splitlines())
    assert lines == [f"rank {n} | begins {n} of 2 restarts 0" for n in range(2)]
    usage = read_usage(started)
    assert 100e6 < usage.peak < 200e6
    assert usage.cpu_seconds > 0


@pytest.fixture
def words(tmp_path):
    """Return the words with which a command is measured, with the programs in a folder."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for file in stage_measuring_programs():
        (folder / Path(file.path).name).write_bytes(file.content)
    return lambda *command: [
        *(word.replace(measured_command._FOLDER, str(folder)) for word in measuring_words(command)),
        *command,
    ]


PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
COMMANDS = [
    (sys.executable, "-c", "import os; print(sorted(os.environ.items()))"),
    ("bash", "-c", 'env | sort; echo "$0 $#" "$@"', "a b", "$HOME", "'"),
    ("sh", "-c", 'env | sort; echo "$0 $#" "$@"', "a b", "$HOME", "'"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "more",
    [{"LANG": "C"}, {"LC_CTYPE": "C"}, {"PYTHONSAFEPATH": "1"}, {"PYTHONHOME": sys.base_prefix}],
)
def test_a_program_has_the_variables_and_arguments_of_the_container(words, command, more):
    environment = {"PATH": PATH, SEND_VARIABLE: "1", **more}
    plain, measured = (
        subprocess.run(each, env=environment, capture_output=True, text=True, check=True).stdout
        for each in (command, words(*command))
    )
    assert USAGE_MARKER in measured
    assert split_usage(measured.encode())[0].decode() == plain


SHELL_VARIABLES = [
    {"p": "of the step", "REPLY": "of the step"},
    {"SHELLOPTS": "errexit:nounset:pipefail"},
    {"BASHOPTS": "extglob:nullglob", "SHELLOPTS": "nounset"},
]


@pytest.mark.parametrize("shell", ["bash", "sh", "dash"])
@pytest.mark.parametrize("more", SHELL_VARIABLES)
@pytest.mark.parametrize("python", [PATH, ""])
def test_variables_and_options_of_a_shell_are_those_of_the_container(
    words, tmp_path, shell, more, python
):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    path = python or image(tmp_path / "bin", shell, "env", "sort")
    text = 'echo "$-" "$SHELLOPTS" "$BASHOPTS"; env | sort; false; echo continued'
    command = (shell, "-c", text, "a  b", "c\nd", "")
    plain, measured = (
        subprocess.run(
            each,
            env={"PATH": path, SEND_VARIABLE: "1", **more},
            capture_output=True,
            text=True,
            check=False,
        )
        for each in (command, words(*command))
    )
    assert (USAGE_MARKER in measured.stdout) == bool(python)
    output = split_usage(measured.stdout.encode())[0].decode()
    assert (output, measured.stderr) == (plain.stdout, plain.stderr)
    assert measured.returncode == plain.returncode


@pytest.mark.parametrize("module", ["os", "signal", "enum", "resource", "process_meter"])
@pytest.mark.parametrize("folder", ["{}", "{}/./", "."])
def test_modules_of_the_step_are_not_those_of_the_program(words, tmp_path, module, folder):
    folder = folder.format(tmp_path)
    (tmp_path / f"{module}.py").write_text("raise SystemExit('of the step')\n")
    done = subprocess.run(
        words("bash", "-c", 'echo "$PYTHONPATH"'),
        env={"PATH": PATH, SEND_VARIABLE: "1", "PYTHONPATH": f"/none:{folder}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert split_usage(done.stdout.encode())[0].decode() == f"/none:{folder}\n"
    assert (USAGE_MARKER in done.stdout, done.stderr) == (True, "")


def test_the_start_file_of_a_shell_is_read_once_and_its_functions_stay(words, tmp_path):
    (tmp_path / "start").write_text("echo start\n")
    variables = {"BASH_ENV": str(tmp_path / "start"), "BASH_FUNC_greet%%": "() { echo hello; }"}
    done = subprocess.run(
        words("bash", "-c", "greet"),
        env={"PATH": PATH, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("start\nhello\n", "")


@pytest.mark.parametrize("text", ["def f(): return f'' if\n", "import none_of_this_name\n"])
@pytest.mark.parametrize("program", [sys.executable, "bash"])
def test_a_python_that_cannot_measure_starts_the_program(words, tmp_path, text, program):
    (tmp_path / "programs" / "measured_program.py").write_text(text)
    ignored = "grep SigIgn: /proc/self/status; exit 3"
    command = ("bash", "-c", ignored)
    if program != "bash":
        command = (
            sys.executable,
            "-c",
            "import os, sys; os.execvp('bash', sys.argv[1:])",
            *command,
        )
    done = subprocess.run(
        words(*command), env={"PATH": PATH, SEND_VARIABLE: "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")
    assert USAGE_MARKER not in done.stdout
    if program == "bash":
        assert int(done.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_python_2_can_read_the_program_that_is_started():
    [program, *others] = stage_measuring_programs()
    found = list(ast.walk(ast.parse(program.content)))
    assert not any(isinstance(node, ast.JoinedStr | ast.AnnAssign) for node in found)
    functions = [node for node in found if isinstance(node, ast.FunctionDef)]
    assert functions
    assert all(function.returns is None for function in functions)
    assert all(each.annotation is None for function in functions for each in function.args.args)
    assert program.content.isascii()
    for file in others:
        ast.parse(file.content, feature_version=(3, 7))


@pytest.mark.parametrize("program", [sys.executable, "bash"])
def test_the_first_process_of_a_container_passes_signals_on(words, container, program):
    text = "echo ready $PPID; exec sleep 600"
    command = ("bash", "-c", text)
    if program != "bash":
        inner = f"import subprocess; subprocess.run(['bash', '-c', {text!r}])"
        command = (program, "-c", inner)
    with subprocess.Popen(
        [*container, *words(*command)], env={"PATH": PATH, SEND_VARIABLE: "1"},
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline().startswith("ready ")
        os.kill(first_process(process), signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
        assert USAGE_MARKER in output


@pytest.fixture
def memory_group():
    """Return the folder of a control group with 80 MB; skip where there cannot be one."""
    folder = Path(f"/sys/fs/cgroup/memory/hyperplane-test-{os.getpid()}")
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("the kernel would swap")
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text("80000000")
    except OSError as error:
        pytest.skip(f"this user cannot create a control group of memory: {error}")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.mark.parametrize("program", [sys.executable, "bash"])
def test_the_kernel_kills_the_program_and_not_the_one_that_measures(
    words, container, memory_group, program
):
    hungry = "block = bytearray(b'x') * 300_000_000"
    command = (sys.executable, "-c", hungry)
    if program == "bash":
        command = ("bash", "-c", f'exec "{sys.executable}" -c "{hungry}"')
    enter = f'echo $$ > {memory_group}/cgroup.procs; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", enter, "bash", *container, *words(*command)],
        env={"PATH": PATH, SEND_VARIABLE: "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGKILL
    _, [figures] = split_usage(done.stdout.encode())
    # Pages of files, such as libraries, count for the process and not for the group.
    assert 50e6 < int(figures.split()[0]) < 120e6
