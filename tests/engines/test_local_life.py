"""How local clusters end: each case is a program of its own, watched from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.cluster

START = """
import os, sys, time
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
)
"""


@pytest.fixture
def place() -> Path:
    """A temporary directory of the program's own, to see what it leaves."""
    folder = Path(tempfile.gettempdir()) / "t"
    folder.mkdir()
    return folder


def dead(process: psutil.Process) -> bool:
    """Whether a process has ended, reaped or not: its parent may be no good at that."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], object], seconds: float) -> float:
    """Wait until a condition holds, or fail; the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began


class Program:
    """A Python program in a session of its own.

    Parameters
    ----------
    text : str
        The program; it is a script without ``if __name__ == "__main__"``.
    place : Path
        Its temporary directory.
    """

    def __init__(self, text: str, place: Path) -> None:
        script = place.parent / "script.py"
        script.write_text(START + textwrap.dedent(text))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(place)},
            start_new_session=True,
        )

    def line(self, start: str) -> str:
        """Wait for a line of output that starts so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"no line {start!r}; stderr:\n{self.finish()[1]}")

    def finish(self, timeout: float = 60) -> tuple[str, str]:
        """Wait for the end; what it wrote to both streams, without the note on the fit."""
        out, err = self.process.communicate(timeout=timeout)
        return out, err

    def family(self) -> list[psutil.Process]:
        """The processes of its session that are there now, beside itself."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if process.pid != self.process.pid and os.getsid(process.pid) == self.process.pid:
                    found.append(process)
        return [process for process in found if not dead(process)]


Run = Callable[[str], Program]


@pytest.fixture
def run(place: Path) -> Iterator[Run]:
    """Start programs that are ended with the test, by id."""
    started: list[Program] = []

    def begin(text: str) -> Program:
        started.append(Program(text, place))
        return started[-1]

    yield begin
    for program in started:
        for process in program.family():
            with suppress(psutil.Error):
                process.kill()
        program.process.kill()
        program.process.communicate()


