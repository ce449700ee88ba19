"""How local clusters end; each case is a separate program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from dask_notices import without_notices
from subprograms import SAY_WORKERS, SOON, Run, dead, only_the_tracker, wait_until, workers_of

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
#: A program with one cluster that stays open, so that the others start quickly.
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
    # Messages of Dask about a restart, and of this package about each additional cluster.
    expected = ("Restarting worker", "this program runs keeper already")
    assert [line for line in lines if not any(words in line for words in expected)] == []
    wait_until(lambda: not program.family(), SOON)
    assert list(place.rglob("*")) == []


def test_after_close_the_program_has_no_worker_left_while_it_goes_on(run: Run) -> None:
    program = run("client.close(); cluster.close(); print('closed', flush=True); time.sleep(600)")
    program.line("closed")
    assert only_the_tracker(program)


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


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_workers_die_with_their_owner_while_a_task_holds_the_gil(run: Run) -> None:
    program = run(SAY_WORKERS + HOLD_THE_GIL + "time.sleep(600)")
    workers = workers_of(program)
    program.line("held")
    for worker in workers:
        # Only the tasks use so much CPU time, and they never end.
        used = processor_seconds(worker)
        wait_until(lambda w=worker, u=used: processor_seconds(w) > u + 0.3, 60)  # type: ignore[misc]
    program.process.kill()
    wait_until(lambda: all(map(dead, workers)), SOON)
    wait_until(lambda: not program.family(), SOON)


def test_files_of_a_killed_owner_are_removed_by_the_next_reader_of_records(
    run: Run, place: Path
) -> None:
    program = run(SAY_WORKERS + "time.sleep(600)")
    workers_of(program)
    program.process.kill()
    program.process.wait()
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
    # The one warning that says why it was not closed.
    assert "results are held" in err
    assert "Traceback" not in err
