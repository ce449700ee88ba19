"""Rehearsals: limits of memory by control groups, no network, and tasks at the same time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_cases import bash, is_alive, until_exists
from runner_cases import make_job
from services import until
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.jobs.runners.rehearsal import describe_differences, rehearse, resolve_limits
from hyperplane.jobs.runners.rehearsed_task import RehearsalLimits, TaskOutcome
from hyperplane.platforms.local import memory_group, network_namespace
from hyperplane.platforms.local.memory_group import create_memory_group

pytestmark = pytest.mark.process
MIB = 1 << 20
#: The network program as a user without rights, in a user namespace without capabilities.
WITHOUT_RIGHTS = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def has_control_groups() -> bool:
    group = create_memory_group(64 * MIB)
    if group is not None:
        group.close()
    return group is not None


needs_groups = pytest.mark.skipif(
    "not has_control_groups()", reason="this user may not create a control group"
)
needs_namespaces = pytest.mark.skipif(
    "network_namespace.find_refusal()", reason="this user may not create a network namespace"
)


def rehearsed(
    *steps: Step,
    root: Path,
    all_chunks: bool = False,
    note: Callable[[], None] = lambda: None,
    **limits: Any,
) -> tuple[bool, list[TaskOutcome]]:
    """Rehearse steps; ``note`` is called after each outcome."""
    outcomes: list[TaskOutcome] = []

    def report(outcome: TaskOutcome) -> None:
        outcomes.append(outcome)
        note()

    succeeded = rehearse(
        make_job(*steps, root=root),
        AwsBatchRunner({}, AwsBatchRunner.resolve_options({})),
        all_chunks=all_chunks,
        report=report,
        limits=RehearsalLimits(**limits),
    )
    return succeeded, outcomes


def python(name: str, code: str, **fields: Any) -> Step:
    return Step(name=name, kind="command", argv=("python", "-c", code), **fields)


@pytest.mark.slow
@needs_groups
def test_the_processes_of_a_task_together_have_its_memory(tmp_path: Path) -> None:
    # Each has less than the limit of 190 MiB, and keeps it until both have it.
    each = (
        "import os, pathlib, time; used = bytearray(130 << 20)\n"
        "pathlib.Path(f'has-memory-{os.getpid()}').touch()\n"
        "while len(list(pathlib.Path().glob('has-memory-*'))) < 2: time.sleep(0.05)"
    )
    code = (
        f"import subprocess, sys, time; words = [sys.executable, '-c', {each!r}]\n"
        "both = [subprocess.Popen(words) for _ in range(2)]\n"
        "while all(each.poll() is None for each in both): time.sleep(0.05)\n"
        "if any(each.poll() for each in both): [each.kill() for each in both]\n"
        "sys.exit(min(each.wait() for each in both))"
    )
    step = python("large", code, resources=Resources(ram_gb=0.2), timeout=120)
    succeeded, [outcome] = rehearsed(step, root=tmp_path, memory="cgroup")
    assert not succeeded
    assert outcome.code is not None, "it was ended after its time"
    assert outcome.out_of_memory
    assert outcome.peak is not None
    assert 150 * MIB < outcome.peak <= outcome.memory
    enough = step.model_copy(update={"resources": Resources(ram_gb=1)})
    succeeded, [outcome] = rehearsed(enough, root=tmp_path, memory="cgroup")
    assert (succeeded, outcome.out_of_memory) == (True, False)
    assert outcome.peak is not None
    assert outcome.peak > 260 * MIB


@needs_groups
def test_a_process_that_leaves_its_session_ends_with_the_task(tmp_path: Path) -> None:
    code = (
        "import os, subprocess\n"
        "left = subprocess.Popen(['sleep', '987653'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(left.pid))\n"
        f"groups = open('/proc/self/cgroup').read(); open({str(tmp_path / 'groups')!r}, 'w')"
        ".write(groups)"
    )
    assert rehearsed(python("a", code), root=tmp_path, memory="cgroup")[0]
    left = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(left))
    [path] = {
        line.rpartition(":")[2]
        for line in (tmp_path / "groups").read_text().splitlines()
        if f"hyperplane-{os.getpid()}-" in line
    }
    assert not list(Path("/sys/fs/cgroup").glob(f"*{path}"))


SEES = (
    "import socket, sys\n"
    "names = sorted(name for _, name in socket.if_nameindex())\n"
    "own = socket.create_server(('127.0.0.1', 0))\n"
    "socket.create_connection(own.getsockname(), 5)\n"
    "try:\n"
    "    socket.create_connection(('127.0.0.1', {port}), 5)\n"
    "except OSError as error:\n"
    "    print(type(error).__name__, names)\n"
    "else:\n"
    "    print('reached')\n"
)


@needs_namespaces
def test_a_task_has_only_its_own_loopback_interface(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        step = python("a", SEES.format(port=server.getsockname()[1]))
        succeeded, [outcome] = rehearsed(step, root=tmp_path, network=False)
        assert succeeded, outcome.log
        assert outcome.log.startswith("ConnectionRefusedError ['lo'")
        succeeded, [outcome] = rehearsed(step, root=tmp_path, network=True)
        assert (succeeded, outcome.log) == (True, "reached\n")


@pytest.mark.skipif(
    "subprocess.run([*WITHOUT_RIGHTS, 'true'], capture_output=True).returncode != 0",
    reason="this user may not create a user namespace",
)
def test_a_user_without_rights_keeps_its_id_without_the_network() -> None:
    code = (
        f"import os, runpy\nrunpy.run_path({network_namespace.__file__!r})['leave_network']()\n"
        "import socket; own = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(own.getsockname(), 5)\n"
        "print(os.getuid(), os.getgid(), os.readlink('/proc/self/ns/net'))\n"
    )
    done = subprocess.run(
        [*WITHOUT_RIGHTS, sys.executable, "-I", "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    user, group, network = done.stdout.split()
    assert (user, group) == ("1000", "1000")
    assert network != str(Path("/proc/self/ns/net").readlink())


@pytest.mark.slow
@needs_namespaces
def test_what_the_system_does_not_permit_is_refused_with_the_option_that_needs_it_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.sh").write_text("touch ran\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
    )
    words = f"{sys.executable} -m hyperplane job rehearse p.yaml"
    forbid = "echo 0 > /proc/sys/user/max_net_namespaces && exec"
    # A user namespace, in which the limit applies to this command only.
    start = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    done = subprocess.run(
        [*start, f"{forbid} {words}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    text = " ".join(done.stderr.split())
    assert done.returncode == 2, text
    assert "nothing was run" in text
    assert "unshare: No space left on device" in text
    assert "give --network" in text
    done = subprocess.run(
        [*start, f"{forbid} {words} --network"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_control_group_is_taken_where_it_can_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_group, "create_memory_group", lambda *_: None)
    monkeypatch.setattr("hyperplane.jobs.runners.rehearsal.create_memory_group", lambda limit: None)
    limits, faults = resolve_limits("auto", network=True, parallel=3)
    assert (limits, faults) == (RehearsalLimits("rlimit", network=True, parallel=3), [])
    _, faults = resolve_limits("cgroup", network=True, parallel=0)
    assert [fault.where for fault in faults] == ["--memory-limit", "--parallel"]
    assert "--memory-limit rlimit" in str(faults[0])
    _, [fault] = resolve_limits("ulimit", network=True, parallel=1)
    assert "auto, cgroup, rlimit" in str(fault)


def test_version_2_needs_a_group_around_this_process_that_passes_memory_on(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/user.slice/app.slice/shell.scope\n")
    app = tmp_path / "sys/fs/cgroup/user.slice/app.slice"
    (app / "shell.scope").mkdir(parents=True)
    for folder, controllers in (
        (app, "cpu memory"),
        (app.parent, "cpu"),
        (app / "shell.scope", ""),
    ):
        (folder / "cgroup.subtree_control").write_text(f"{controllers}\n")
    assert list(memory_group._parents(tmp_path)) == [app]
    group = app / "group"
    group.mkdir()
    for name in ("memory.max", "memory.swap.max"):
        (group / name).write_text("max\n")
    assert memory_group._set_limit(group, 5 * MIB)
    assert (group / "memory.max").read_text() == str(5 * MIB)
    assert (group / "memory.swap.max").read_text() == "0"
    (group / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (group / "memory.peak").write_text("4096\n")
    found = memory_group.MemoryGroup(group)
    assert (found.has_killed(), found.peak()) == (True, 4096)
    # Here nothing can be created: the folders of a real group have files with limits.
    assert create_memory_group(MIB, tmp_path) is None
    assert not list(app.glob("hyperplane-*"))


MEET = (
    "import os, pathlib, time\n"
    "folder, chunk = pathlib.Path({folder!r}), os.environ['CHUNK_ID']\n"
    "(folder / chunk).touch()\n"
    "end = time.monotonic() + {seconds}\n"
    "while len(list(folder.iterdir())) < 2 and time.monotonic() < end:\n"
    "    time.sleep(0.02)\n"
    "raise SystemExit(len(list(folder.iterdir())) < 2)\n"
)


def test_tasks_run_at_the_same_time_only_if_asked(tmp_path: Path) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()
    step = python("a", MEET.format(folder=str(together), seconds=60), chunks=3)
    succeeded, outcomes = rehearsed(step, root=tmp_path, all_chunks=True, parallel=2)
    assert succeeded
    assert sorted(outcome.chunk for outcome in outcomes) == [0, 1, 2]
    step = python("a", MEET.format(folder=str(alone), seconds=0.2), chunks=2)
    succeeded, outcomes = rehearsed(step, root=tmp_path, all_chunks=True)
    assert [(outcome.chunk, outcome.code) for outcome in outcomes] == [(0, 1)]


def test_those_that_run_end_after_one_that_fails(tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    step = bash("a", f'[ "$CHUNK_ID" = 0 ] || {until_exists(failed)}; exit 3', chunks=9)
    succeeded, outcomes = rehearsed(
        step, root=tmp_path, all_chunks=True, parallel=2, note=failed.touch
    )
    assert not succeeded
    assert [(outcome.chunk, outcome.code) for outcome in outcomes] == [(0, 3), (1, 3)]


@needs_groups
@needs_namespaces
@pytest.mark.parametrize("runner", ["aws-batch", "vertex", "cloud-run", "glue"])
def test_the_command_limits_tasks_of_every_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text("printf '\\t%s\\n' $(grep -c : /proc/net/dev)\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
    )
    result = CliRunner().invoke(app, ["job", "rehearse", "p.yaml", "--runner", runner])
    assert result.exit_code == 0, result.output
    first, log = result.output.splitlines()[:2]
    assert " MiB" in first
    assert log == f"  {' ' * 8}1"
    text = " ".join(result.output.split())
    assert "new working folder with only the files of its step" in text
    assert "limited by a control group" in text
    assert "no network but the loopback interface" in text


def test_differences_are_those_of_the_runner_and_the_limits() -> None:
    job = make_job(bash("a", "true", resources=Resources(ram_gb=4)))
    runner = AwsBatchRunner({}, AwsBatchRunner.resolve_options({}))
    text = "\n".join(describe_differences(job, runner, RehearsalLimits("cgroup", False, 10_000)))
    for part in ("by a control group", "swap is not used", "no network but the loopback",
                 "at most 10000 tasks run at once", "one array",
                 "that its containers may use"):  # fmt: skip
        assert part in text
    text = "\n".join(describe_differences(job, runner))
    for part in (
        "RLIMIT_DATA",
        "the network of this machine can be accessed",
        "one after the other",
    ):
        assert part in text