ENDINGS = {
    "cluster then client": "cluster.close(); client.close()",
    "client then cluster": "client.close(); cluster.close()",
    "cluster only": "cluster.close()",
    "client only": "client.close()",
    "shutdown": "client.shutdown()",
    "shutdown then both": "client.shutdown(); client.close(); cluster.close()",
    "twice": "cluster.close(); cluster.close(); client.close(); client.close()",
    "with cluster": "with cluster: pass",
    "with client": "with client: pass",
    "with both": "with cluster, client: client.submit(sum, [1]).result()",
    "restart first": "client.restart(); client.submit(sum, [1]).result(); cluster.close()",
    "nothing at all": "pass",
    "exit in the middle": "f = client.map(time.sleep, [5] * 4); time.sleep(0.3); sys.exit(0)",
    "results held": "f = client.scatter([1, 2]); g = client.submit(sum, f); g.result()",
    "del": "del cluster; del client",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_every_way_to_close_leaves_nothing(ending: str, run: Run, place: Path) -> None:
    program = run(f"client.submit(sum, [1, 2]).result()\n{ending}\nprint('end')")
    out, err = program.finish()
    assert program.process.returncode == 0, err
    assert out.splitlines()[-1] == "end" or "sys.exit" in ending
    assert "Traceback" not in err
    assert "ERROR" not in err
    if "restart" not in ending and "sys.exit" not in ending:  # of these Dask gives notice
        assert err == ""
    wait_until(lambda: not program.family(), 1.0)
    assert list(place.rglob("*")) == []


def test_after_close_the_program_has_no_worker_left_while_it_goes_on(run: Run) -> None:
    program = run("client.close(); cluster.close(); print('closed', flush=True); time.sleep(60)")
    program.line("closed")
    left = [" ".join(process.cmdline()) for process in program.family()]
    # Python's own helper for shared memory, one a program, stays until the program ends.
    assert [command for command in left if "resource_tracker" not in command] == []


def workers_of(program: Program) -> list[psutil.Process]:
    pids = [int(pid) for pid in program.line("workers").split()]
    return [psutil.Process(pid) for pid in pids]


SAY_WORKERS = "print('workers', *client.run(os.getpid).values(), flush=True)\n"
# A call into C that keeps the interpreter: a regular expression that backtracks for minutes.
HOLD_THE_GIL = """
import re
futures = client.map(lambda n: re.match(r"(a+)+$", "a" * 40 + "b" * n), [1, 2], pure=False)
time.sleep(1.0)
"""


@pytest.mark.parametrize("busy", ["", "f = client.map(time.sleep, [60, 61])\ntime.sleep(0.3)\n"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_owner(busy: str, number: signal.Signals, run: Run) -> None:
    program = run(busy + SAY_WORKERS + "time.sleep(60)")
    workers = workers_of(program)
    assert len(workers) == 2
    program.process.send_signal(number)
    wait_until(lambda: all(map(dead, workers)), 1.0)


def test_workers_die_with_their_owner_while_a_task_holds_the_gil(run: Run) -> None:
    program = run(SAY_WORKERS + HOLD_THE_GIL + "print('held', flush=True)\ntime.sleep(60)")
    workers = workers_of(program)
    program.line("held")
    for worker in workers:
        worker.cpu_percent()
    time.sleep(0.5)
    assert sum(worker.cpu_percent() for worker in workers) > 50, "the tasks do not run"
    program.process.kill()
    wait_until(lambda: all(map(dead, workers)), 1.0)
    wait_until(lambda: not program.family(), 5.0)


def test_what_a_killed_owner_leaves_is_removed_by_the_next_look(run: Run, place: Path) -> None:
    program = run(SAY_WORKERS + "time.sleep(60)")
    workers_of(program)
    program.process.kill()
    program.process.wait()
    [folder] = [path for path in place.iterdir() if path.name.startswith("hyperplane-")]
    assert list(folder.glob("*.json"))
    look = "from hyperplane.engines import records; print(records.read_all())"
    done = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert list(place.rglob("*")) == []


def test_ctrl_c_while_it_starts_leaves_nothing(run: Run, place: Path) -> None:
    program = run(
        """
        client.close(); cluster.close()
        import dask, pathlib, tempfile
        hangs = pathlib.Path(sys.argv[0]).with_name("hangs.py")
        hangs.write_text("import time\\ndef dask_setup(worker):\\n    time.sleep(600)\\n")
        dask.config.set({"distributed.worker.preload": [str(hangs)]})
        print("starting", flush=True)
        try:
            hyperplane.initialize_cluster(num_workers=1, nprocs=1, ram_gb_per_proc=0.5)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    program.line("starting")
    time.sleep(2)
    program.process.send_signal(signal.SIGINT)
    out, err = program.finish(timeout=20)
    assert out.splitlines()[-1] == "interrupted", err
    wait_until(lambda: not program.family(), 2.0)
    assert list(place.rglob("*")) == []


@pytest.mark.parametrize("delay", [0.1, 0.3, 0.5, 0.7, 0.9, 1.2])
def test_ctrl_c_at_any_moment_of_a_start(delay: float, run: Run, place: Path) -> None:
    program = run(
        """
        client.close(); cluster.close()
        print("starting", flush=True)
        try:
            client, cluster = hyperplane.initialize_cluster(
                num_workers=1, nprocs=2, ram_gb_per_proc=0.5, local_fit="exact", name="again"
            )
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted")
        if "again" in str(cluster):
            client.close(); cluster.close()
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=1, ram_gb_per_proc=0.5, local_fit="exact", name="again"
        )
        assert client.submit(sum, [1, 2]).result() == 3
        client.close(); cluster.close()
        print("started again")
        """
    )
    program.line("starting")
    time.sleep(delay)
    program.process.send_signal(signal.SIGINT)
    out, err = program.finish(timeout=30)
    assert "interrupted" in out, err
    assert out.splitlines()[-1] == "started again", err
    wait_until(lambda: not program.family(), 2.0)
    assert list(place.rglob("*")) == []


def test_another_process_finds_and_closes_it(run: Run, place: Path) -> None:
    program = run(
        "print('name', cluster.name, flush=True)\n"
        "while cluster.status.name != 'closed': time.sleep(0.05)\n"
        "print('closed')"
    )
    name = program.line("name")
    other = (
        "from hyperplane import notebook_common as nc\n"
        f"client = nc.get_dask_cluster({name!r})\n"
        "assert client.submit(sum, [1, 2]).result() == 3\n"
        "client.shutdown()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", other],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    out, err = program.finish(timeout=10)
    assert out.splitlines()[-1] == "closed"
    assert err == ""
    wait_until(lambda: not program.family(), 1.0)
    assert list(place.rglob("*")) == []


def test_an_idle_cluster_closes_and_a_held_result_keeps_it(run: Run) -> None:
    program = run(
        """
        client.close(); cluster.close()
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, idle_timeout=1.5
        )
        held = client.submit(sum, [1, 2])
        assert held.result() == 3
        time.sleep(4)
        assert cluster.status.name == "running"
        assert held.result() == 3
        del held
        began = time.monotonic()
        while cluster.status.name != "closed" and time.monotonic() - began < 20:
            time.sleep(0.05)
        print("closed", cluster.status.name, client.status)
        """
    )
    out, err = program.finish()
    assert out.splitlines()[-1] == "closed closed closed", err
    # The one warning that says why it was left open.
    assert "results are held" in err
    assert "Traceback" not in err
