"""Detached processes: found again, their exit code, and the end of their group."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from process_states import has_ended

from hyperplane.platforms.local.process_identity import is_id_reused, running_system, start_time
from hyperplane.platforms.local.processes import (
    DetachedProcess,
    is_running_child,
    start_daemon,
    start_detached,
)

#: A wrapper: records its process ID, runs a shell command, and records the exit code.
WRAPPER = """
import os, subprocess, sys
from hyperplane.platforms.local.process_identity import running_system, start_time

def write(suffix, text):
    with open(sys.argv[1] + suffix + ".draft", "w") as draft:
        draft.write(text)
    os.replace(draft.name, sys.argv[1] + suffix)

write(".pid", f"{os.getpid()} {start_time(os.getpid())} {running_system()}")
code = subprocess.call(["sh", "-c", sys.argv[2]])
write(".exit", str(code))
"""
ROOT = str(Path(__file__).parents[2])


def start(folder: Path, command: str) -> DetachedProcess:
    prefix = folder / "process-1"
    environment = {**os.environ, "PYTHONPATH": ROOT}
    argv = [sys.executable, "-c", WRAPPER, str(prefix), command]
    return DetachedProcess(prefix, start_detached(prefix, argv, environment, str(folder)))


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"no {file}"
        time.sleep(0.02)


@pytest.mark.process
def test_a_process_is_found_again_by_its_files(tmp_path: Path) -> None:
    started = start(
        tmp_path, "echo out; echo err >&2; until [ -e go ]; do sleep 0.02; done; exit 3"
    )
    found = DetachedProcess(tmp_path / "process-1")
    assert found.exit_code() is None
    assert found.end_time() == 0
    wait_for(tmp_path / "process-1.pid")
    pid = int((tmp_path / "process-1.pid").read_text().split()[0])
    assert os.getsid(pid) == pid != os.getsid(0)
    (tmp_path / "go").touch()
    assert asyncio.run(started.wait()) == 3
    assert asyncio.run(found.wait()) == 3
    assert abs(found.end_time() - time.time()) < 60
    assert (tmp_path / "process-1.log").read_text() == "out\nerr\n"


@pytest.mark.process
def test_a_process_that_has_not_written_its_id_yet_is_ended_as_soon_as_it_has(
    tmp_path: Path,
) -> None:
    started = start(tmp_path, "sleep 20")
    file, hidden = tmp_path / "process-1.pid", tmp_path / "hidden"
    wait_for(file)
    file.rename(hidden)

    async def end() -> int | None:
        ending = asyncio.ensure_future(DetachedProcess(tmp_path / "process-1").end(0.0))
        await asyncio.wait({ending}, timeout=0.3)
        assert not ending.done()
        hidden.rename(file)
        return await ending

    assert asyncio.run(end()) is None
    assert asyncio.run(started.wait()) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("is_child", [True, False])
def test_the_whole_group_is_ended_and_killed_after_the_grace_period(
    tmp_path: Path, is_child: bool
) -> None:
    # The program and its child ignore SIGTERM; the wrapper ends.
    started = start(tmp_path, "trap '' TERM; sleep 600 & echo $! > child; touch on; sleep 600")
    wait_for(tmp_path / "on")
    child = psutil.Process(int((tmp_path / "child").read_text()))
    process = started if is_child else DetachedProcess(tmp_path / "process-1")
    code = asyncio.run(process.end(0.3))
    assert code == (-signal.SIGTERM if is_child else None)
    assert has_ended(child)
    if not is_child:
        asyncio.run(started.wait())


@pytest.mark.process
def test_a_process_that_never_ran_leaves_no_exit_code(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_detached(tmp_path / "p", [str(tmp_path / "none")], {}, str(tmp_path))
    found = DetachedProcess(tmp_path / "p")
    assert asyncio.run(found.wait()) is None
    assert asyncio.run(found.end(0.0)) is None


@pytest.mark.process
def test_an_unrelated_process_with_its_id_is_not_signaled(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        began = start_time(other.pid)
        for written, is_reached in (
            (f"{other.pid} {began} {running_system()}", True),
            (f"{other.pid} {began} another-boot-4026531836", False),
            (f"{other.pid} {int(began) - 1} {running_system()}", False),
            ("nonsense", False),
        ):
            (tmp_path / "p.pid").write_text(written)
            assert DetachedProcess(tmp_path / "p")._signal_group(0) is is_reached
        assert is_id_reused(other.pid, str(int(began) - 1))
        assert is_running_child(other.pid)
        other.kill()
        while is_running_child(other.pid):
            time.sleep(0.01)
    finally:
        other.kill()
        other.wait()
    assert not is_running_child(other.pid)
    assert not is_id_reused(other.pid, began)


@pytest.mark.process
def test_a_daemon_is_no_child_of_its_starter(tmp_path: Path) -> None:
    text = f"ps -o ppid=,sid= -p $$; pwd; echo $WORD; touch {tmp_path}/done"
    with (tmp_path / "log").open("ab") as log:
        start_daemon(["sh", "-c", text], {**os.environ, "WORD": "x"}, log)
    wait_for(tmp_path / "done")
    ids, folder, word = (tmp_path / "log").read_text().splitlines()
    parent, session = map(int, ids.split())
    assert parent != os.getpid()
    assert session != os.getsid(0)
    assert (folder, word) == ("/", "x")
