"""Programs and steps of the tests of gangs."""

from __future__ import annotations

import sys
from pathlib import Path

from hyperplane.jobs import Step

#: Ranks meet at MASTER_ADDR, and rank 0 writes the sum of what it has received to the file "sum".
#: With the file "killed" still missing, rank 1 of the first attempt waits to be killed.
MEET = """
import json, os, socket, sys, time
from pathlib import Path
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
restarts = int(os.environ["HYPERPLANE_RESTART_COUNT"])
assert json.loads(os.environ["TF_CONFIG"])["task"]["index"] == rank
assert "HYPERPLANE_JOB_GANG" not in os.environ
print("begins", rank, "of", size, "restarts", restarts, flush=True)
chunk = os.environ.get("CHUNK_ID", "")
if len(sys.argv) > 1 and restarts == 0:
    Path(os.environ["HYPERPLANE_CHECKPOINTS"], str(rank)).write_text(str(os.getpid()))
    if rank == 1:
        pids = [Path(os.environ["HYPERPLANE_CHECKPOINTS"], str(each)) for each in range(size)]
        while not all(file.exists() and file.read_text() for file in pids):
            time.sleep(0.05)
        os.kill(os.getpid(), 9) if sys.argv[1] == "kill" else sys.exit("ValueError: no such column")
    time.sleep(600)
if rank == 0:
    with socket.create_server(address) as server:
        total = sum(int(server.accept()[0].recv(20)) for _ in range(size - 1))
    Path(f"sum{chunk}").write_text(f"{total} {restarts}")
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(address, timeout=5) as client:
                client.sendall(str(rank).encode())
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
"""


def gang(n, *arguments, **options):
    """Return a step whose n ranks meet."""
    argv = (sys.executable, "-c", MEET, *arguments)
    return Step(name="meet", kind="command", argv=argv, gang=n, **options)


#: Writes its role and TF_CONFIG; only the primary ends, when four processes have written theirs.
TASK = """
import json, os, sys, time
from pathlib import Path
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
Path(sys.argv[-1]).mkdir(exist_ok=True)
record = {"config": config, "rank": os.environ.get("RANK"), "argv": sys.argv[1:],
          "size": os.environ.get("HYPERPLANE_WORLD_SIZE")}
draft = Path(sys.argv[-1], f"{role}-{index}.draft")
draft.write_text(json.dumps(record))
draft.rename(draft.with_suffix(".json"))
if role != "chief":
    time.sleep(600)
while len(list(Path(sys.argv[-1]).glob("*.json"))) < 4:
    time.sleep(0.05)
sys.exit(int(sys.argv[1]))
"""


def train(code, **options):
    """Return a step of a training program of four processes, in the current folder."""
    package = Path("trainer")
    package.mkdir()
    (package / "task.py").write_text(TASK)
    options |= {"worker_count": 1, "parameter_server_count": 1, "evaluator_count": 1}
    return Step(
        name="train", kind="train", module_name="trainer.task", package_path="trainer",
        job_dir="out", args=(str(code),), **options,
    )  # fmt: skip
