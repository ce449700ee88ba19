"""The program that runs that of a step in a container: signals, ends and figures, as processes."""

from __future__ import annotations

import ast
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services import until

from hyperplane.core import artifact_reports
from hyperplane.jobs.runners import (
    driver_program,
    measured_program,
    rehearsed_program,
    task_program,
)
from hyperplane.jobs.runners.container_program import read_task_program
from hyperplane.jobs.runners.measured_program import (
    END_WITH_PARENT,
    GROUP_SIGNALS,
    SEND_VARIABLE,
    USAGE_MARKER,
)
from hyperplane.jobs.runners.usage_lines import split_usage
from hyperplane.platforms.local import process_meter

pytestmark = pytest.mark.process

#: Takes 100 MB and, as the time of a process counts, at least 0.3 s of CPU.
BUSY = """
import time
block = bytearray(b"x") * 100_000_000
while time.process_time() < 0.3:
    pass
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """Return the path of the program beside the file that it needs, as in a container."""
    for module in (process_meter, measured_program):
        shutil.copy(str(module.__file__), tmp_path)
    return str(tmp_path / Path(str(measured_program.__file__)).name)


def start(
    program: str,
    *words: str,
    environment: dict[str, str] | None = None,
    before: tuple[str, ...] = (),
    **options: Any,
) -> subprocess.Popen[str]:
    """Start a program as the first of a container whose log is read."""
    return subprocess.Popen(
        [*before, sys.executable, "-S", program, *words],
        env={**os.environ, SEND_VARIABLE: "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def run(program: str, *words: str, **options: Any) -> tuple[int, str, str]:
    """Run a program; return its exit code and what it has printed."""
    process = start(program, *words, **options)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def read_figures(output: str) -> list[float]:
    """Return what the only line with figures in an output has."""
    _, [figures] = split_usage(output.encode())
    return [float(each) for each in figures.split()]


def test_the_figures_are_those_of_the_program(program: str) -> None:
    code, output, errors = run(program, sys.executable, "-c", BUSY + "print('50 %', end='')")
    assert (code, errors) == (0, "")
    assert split_usage(output.encode())[0] == b"50 %\n"
    peak, cpu, *_ = read_figures(output)
    assert 100e6 < peak < 200e6
    assert 0.3 <= cpu < 30


@pytest.mark.slow
def test_the_memory_of_processes_together_is_measured(program: str, tmp_path: Path) -> None:
    hold = (
        "import os, pathlib, time; block = bytearray(b'x') * 60_000_000\n"
        "pathlib.Path(f'has-memory-{os.getpid()}').touch()\n"
        "while len(list(pathlib.Path().glob('has-memory-*'))) < 2: time.sleep(0.05)\n"
        "time.sleep(4)"  # until both were measured together
    )
    words = f'"{sys.executable}" -c "$1" & "{sys.executable}" -c "$1" & wait'
    _, output, _ = run(program, "bash", "-c", words, "bash", hold, cwd=tmp_path)
    assert read_figures(output)[0] > 120e6


def test_nothing_of_the_process_before_is_counted(program: str) -> None:
    before = (
        "import os, sys; block = bytearray(b'x') * 100_000_000\n"
        "os.execv(sys.executable, [sys.executable, '-S', *sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", before, program, "true"],
        env={**os.environ, SEND_VARIABLE: "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert 0 < read_figures(done.stdout)[0] < 60e6


def test_a_log_that_is_not_read_gets_no_figures(program: str) -> None:
    code, output, errors = run(program, "echo", "1", environment={SEND_VARIABLE: ""})
    assert (code, output, errors) == (0, "1\n", "")


@pytest.mark.parametrize(
    "words",
    # Signal 33 is one of the threads of the C library, whose handler cannot be set.
    [("exit 3", 3), ("kill -9 $$", -9), ("kill -ABRT $$", -6), ("kill -33 $$", -33)],
)
def test_it_ends_as_the_program_has_ended(program: str, words: tuple[str, int]) -> None:
    code, output, _ = run(program, "bash", "-c", words[0])
    assert code == words[1]
    assert USAGE_MARKER in output


def test_there_is_no_core_of_the_process_that_measures(program: str, tmp_path: Path) -> None:
    folder = tmp_path / "cores"
    folder.mkdir()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    code, _, _ = run(
        program, "bash", "-c", "ulimit -c 0; kill -ABRT $$",
        cwd=folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )  # fmt: skip
    assert code == -signal.SIGABRT
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "code", "reason"),
    [(None, 127, "No such file or directory"), (0o644, 126, "Permission denied")],
)
def test_a_program_that_cannot_start_has_the_code_of_a_shell(
    program: str, tmp_path: Path, mode: int | None, code: int, reason: str
) -> None:
    tool = tmp_path / "tool"
    if mode is not None:
        tool.write_text("#!/bin/sh\n")
        tool.chmod(mode)
    ended, _, errors = run(program, str(tool))
    assert (ended, errors) == (code, f"{tool}: {reason}\n")


TRAPS = """
import os, signal, sys, time
count = []
def note(number, frame):
    count.append(number)
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"):
    signal.signal(getattr(signal, name), note)
