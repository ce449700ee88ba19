"""Local clusters end with their program at any moment; each case is a separate program."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from dask_notices import without_notices
from scale import FULL, scaled
from subprograms import SAY_WORKERS, SOON, Run, dead, only_the_tracker, wait_until, workers_of

pytestmark = pytest.mark.cluster

#: Code at the end of a program; the exit of the program closes the cluster.
EXITS = {
    "client only": "client.close()",
    "with client": "with client: pass",
    "nothing at all": "pass",
    "exit in the middle": "f = client.map(time.sleep, [5] * 4); time.sleep(0.3); sys.exit(0)",
    "results held": "f = client.scatter([1, 2]); g = client.submit(sum, f); g.result()",
    "interrupted": """
import signal, threading
held = client.submit(sum, client.scatter([1, 2]))
held.result()
second = hyperplane.initialize_cluster(num_workers=1, nprocs=1, ram_gb_per_proc=0.5, name="other")
try:
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    client.gather(client.map(time.sleep, [60] * 3))
except KeyboardInterrupt:
    pass""",
    "del": "del cluster; del client",
}
#: The contract of engines has a test of a program that ends without closing anything.
SOME_EXITS = scaled(["interrupted"], list(EXITS))


@pytest.mark.skipif(not FULL, reason="test_local_life.py closes in every way, too: at full scale")
def test_every_way_to_exit_leaves_nothing(run: Run, place: Path) -> None:
    programs = {}
    for name in SOME_EXITS:
        ending = EXITS[name]
        own = place / name.replace(" ", "-")[:4]
        own.mkdir()
        text = f"client.submit(sum, [1, 2]).result()\n{ending}\nprint('end')"
        programs[name] = own, run(text, place=own, few_imports=name != "nothing at all")
    for name, (own, program) in programs.items():
        out, raw = program.process.communicate(timeout=240)
        # A second cluster is announced in addition to the first.
        err = without_notices("".join(re.findall(r"(?m)^(?!👉).*\n?", raw)))
        assert program.process.returncode == 0, (name, raw)
        assert "Async instruction for" not in raw
        assert "still alive after" not in raw
        assert out.splitlines()[-1] == "end" or "exit" in name, name
        assert err == "", name
        wait_until(lambda program=program: not program.family(), SOON)  # type: ignore[misc]
        assert list(own.rglob("*")) == [], name


@pytest.mark.skipif(not FULL, reason="test_local_life.py has a killed owner, too: at full scale")
def test_workers_die_with_their_owner(run: Run, place: Path) -> None:
    programs = []
    busy = "f = client.map(time.sleep, [60, 61])\ntime.sleep(0.3)\n"
    # test_local_life.py has a test of SIGKILL with tasks that are harder to end.
    cases = [(busy, signal.SIGTERM), (busy, signal.SIGKILL), ("", signal.SIGKILL)]
    for before, number in scaled(cases[:1], [*cases, ("", signal.SIGTERM)]):
        own = place / str(len(programs))
        own.mkdir()
        programs.append((number, run(before + SAY_WORKERS + "time.sleep(600)", place=own)))
    for number, program in programs:
        workers = workers_of(program)
        assert len(workers) == 2
        program.process.send_signal(number)
        wait_until(lambda workers=workers: all(map(dead, workers)), SOON)  # type: ignore[misc]


DELAYS = scaled([0.4], [0.1, 0.3, 0.5, 0.7, 0.9, 1.2])


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_a_start(run: Run, place: Path) -> None:
    program = run(
        f"""
        import dask, distributed
        hyperplane.plan_cluster()  # so that no interrupt comes before all modules are imported
        cluster = None
        for _ in range({len(DELAYS)}):
            try:
                print("starting", flush=True)  # the interrupt comes a while after this is read
                client, cluster = hyperplane.initialize_cluster(
                    num_workers=1, nprocs=2, ram_gb_per_proc=0.5, local_fit="exact", name="again"
                )
                time.sleep(600)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            if cluster is not None and cluster.status.name == "running":
                client.close(); cluster.close()
            with dask.config.set({{"hyperplane.engines.local.preload": []}}):  # for a quick start
                client, cluster = hyperplane.initialize_cluster(
                    num_workers=1, nprocs=1, ram_gb_per_proc=0.5, local_fit="exact", name="again"
                )
            assert client.submit(sum, [1, 2]).result() == 3
            client.close(); cluster.close()
            print("started again", flush=True)
            sys.stdin.readline()
        """,
        few_imports=False,
        start="import sys, time\nimport hyperplane\n",
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
