"""Killed programs leave no process, and only whole objects on a store."""

from __future__ import annotations

import contextlib
import time
import uuid

import killing
import psutil
import pytest
from scale import FULL, scaled

pytestmark = pytest.mark.process

WRITE = """
import sys, faulty, fsspec
system = fsspec.filesystem("faulty", root=sys.argv[1])
for number in range(int(sys.argv[2])):
    system.pipe_file(f"bucket/{number}", b"x" * 300_000)
print("done")
"""
#: Ends only if it is killed.
WRITE_AND_WAIT = f"{WRITE}\nimport time\ntime.sleep(240)"


def test_moments_are_spread_and_determined_by_the_seed():
    times = list(killing.moments(100, 5.0, seed=1))
    assert times == list(killing.moments(100, 5.0, seed=1)) != sorted(times)
    assert times != list(killing.moments(100, 5.0, seed=2))
    assert all(number <= time / 0.05 < number + 1 for number, time in enumerate(sorted(times)))


def test_a_program_that_ends_before_the_kill_is_reported(faulty_store):
    store = faulty_store()
    ended = killing.run(WRITE, str(store.root), "3")
    assert (ended.killed, ended.code, ended.out) == (False, 0, "done\n")
    late = killing.run(WRITE, str(store.root), "1", after=240)
    assert not late.killed
    assert late.seconds < 240


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_program_is_killed_at_a_write(faulty_store, moment):
    store = faulty_store(kill=(4, moment))
    ended = killing.run(WRITE, str(store.root), "10")
    assert (ended.killed, ended.code, ended.out) == (True, -9, "")
    assert len(store.objects()) == {"before": 3, "after": 4}[moment]
    assert [call.outcome for call in store.journal()] == ["ok"] * 3 + ["killed"]


def test_a_program_is_killed_when_a_condition_is_true(faulty_store):
    store = faulty_store()
    looks = []

    def five():
        looks.append(len(store.writes()))
        return looks[-1] >= 5

    ended = killing.run(WRITE_AND_WAIT, str(store.root), "5", when=five)
    assert (ended.killed, ended.code) == (True, -9)
    assert ended.seconds < 240
    assert len(store.objects()) == looks[-1] == 5


@pytest.mark.skipif(not FULL, reason="tests of the test tools: at full scale")
def test_objects_are_whole_whenever_a_program_is_killed(faulty_store):
    for moment in killing.moments(scaled(4, 8), 0.5):
        store = faulty_store()
        # From the first write on, however long Python takes to start.
        due = _later(lambda counts=store.root / "counts": any(counts.iterdir()), moment)
        assert killing.run(WRITE_AND_WAIT, str(store.root), "5000", when=due).killed
        assert set(store.objects().values()) <= {b"x" * 300_000}


def _later(condition, seconds):
    """Return a predicate that becomes true some seconds after a condition."""
    since = []

    def met():
        if not since and condition():
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= seconds

    return met


FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setsid(); time.sleep(290)"
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", child])
time.sleep(290)
"""


def _asleep(nap):
    """Return the processes of the program above."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HYPERPLANE_TEST_NAP") == nap and process.status() != "zombie":
                found.append(process)
    return found


def test_child_processes_of_a_killed_program_are_ended(monkeypatch):
    nap = uuid.uuid4().hex  # distinguishes processes of concurrent test runs
    monkeypatch.setenv("HYPERPLANE_TEST_NAP", nap)
    seen = []

    def all_there():
        seen[:] = [one.pid for one in _asleep(nap) if "sleep(" in " ".join(one.cmdline())]
        return len(seen) == 3

    assert killing.run(FAMILY, when=all_there).killed
    assert len(seen) == 3
    assert not _asleep(nap)


def test_only_the_chosen_process_is_killed():
    script = (
        "import subprocess, sys\n"
        "code = subprocess.call([sys.executable, '-c', 'import time; time.sleep(290)'])\n"
        "print('child', code)\n"
    )
    ended = killing.run(script, after=0.1, whom=lambda them: them[1] if len(them) == 2 else None)
    assert (ended.killed, ended.code, ended.out) == (True, 0, "child -9\n")


def test_a_program_that_exceeds_its_time_is_ended():
    script = "import time; print('begun', flush=True); time.sleep(290)"
    for patience in (1, 5, 25, 125):  # until Python has enough time to start
        with pytest.raises(TimeoutError, match=f"not ended in {patience} s") as caught:
            killing.run(script, patience=patience)
        if "begun" in str(caught.value):
            return
    pytest.fail("the error does not contain the output")
