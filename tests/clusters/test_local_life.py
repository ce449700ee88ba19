"""How local clusters end; each case is a separate program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from dask_notices import without_notices
from scale import FULL, scaled
from subprograms import SAY_WORKERS, SOON, Run, dead, only_the_tracker, wait_until, workers_of

from hyperplane import notebook_common

pytestmark = pytest.mark.cluster

#: Ways to close a cluster after which the program continues.
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
#: Closings that have all calls of the others, in both orders.
SOME_CLOSINGS = scaled(
    ["shutdown then both", "twice", "with both", "restart first"],
    list(CLOSINGS),
)
#: A program with one cluster that stays open, so that the others start quickly.
MANY_CLOSINGS = """
import os, sys
import hyperplane
ARGUMENTS = dict(num_workers=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact")
keeper = hyperplane.start(hyperplane.plan_cluster(name="keeper", nprocs=1, **ARGUMENTS))
print("kept, imports pandas:", "pandas" in sys.modules, flush=True)
for name, closing in CLOSINGS.items():
    sys.stdin.readline()
    client, cluster = hyperplane.start(hyperplane.plan_cluster(name="one", nprocs=2, **ARGUMENTS))
    client.submit(sum, [1, 2]).result()
    exec(closing)
    del client, cluster
    print("closed", name, flush=True)
sys.stdin.readline()
keeper.cluster.close(), keeper.client.close()
print("end", flush=True)
sys.stdin.readline()
"""


#: For programs that start their clusters with other arguments.
IMPORTS = "import sys, time\nimport hyperplane\n"


def files_below(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


@pytest.mark.slow
def test_every_way_to_close_leaves_nothing(run: Run, place: Path) -> None:
    closings = {name: CLOSINGS[name] for name in SOME_CLOSINGS}
    program = run(f"CLOSINGS = {closings!r}\n{MANY_CLOSINGS}", start="")
    assert program.line("kept, imports pandas:") == "False"
    processes = {process.pid for process in program.family()}
    files = files_below(place)
    assert len(processes) >= 3, "a worker and what it is forked from"
    for name in closings:
        program.go_on()
        assert program.line("closed") == name
        wait_until(lambda: {process.pid for process in program.family()} == processes, SOON)
        assert files_below(place) == files, name
    program.go_on()
    program.line("end")
    assert only_the_tracker(program), "no worker is left while the program goes on"
    program.go_on()
    _, err = program.finish()
    assert program.process.returncode == 0, err
    lines = err.splitlines()
    # Messages of Dask about a restart, and of this package about each additional cluster.
    expected = ("Restarting worker", "this program runs keeper already")
    assert [line for line in lines if not any(words in line for words in expected)] == []
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


# A call into C that holds the GIL: a regular expression that backtracks for minutes.
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


#: A program that a task starts, in a separate session.
START_PROGRAM = """
def start_program():
    return os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, setsid=True)
print("programs", client.submit(start_program).result(), flush=True)
"""


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_workers_die_with_their_owner_while_a_task_holds_the_gil(run: Run, place: Path) -> None:
    program = run(SAY_WORKERS + START_PROGRAM + HOLD_THE_GIL + "time.sleep(600)")
    workers = workers_of(program)
    started = psutil.Process(int(program.line("programs")))
    program.line("held")
    for worker in workers:
        # Only the tasks use so much CPU time, and they never end.
        used = processor_seconds(worker)
        wait_until(lambda w=worker, u=used: processor_seconds(w) > u + 0.1, 60)  # type: ignore[misc]
    program.process.kill()
    program.process.wait()
    wait_until(lambda: all(map(dead, [*workers, started])), SOON)
    wait_until(lambda: not program.family(), SOON)
    # Its files are removed by the next reader of records.
    [folder] = [path for path in place.iterdir() if path.name.startswith("hyperplane-")]
    assert list(folder.rglob("*.json"))
    look = "from hyperplane.clusters import records; print(records.read_all())"
    done = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert list(place.rglob("*")) == []


@pytest.mark.skipif(not FULL, reason="test_local_exits.py interrupts a start, too: at full scale")
def test_ctrl_c_while_it_starts_leaves_nothing(run: Run, place: Path) -> None:
    program = run(
        """
        import dask, pathlib
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
        """,
        start=IMPORTS,
    )
    program.line("hanging")
    program.process.send_signal(signal.SIGINT)
    out, err = program.finish()
    assert out.splitlines()[-1] == "interrupted", err
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


@pytest.mark.skipif(not FULL, reason="the tests of commands do it, too: at full scale")
def test_another_process_finds_and_closes_it(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = run(
        "print('name', cluster.name, flush=True)\n"
        "while cluster.status.name != 'closed': time.sleep(0.05)\n"
        "print('closed')"
    )
    name = program.line("name")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    capfd.readouterr()
    client = notebook_common.get_dask_cluster(name)
    assert client.submit(sum, [1, 2]).result() == 3
    client.shutdown()
    assert without_notices(capfd.readouterr().err) == ""
    out, err = program.finish()
    assert out.splitlines()[-1] == "closed"
    assert err == ""
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


@pytest.mark.slow
def test_an_idle_cluster_closes_and_a_held_result_keeps_it(run: Run) -> None:
    program = run(
        """
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
        """,
        start=IMPORTS,
    )
    out, err = program.finish()
    assert out.splitlines()[-1] == "closed closed closed", err
    # The one warning that says why it was not closed.
    assert "results are held" in err
    assert "Traceback" not in err