print("ready", flush=True)
until = time.monotonic() + 60
while not count and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1)
print([signal.Signals(each).name for each in count], flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_are_passed_on_to_a_program_that_handles_them(program: str, name: str) -> None:
    process = start(program, sys.executable, "-c", TRAPS)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    output, _ = process.communicate(timeout=60)
    assert output.startswith(f"['{name}']\n")
    assert process.returncode == 5
    assert USAGE_MARKER in output


def test_signals_of_a_group_are_not_passed_on_twice(program: str) -> None:
    process = start(program, sys.executable, "-c", TRAPS, environment={GROUP_SIGNALS: "1"})
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert output.startswith("['SIGTERM']\n")


def test_a_signal_that_ends_the_program_ends_it(program: str) -> None:
    process = start(program, "bash", "-c", "echo ready; exec sleep 600")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert USAGE_MARKER in output


def test_the_program_has_the_usual_signals_and_no_variables_of_this(program: str) -> None:
    show = (
        "import os, signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, ()), sorted(os.environ))"
    )
    ignored = "yes | head -1; grep SigIgn: /proc/self/status"
    code, output, _ = run(
        program, "bash", "-c", f'{ignored}; exec "{sys.executable}" -c "$1"', "bash", show,
        environment={GROUP_SIGNALS: "1", END_WITH_PARENT: "1"},
    )  # fmt: skip
    lines = output.splitlines()
    assert (code, lines[0]) == (0, "y")
    assert int(lines[1].split()[1], 16) & (1 << (signal.SIGXFSZ - 1)) == 0
    assert lines[2].startswith("set() ")
    assert GROUP_SIGNALS not in lines[2]
    assert END_WITH_PARENT not in lines[2]


def test_a_program_that_is_of_another_user_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    measured_program._send(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
def test_the_program_of_a_rehearsal_ends_with_it(program: str, tmp_path: Path) -> None:
    words = (
        "bash",
        "-c",
        f"echo $$ > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid; exec sleep 600",
    )
    process = start(program, *words, environment={END_WITH_PARENT: "1"})
    until((tmp_path / "pid").exists)
    step = Path("/proc", (tmp_path / "pid").read_text().strip())
    assert step.exists()
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not step.exists())


#: Runs a program as the first process of another namespace, as a container does.
CONTAINER = (
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)


@pytest.fixture
def container() -> tuple[str, ...]:
    """Return the words that run a program as process 1; skip where that is not allowed."""
    if not shutil.which(CONTAINER[0]):
        pytest.skip("there is no unshare")
    done = subprocess.run([*CONTAINER, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not create a process namespace: {done.stderr}")
    return CONTAINER


def first_process(process: subprocess.Popen[str]) -> int:
    """Return the id, outside of a container, of its first process."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def test_the_first_process_of_a_container_passes_signals_on(
    program: str, container: tuple[str, ...]
) -> None:
    words = ("bash", "-c", "echo ready $PPID; exec sleep 600")
    process = start(program, *words, before=container)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready 1\n"
    os.kill(first_process(process), signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    # It cannot end by a signal, and has the code of a shell.
    assert process.returncode == 128 + signal.SIGTERM
    assert USAGE_MARKER in output


@pytest.mark.slow
def test_the_first_process_of_a_container_removes_those_that_have_ended(
    program: str, container: tuple[str, ...], tmp_path: Path
) -> None:
    # A process that has ended stays in /proc until it is removed.
    orphan = (
        "bash -c 'sleep 0.2 & echo $!' > orphan; "
        "for _ in {1..300}; do [ -e /proc/$(cat orphan) ] || break; sleep 0.1; done; "
        "[ -e /proc/$(cat orphan) ] || echo end"
    )
    code, output, errors = run(program, "bash", "-c", orphan, before=container, cwd=tmp_path)
    assert code == 0, errors
    assert split_usage(output.encode())[0] == b"end\n"


def count_read(pid: int) -> int:
    """Return the bytes that a process has read."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


@pytest.mark.slow
def test_the_first_process_of_a_container_measures_daemons(
    program: str, container: tuple[str, ...], tmp_path: Path
) -> None:
    hold = (
        "import time; from pathlib import Path; block = bytearray(b'x') * 60_000_000\n"
        f"while not Path('{tmp_path}/end').exists(): time.sleep(0.1)"
    )
    # Its parent ends at once.
    daemon = f'(setsid "{sys.executable}" -c "$1" & ) ; touch {tmp_path}/begun; '
    words = daemon + f"until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    process = start(program, "bash", "-c", words, "bash", hold, before=container)
    until((tmp_path / "begun").exists)
    first = first_process(process)

    def is_held() -> bool:
        sizes = [
            int(Path(f"/proc/{child}/statm").read_text().split()[1]) * resource.getpagesize()
            for child in Path(f"/proc/{first}/task/{first}/children").read_text().split()
        ]
        return len(sizes) == 2 and max(sizes) > 60e6

    until(is_held)
    # Only measurements read files, about 1,000 bytes each.
    before = count_read(first)
    until(lambda: count_read(first) > before + 3000)
    (tmp_path / "end").touch()
    output, _ = process.communicate(timeout=60)
    assert read_figures(output)[0] > 60e6


def test_files_of_a_container_need_python_3_7_and_no_packages() -> None:
    program = read_task_program()
    assert program.path == "task_program.py"
    sources = sources_of(program.content.decode())
    assert list(sources) == ["measured_program.py", "process_meter.py"]
    for text in (program.content.decode(), *sources.values()):
        ast.parse(text, feature_version=(3, 7))


def test_the_program_needs_no_function_of_a_later_python(program: str) -> None:
    later = ["waitstatus_to_exitcode", "pidfd_open"]
    before = (
        f"import os, runpy, sys; [delattr(os, name) for name in {later}]; del sys.argv[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    words = [sys.executable, "-c", before, program, "bash", "-c", "exit 3"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")


def run_task(
    tmp_path: Path, variables: dict[str, str], show: str = 'echo "$PYTHONPATH"'
) -> subprocess.CompletedProcess[str]:
    """Run the program of containers with a step that prints and is killed."""
    program, work = tmp_path / "task_program.py", tmp_path / "work"
    program.write_bytes(read_task_program().content)
    work.mkdir()
    manifest = {
        "folder": ".",
        "paths": [],
        "files": [],
        "variables": variables,
        "tasks": [{"variables": {}, "argv": ["bash", "-c", f"{show}; kill -KILL $$"]}],
    }
    start = (
        f"import runpy; run_task = runpy.run_path({str(program)!r})['run_task']\n"
        f"run_task({manifest}, None, {str(work)!r})"
    )
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("LC_", "LANG"))}
    return subprocess.run(
        [sys.executable, "-c", start],
        env={**kept, "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["signal", "enum", "resource", "process_meter"])
def test_modules_of_the_step_do_not_replace_those_of_the_program(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text("raise SystemExit('of the step')\n")
    done = run_task(tmp_path, {"PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path)})
    assert (done.stdout, done.stderr) == (f"{tmp_path}\n", "")
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("variables", [{"LANG": "C"}, {"LC_CTYPE": "C"}])
def test_the_locale_of_the_step_is_unchanged(tmp_path: Path, variables: dict[str, str]) -> None:
    done = run_task(tmp_path, variables, "env | grep -E '^(LANG|.*LC_)' | sort")
    assert done.stdout.split() == [
        f"{name}={value}" for name, value in sorted({"LANG": "C.UTF-8", **variables}.items())
    ]


def test_the_program_is_not_written_to_a_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "work-program").mkdir()
    done = run_task(tmp_path, {})
    assert done.returncode == 1
    assert "File exists" in done.stderr
    assert list((tmp_path / "work-program").iterdir()) == []


def sources_of(text: str) -> dict[str, str]:
    """Return the files that a program of containers has."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, "task_program.py", "exec"), namespace)
    found: dict[str, str] = namespace["_SOURCES"]
    return found


def test_names_of_variables_are_the_same_in_all_files() -> None:
    assert measured_program.SEND_VARIABLE == artifact_reports.SEND_VARIABLE
    assert driver_program.GROUP_SIGNALS == measured_program.GROUP_SIGNALS
    assert rehearsed_program._END_WITH_PARENT == measured_program.END_WITH_PARENT
    assert task_program._LOCALE == measured_program.LOCALE
