"""Killed programs leave no process, and on a store whole objects or none."""

from __future__ import annotations

import contextlib
import time

import killing
import psutil
import pytest

pytestmark = pytest.mark.process

WRITE = """
import sys, faulty, fsspec
system = fsspec.filesystem("faulty", root=sys.argv[1])
for number in range(int(sys.argv[2])):
    system.pipe_file(f"bucket/{number}", b"x" * 300_000)
print("done")
"""


def test_moments_are_spread_and_repeat():
    times = list(killing.moments(100, 5.0, seed=1))
    assert times == list(killing.moments(100, 5.0, seed=1)) != sorted(times)
    assert times != list(killing.moments(100, 5.0, seed=2))
    assert all(number <= time / 0.05 < number + 1 for number, time in enumerate(sorted(times)))


def test_a_program_that_is_not_killed(faulty_store):
    store = faulty_store()
    ended = killing.run(WRITE, str(store.root), "3")
    assert (ended.killed, ended.code, ended.out) == (False, 0, "done\n")
    late = killing.run(WRITE, str(store.root), "1", after=30)
    assert not late.killed
    assert late.seconds < 25


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_a_write(faulty_store, moment):
    store = faulty_store(kill=(4, moment))
    ended = killing.run(WRITE, str(store.root), "10")
    assert (ended.killed, ended.code, ended.out) == (True, -9, "")
    assert len(store.objects()) == {"before": 3, "after": 4}[moment]
    assert [call.outcome for call in store.journal()] == ["ok"] * 3 + ["killed"]


def test_killed_when_something_is_so(faulty_store):
    store = faulty_store(slow=1, slow_seconds=0.02)
    ended = killing.run(WRITE, str(store.root), "500", when=lambda: len(store.writes()) >= 5)
    assert ended.killed
    assert 5 <= len(store.objects()) < 100


def test_objects_are_whole_whenever_a_program_is_killed(faulty_store):
    for moment in killing.moments(8, 0.5):
        store = faulty_store()
        # From the first write on, however long Python takes to start.
        due = _later(lambda counts=store.root / "counts": any(counts.iterdir()), moment)
        assert killing.run(WRITE, str(store.root), "100000", when=due).killed
        assert set(store.objects().values()) <= {b"x" * 300_000}


def _later(condition, seconds):
    """So many seconds after something is so."""
    since = []

    def met():
        if not since and condition():
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= seconds

    return met


FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setsid(); time.sleep(121)"
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", child])
time.sleep(121)
"""


def _asleep():
    """The processes of the program above."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HYPERPLANE_TEST_NAP") and process.status() != "zombie":
                found.append(process)
    return found


def test_nothing_is_left(monkeypatch):
    monkeypatch.setenv("HYPERPLANE_TEST_NAP", "1")
    seen = []

    def all_there():
        seen[:] = [one for one in _asleep() if "sleep(121)" in " ".join(one.cmdline())]
        return len(seen) == 3

    assert killing.run(FAMILY, when=all_there).killed
    assert len(seen) == 3
    assert not _asleep()


def test_a_chosen_process_is_killed_and_the_others_go_on():
    script = (
        "import subprocess, sys\n"
        "code = subprocess.call([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('child', code)\n"
    )
    ended = killing.run(script, after=0.1, whom=lambda them: them[1] if len(them) == 2 else None)
    assert (ended.killed, ended.code, ended.out) == (True, 0, "child -9\n")


def test_a_program_that_does_not_end_is_ended():
    with pytest.raises(TimeoutError, match=r"not ended in 1(.|\n)*begun"):
        killing.run("import time; print('begun', flush=True); time.sleep(60)", patience=1)
