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
from typing import Any

import psutil
import pytest
from dask_notices import without_notices
from scale import scaled

pytestmark = pytest.mark.cluster

START = """
import os, sys, time
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
)
"""
#: What most of the time of a start is, and none of these tests needs.
FEW_IMPORTS = {"DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD": "[]"}
#: Seconds for what takes a fraction of one on a machine at rest.
SOON = 120.0


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
    few_imports : bool
        Whether its workers load no more than Dask itself does.
    start : str
        What it does first.
    """

    def __init__(
        self, text: str, place: Path, few_imports: bool = True, start: str = START
    ) -> None:
        handle, script = tempfile.mkstemp(suffix=".py", dir=place.parent)
        with os.fdopen(handle, "w") as file:
            file.write(start + textwrap.dedent(text))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(place), **(FEW_IMPORTS if few_imports else {})},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def line(self, start: str) -> str:
        """Wait for a line of output that starts so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"no line {start!r}; stderr:\n{self.finish()[1]}")

    def go_on(self) -> None:
        """Give it a line of input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self, timeout: float = 240) -> tuple[str, str]:
        """Wait for the end; what it wrote to both streams, without what is of Dask's own timing."""
        out, err = self.process.communicate(timeout=timeout)
        return out, without_notices(err)

    def family(self) -> list[psutil.Process]:
        """The processes of its session that are there now, beside itself."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if process.pid != self.process.pid and os.getsid(process.pid) == self.process.pid:
                    found.append(process)
        return [process for process in found if not dead(process)]


Run = Callable[..., Program]


@pytest.fixture
def run(place: Path) -> Iterator[Run]:
    """Start programs that are ended with the test, by id."""
    started: list[Program] = []

    def begin(text: str, place: Path = place, **options: Any) -> Program:
        started.append(Program(text, place, **options))
        return started[-1]

    yield begin
    for program in started:
        for process in program.family():
            with suppress(psutil.Error):
                process.kill()
        program.process.kill()
        program.process.communicate()


#: Endings after which the program goes on.
CLOSINGS = {
    "cluster then client": "cluster.close(); client.close()",
    "client then cluster": "client.close(); cluster.close()",
    "cluster only": "cluster.close()",
    "shutdown": "client.shutdown()",
    "shutdown then both": "client.shutdown(); client.close(); cluster.close()",
    "twice": "cluster.close(); cluster.close(); client.close(); client.close()",
    "with cluster": "with cluster: pass",
    "with both": "with cluster, client: client.submit(sum, [1]).result()",
    "restart first": "client.restart(); client.submit(sum, [1]).result(); cluster.close()",
}
#: Endings that the end of the program completes.
EXITS = {
    "client only": "client.close()",
    "with client": "with client: pass",
    "nothing at all": "pass",
    "exit in the middle": "f = client.map(time.sleep, [5] * 4); time.sleep(0.3); sys.exit(0)",
    "results held": "f = client.scatter([1, 2]); g = client.submit(sum, f); g.result()",
    "del": "del cluster; del client",
}
#: Each is a program with a cluster: these differ the most.
SOME_EXITS = scaled(["nothing at all", "exit in the middle", "results held"], list(EXITS))
#: A program with one cluster that stays to the end, so that the others start quickly.
MANY_CLOSINGS = """
import os, sys
import hyperplane
ARGUMENTS = dict(num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact")
keeper = hyperplane.start(hyperplane.plan_cluster(name="keeper", **ARGUMENTS))
print("kept", flush=True)
for name, closing in CLOSINGS.items():
    sys.stdin.readline()
    client, cluster = hyperplane.start(hyperplane.plan_cluster(name="one", **ARGUMENTS))
    client.submit(sum, [1, 2]).result()
    exec(closing)
    del client, cluster
    print("closed", name, flush=True)
sys.stdin.readline()
keeper.cluster.close(), keeper.client.close()
print("end")
"""


def files_below(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def test_every_way_to_close_leaves_nothing(run: Run, place: Path) -> None:
    program = run(f"CLOSINGS = {CLOSINGS!r}\n{MANY_CLOSINGS}", start="")
    program.line("kept")
    processes = {process.pid for process in program.family()}
    files = files_below(place)
    assert len(processes) >= 3, "two workers and what they are forked from"
    for name in CLOSINGS:
        program.go_on()
        assert program.line("closed") == name
        wait_until(lambda: {process.pid for process in program.family()} == processes, SOON)
        assert files_below(place) == files, name
    program.go_on()
    out, err = program.finish()
    assert program.process.returncode == 0, err
    assert out.splitlines()[-1] == "end"
    lines = err.splitlines()
    # What Dask says of a restart; and this package once for each cluster beside the first.
    expected = ("Restarting worker", "this program runs keeper already")
    assert [line for line in lines if not any(words in line for words in expected)] == []
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


def test_every_way_to_exit_leaves_nothing(run: Run, place: Path) -> None:
    programs = {}
    for name in SOME_EXITS:
        ending = EXITS[name]
        own = place / name.replace(" ", "-")[:4]
        own.mkdir()
        text = f"client.submit(sum, [1, 2]).result()\n{ending}\nprint('end')"
        programs[name] = own, run(text, place=own, few_imports=name != "nothing at all")
    for name, (own, program) in programs.items():
        out, err = program.finish()
        assert program.process.returncode == 0, (name, err)
        if "exit" in name:  # of tasks that are cut off Dask gives notice
            assert "Traceback" not in err
            assert "ERROR" not in err
        else:
            assert out.splitlines()[-1] == "end", name
            assert err == "", name
        wait_until(lambda program=program: not program.family(), SOON)  # type: ignore[misc]
        assert list(own.rglob("*")) == [], name


def only_the_tracker(program: Program) -> bool:
    """Whether a program has no process but Python's own helper for shared memory."""
    left = []
    for process in program.family():
        with suppress(psutil.Error):  # it has ended since
            left.append(" ".join(process.cmdline()))
    return [command for command in left if "resource_tracker" not in command] == []


def test_after_close_the_program_has_no_worker_left_while_it_goes_on(run: Run) -> None:
    program = run("client.close(); cluster.close(); print('closed', flush=True); time.sleep(600)")
    program.line("closed")
    assert only_the_tracker(program)


def workers_of(program: Program) -> list[psutil.Process]:
    pids = [int(pid) for pid in program.line("workers").split()]
    return [psutil.Process(pid) for pid in pids]


SAY_WORKERS = "print('workers', *client.run(os.getpid).values(), flush=True)\n"
# A call into C that keeps the interpreter: a regular expression that backtracks for minutes.
HOLD_THE_GIL = """
import pathlib, re
def hold(number):
    pathlib.Path(sys.argv[0]).with_suffix(f".{number}").touch()
    return re.match(r"(a+)+$", "a" * 40 + "b" * number)
futures = client.map(hold, [1, 2], pure=False)
while not all(pathlib.Path(sys.argv[0]).with_suffix(f".{number}").exists() for number in (1, 2)):
    time.sleep(0.02)
print('held', flush=True)
"""


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_workers_die_with_their_owner(run: Run, place: Path) -> None:
    programs = []
    busy = "f = client.map(time.sleep, [60, 61])\ntime.sleep(0.3)\n"
    few = [(busy, signal.SIGKILL), ("", signal.SIGTERM)]
    for before, number in scaled(few, [*few, ("", signal.SIGKILL), (busy, signal.SIGTERM)]):
        own = place / str(len(programs))
        own.mkdir()
        programs.append((number, run(before + SAY_WORKERS + "time.sleep(600)", place=own)))
    for number, program in programs:
        workers = workers_of(program)
        assert len(workers) == 2
        program.process.send_signal(number)
        wait_until(lambda workers=workers: all(map(dead, workers)), SOON)  # type: ignore[misc]


def test_workers_die_with_their_owner_while_a_task_holds_the_gil(run: Run) -> None:
    program = run(SAY_WORKERS + HOLD_THE_GIL + "time.sleep(600)")
    workers = workers_of(program)
    program.line("held")
    for worker in workers:
        # Only the tasks use a processor for so long, and they never end.
        used = processor_seconds(worker)
        wait_until(lambda w=worker, u=used: processor_seconds(w) > u + 0.3, 60)  # type: ignore[misc]
    program.process.kill()
    wait_until(lambda: all(map(dead, workers)), SOON)
    wait_until(lambda: not program.family(), SOON)


def test_what_a_killed_owner_leaves_is_removed_by_the_next_look(run: Run, place: Path) -> None:
    program = run(SAY_WORKERS + "time.sleep(600)")
    workers_of(program)
    program.process.kill()
    program.process.wait()
    [folder] = [path for path in place.iterdir() if path.name.startswith("hyperplane-")]
    assert list(folder.rglob("*.json"))
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
        hangs.write_text(
            "import sys, time\\n"
            "def dask_setup(worker):\\n"
            "    print('hanging', flush=True)\\n"
            "    time.sleep(600)\\n"
        )
        dask.config.set({"distributed.worker.preload": [str(hangs)]})
        try:
            hyperplane.initialize_cluster(num_workers=1, nprocs=1, ram_gb_per_proc=0.5)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    program.line("hanging")
    program.process.send_signal(signal.SIGINT)
    out, err = program.finish()
    assert out.splitlines()[-1] == "interrupted", err
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


DELAYS = scaled([0.1, 0.5, 0.9], [0.1, 0.3, 0.5, 0.7, 0.9, 1.2])


def test_ctrl_c_at_any_moment_of_a_start(run: Run, place: Path) -> None:
    program = run(
        f"""
        client.close(); cluster.close()
        for _ in range({len(DELAYS)}):
            try:
                print("starting", flush=True)  # the interrupt comes a while after this is read
                client, cluster = hyperplane.initialize_cluster(
                    num_workers=1, nprocs=2, ram_gb_per_proc=0.5, local_fit="exact", name="again"
                )
                time.sleep(600)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            if "again" in str(cluster) and cluster.status.name == "running":
                client.close(); cluster.close()
            client, cluster = hyperplane.initialize_cluster(
                num_workers=1, nprocs=1, ram_gb_per_proc=0.5, local_fit="exact", name="again"
            )
            assert client.submit(sum, [1, 2]).result() == 3
            client.close(); cluster.close()
            print("started again", flush=True)
            sys.stdin.readline()
        """,
        few_imports=False,
    )
    for delay in DELAYS:
        program.line("starting")
        time.sleep(delay)
        program.process.send_signal(signal.SIGINT)
        program.line("interrupted")
        program.line("started again")
        wait_until(lambda: only_the_tracker(program), SOON)
        assert list(place.rglob("*")) == [], delay
        program.go_on()
    _, err = program.finish()
    assert program.process.returncode == 0, err
    wait_until(lambda: not program.family(), SOON)
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
        timeout=240,
    )
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    out, err = program.finish()
    assert out.splitlines()[-1] == "closed"
    assert err == ""
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


def test_an_idle_cluster_closes_and_a_held_result_keeps_it(run: Run) -> None:
    program = run(
        """
        client.close(); cluster.close()
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, idle_timeout=600
        )
        held = client.submit(sum, [1, 2])
        assert held.result() == 3
        # Only now: on a busy machine more than half a second may pass before a result is held.
        guard = cluster.scheduler.plugins["hyperplane-idle-guard"]
        assert guard.timeout == 600
        guard.timeout = 0.5
        while not guard._warned:
            time.sleep(0.05)
        assert cluster.status.name == "running"
        assert held.result() == 3
        del held
        began = time.monotonic()
        while cluster.status.name != "closed" and time.monotonic() - began < 120:
            time.sleep(0.05)
        print("closed", cluster.status.name, client.status)
        """
    )
    out, err = program.finish()
    assert out.splitlines()[-1] == "closed closed closed", err
    # The one warning that says why it was left open.
    assert "results are held" in err
    assert "Traceback" not in err
