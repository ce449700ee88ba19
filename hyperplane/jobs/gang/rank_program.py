"""``python rank_program.py PLATFORM FOLDER PROGRAM ARGUMENT...``: run one process of a gang.

With ``slurm`` it runs in a task of srun: it writes its host and two free ports to the shared
``FOLDER``, waits for those of all others, runs the program, and writes its exit code. With
``kubernetes`` it runs in a pod of an Indexed Job, in which ``FOLDER`` is the subdomain of the pods:
it waits until the names of all pods have an address, runs the program, and writes the time of its
end to the pod's status.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from types import FrameType

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
#: File whose content is the message of an ended container in the status of its pod.
_TERMINATION_LOG = "/dev/termination-log"
_NOT_STARTED = 128
#: Signals by which a container is asked to end; an image may have one other than SIGTERM.
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)


def main(platform: str, folder: str, words: list[str]) -> int:
    """Run the program; return its exit code, negative for a signal."""
    plan = gang_plan.GangPlan.from_json(os.environ[gang_plan.PLAN_VARIABLE])
    if platform == "kubernetes":
        # The first process of a container ignores signals that it does not handle.
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
        number = int(os.environ[_INDEX_VARIABLE])
        # Without it the number of the process would be the index of a shard.
        del os.environ[_INDEX_VARIABLE]
        environment = _build_environment(plan, number, _find_pods(plan, folder))
        code = _run(words, environment, forward=True)
        _write_end_time(code)
        return code
    number = int(os.environ["SLURM_PROCID"])
    with ExitStack() as sockets:
        # Open until the others know them, so that no other program gets the ports.
        ports = [sockets.enter_context(_open_socket()).getsockname()[1] for _ in range(2)]
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        _write(f"{folder}/{number}.address", f"{host} {ports[0]} {ports[1]}")
        addresses = _read_addresses(plan, folder)
    code = _run(words, _build_environment(plan, number, addresses), forward=False)
    _write(f"{folder}/{number}.exit", f"{code} {time.time()}")
    return code


def _run(words: list[str], environment: dict[str, str], *, forward: bool) -> int:
    """Run the program in a child process; with ``forward``, it gets the signals of this one."""

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if forward:
            with suppress(ProcessLookupError):
                os.kill(child, number)

    # The signals end the program; this process then writes how it ended. Blocked, so that none
    # arrives before there is a process to forward it to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    for number in _FORWARDED:
        signal.signal(number, handle)
    child = os.fork()
    if child == 0:
        for number in _FORWARDED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os._exit(_exec(words, environment))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    while True:
        # The first process of a container is the parent of all whose parents have ended.
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status)


def _write_end_time(code: int) -> None:
    """Write the time of the end to the pod's status; Kubernetes itself records whole seconds."""
    # With a message, the code of a container that could not be started is not that of a program.
    if code != _NOT_STARTED and os.path.exists(_TERMINATION_LOG):  # noqa: PTH110
        with suppress(OSError), open(_TERMINATION_LOG, "a") as log:  # noqa: PTH123
            log.write(f"\n{time.time():.3f}")


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
