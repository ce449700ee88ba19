"""``python rank_program.py PLATFORM FOLDER PROGRAM ARGUMENT...``: run one process of a gang.

With ``slurm`` it runs in a task of srun: it writes its host and two free ports to the shared
``FOLDER``, waits for those of all others, runs the program, and writes its exit code. With
``kubernetes`` it runs in a pod of an Indexed Job, in which ``FOLDER`` is the subdomain of the pods:
it waits until the names of all pods have an address, and becomes the program.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import ExitStack

if __package__:
    from hyperplane.clusters import gang_plan
    from hyperplane.clusters.rank_environment import RankAddress
else:
    # In a pod, all files are in the folder of this one.
    _HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path += [_HERE, os.path.join(_HERE, "..", "..", "clusters")]  # noqa: PTH118
    import gang_plan  # type: ignore[import-not-found, no-redef]
    from rank_environment import RankAddress  # type: ignore[import-not-found, no-redef]

#: Ports of each pod: that of TF_CONFIG, and that of MASTER_PORT.
PORT, MASTER_PORT = 2222, 29500
_INTERVAL = 0.1
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


def main(platform: str, folder: str, words: list[str]) -> int:
    """Run the program; return its exit code, negative for a signal."""
    plan = gang_plan.GangPlan.from_json(os.environ[gang_plan.PLAN_VARIABLE])
    if platform == "kubernetes":
        number = int(os.environ[_INDEX_VARIABLE])
        # Without it the number of the process would be the index of a shard.
        del os.environ[_INDEX_VARIABLE]
        return _exec(words, _build_environment(plan, number, _find_pods(plan, folder)))
    number = int(os.environ["SLURM_PROCID"])
    with ExitStack() as sockets:
        # Open until the others know them, so that no other program gets the ports.
        ports = [sockets.enter_context(_open_socket()).getsockname()[1] for _ in range(2)]
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        _write(f"{folder}/{number}.address", f"{host} {ports[0]} {ports[1]}")
        addresses = _read_addresses(plan, folder)
    # The signal ends the program; this process then writes its exit code.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os._exit(_exec(words, _build_environment(plan, number, addresses)))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _write(f"{folder}/{number}.exit", f"{code} {time.time()}")
    return code


def _build_environment(
    plan: gang_plan.GangPlan, number: int, addresses: list[RankAddress]
) -> dict[str, str]:
    restarts = int(os.environ.get(gang_plan.RESTARTS_VARIABLE) or 0)
    variables = {**os.environ, **plan.build_environment(number, addresses, restarts)}
    variables.pop(gang_plan.PLAN_VARIABLE)
    return {name: text for name, text in variables.items() if text is not None}


def _exec(words: list[str], environment: dict[str, str]) -> int:
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 - no shell
    except OSError as error:
        os.write(2, f"{words[0]}: {error.strerror}\n".encode(errors="replace"))
        return 127 if isinstance(error, FileNotFoundError) else 126


def _read_addresses(plan: gang_plan.GangPlan, folder: str) -> list[RankAddress]:
    """Wait until all processes have written their addresses, and return them."""
    addresses: list[RankAddress] = []
    while len(addresses) < plan.size:
        try:
            with open(f"{folder}/{len(addresses)}.address") as file:  # noqa: PTH123
                host, port, master_port = file.read().split()
        except FileNotFoundError:
            time.sleep(_INTERVAL)
            continue
        addresses.append(RankAddress(host, int(port), int(master_port)))
    return addresses


def _find_pods(plan: gang_plan.GangPlan, subdomain: str) -> list[RankAddress]:
    """Wait until the names of all pods have an address: all have then started."""
    job = os.environ["HOSTNAME"].rpartition("-")[0]
    hosts = [f"{job}-{number}.{subdomain}" for number in range(plan.size)]
    waiting = hosts if plan.size > 1 else []
    while waiting:
        waiting = [host for host in waiting if not _has_address(host)]
        if waiting:
            time.sleep(10 * _INTERVAL)
    return [RankAddress(host, PORT, MASTER_PORT) for host in hosts]


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def _open_socket() -> socket.socket:
    opened = socket.socket()
    opened.bind(("", 0))
    return opened


def _write(path: str, text: str) -> None:
    """Write a file through a draft and a rename."""
    with open(f"{path}.draft", "w") as draft:  # noqa: PTH123
        draft.write(text)
    os.replace(f"{path}.draft", path)  # noqa: PTH105


if __name__ == "__main__":
    _code = main(sys.argv[1], sys.argv[2], sys.argv[3:])
    os._exit(_code if _code >= 0 else 128 - _code)
