"""Busy workers survive on remote schedulers, which may not have this package."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import dask.config
import pytest
from distributed.protocol.pickle import dumps
from kubernetes_cases import rendered

import hyperplane
import hyperplane.clusters.dask.gateway.start as gateway_start
from hyperplane.clusters.dask.gateway import plugins
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.guard.usage import UsageMonitor

#: A program without this package that runs a worker and a scheduler with a short time-to-live.
PROGRAM = """
import asyncio, ctypes, json, logging, os, pickle, sys
import dask.config
import distributed.scheduler
from distributed import Client, Nanny, Scheduler

sys.modules["hyperplane"] = None  # as if it was not installed
distributed.scheduler.heartbeat_interval = lambda workers: 0.1
ADDRESS = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}

class Said(logging.Handler):
    lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

def hold_the_lock(fifo):  # until there is a byte in a pipe
    number = os.open(fifo, os.O_RDWR)
    ctypes.PyDLL(None).read(number, ctypes.create_string_buffer(1), 1)
    return os.getpid()

def patient(guard):  # however busy the machine is: its nanny is here
    type(guard)._activity.__globals__["ANSWER_LIMIT"] = 60.0
    return guard

async def main():
    os.mkfifo(fifo := sys.argv[1])
    logging.getLogger().addHandler(Said())
    text, pickled = pickle.load(sys.stdin.buffer)
    dask.config.set({"distributed.scheduler.worker-ttl": "1s"})
    async with Scheduler(preload=[text], **ADDRESS) as scheduler:
        async with Nanny(scheduler.address, nthreads=1, **ADDRESS) as nanny:
            async with Client(scheduler.address, asynchronous=True) as client:
                pid = await client.submit(os.getpid)
                patient(scheduler.plugins["hyperplane-busy-worker-guard"])
                future = client.submit(hold_the_lock, fifo)
                while not any("the interpreter's lock" in line for line in Said.lines):
                    await asyncio.sleep(0.05)
                await asyncio.sleep(2.5)
                os.write(os.open(fifo, os.O_RDWR), b"x")
                assert await future == pid, "the worker was killed"
            guard = patient(pickle.loads(pickled))
            await guard.start(scheduler)
            [worker] = scheduler.workers.values()
            found, cpu = await guard._activity(worker)
            await guard.close()
            plugins = list(scheduler.plugins)
            facts = {"text": plugins, "pickled": [found == pid, cpu > 0], "said": Said.lines}
            json.dump(facts, sys.stdout)

if __name__ == "__main__":
    asyncio.run(main())
"""


def scheduler_preloads(**options: Any) -> list[str]:
    """The preloads, as text, of a scheduler in a pod."""
    [container] = rendered(**options)["spec"]["scheduler"]["spec"]["containers"]
    args = container["args"]
    return [args[at + 1] for at, arg in enumerate(args) if arg == "--preload"]


@pytest.mark.slow
@pytest.mark.cluster
def test_a_remote_scheduler_keeps_a_worker_that_holds_the_gil(
    tmp_path: Any,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    text = scheduler_preloads()[-1].replace("$$", "$")
    with plugins.pickled_by_value():
        sent = pickle.dumps((text, dumps(BusyWorkerGuard())))
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "fifo")],
        input=sent,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert BusyWorkerGuard.name in found["text"]
    assert found["pickled"] == [True, True]
    said = "\n".join(found["said"])
    assert "holds the interpreter's lock (GIL); the worker is not restarted" in said


def test_a_time_to_live_that_the_user_chose_is_kept_exactly_in_pods() -> None:
    guarded = len(scheduler_preloads())
    with dask.config.set({"distributed.scheduler.worker-ttl": "45s"}):
        kept = scheduler_preloads()
    assert guarded == len(kept) + 1
    assert not any("BusyWorkerGuard" in text for text in kept)


@pytest.mark.parametrize("environment", [None, "environment"])
def test_a_gateway_scheduler_gets_the_guard_unless_the_user_set_a_time_to_live(
    environment: str | None,
) -> None:
    plan_options = {"variables": environment, "memory": "ram_gb"}
    where = {"address": "http://127.0.0.1:1", "plan_options": plan_options}
    plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, engine="gateway", engine_options=where)

    def names() -> list[str]:
        return [one.name for one in gateway_start._needed_plugins(plan, plan.settings)]

    # The guard comes after the plugin that sets the time-to-live.
    settings = [] if environment else ["hyperplane-settings"] * 2
    assert names() == [
        *settings,
        BusyWorkerGuard.name,
        "hyperplane-idle-guard",
        "hyperplane-lease",
        UsageMonitor.name,
    ]
    with dask.config.set({"distributed.scheduler.worker-ttl": "45s"}):
        assert BusyWorkerGuard.name not in names()
