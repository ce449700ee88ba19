"""A process forked while a cluster is open gets an error at once, and does no damage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dask_notices import without_notices

pytestmark = [
    pytest.mark.usefixtures("few_imports"),
    pytest.mark.cluster,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="for systems that can fork"),
]

PROGRAM = """
import gc, os, sys, time
import dask
import hyperplane

ONE = dict(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact")

def in_a_child(function):
    sys.stdout.flush()
    if os.fork() == 0:
        function()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])

def refused(call):
    began = time.monotonic()
    try:
        call()
    except hyperplane.EngineError as error:
        # The engine of the cluster is not part of the message: it may be any engine.
        print("refused" if str(error).startswith("process ") and not error.engine else error)
    else:
        print("not refused")

def start():
    return hyperplane.start(hyperplane.plan_cluster(**ONE))

def child():
    global client, cluster, future
    refused(client.close)
    refused(cluster.close)
    refused(client.shutdown)
    refused(lambda: client.submit(sum, [1, 2]))
    refused(future.result)
    refused(client.scheduler_info)
    refused(dask.delayed(sum)([1, 2]).compute)
    refused(lambda: cluster.scale(2))
    refused(start)
    refused(lambda: hyperplane.get_cluster(cluster.name))
    del client, cluster, future
    gc.collect()

client, cluster = start()
future = client.submit(sum, [1, 2], pure=False)
assert future.result() == 3
print("child", in_a_child(child))
assert client.submit(sum, [3, 4]).result() == 7, "the parent's cluster goes on"
del future
client.close(), cluster.close()

def after_the_end():
    inner, cluster = start()
    print("sum", inner.submit(sum, [3, 4]).result(timeout=120))
    inner.close(), cluster.close()

print("child", in_a_child(after_the_end))
"""


def run_program(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=140,
    )


def has_crashed(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a thread that runs no Python code has ended a child.

    In two of some hundred runs a thread that ended in a child ended it with a segmentation fault:
    faulthandler lists the thread that crashes as the current one only while it runs Python code.
    """
    return "Segmentation fault" in done.stderr and "Current thread" not in done.stderr


@pytest.mark.slow
def test_a_forked_child_is_refused_at_once_and_the_parent_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    done = run_program(script)
    if has_crashed(done):
        done = run_program(script)
    assert without_notices(done.stderr) == ""
    assert done.stdout.splitlines() == ["refused"] * 10 + ["child 0", "sum 7", "child 0"]
