"""Functions that ranks run in tests; each imports what it uses, because it is pickled by value."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle


def pickled_by_value(function: Any) -> Any:
    """Return a function of this module, which workers cannot import, ready for a gang."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return function


def find_reserved(dask_scheduler: Any) -> dict[str, Any]:
    """Return the reservations of gangs; runs on the scheduler."""
    from hyperplane.clusters.dask.gang.slots import _get_table

    return dict(_get_table(dask_scheduler).reserved)


def get_environment() -> tuple[dict[str, str], int, int]:
    import os

    return dict(os.environ), os.getpid(), os.getppid()


def fail(rank: int) -> None:
    import os
    import time

    if os.environ["RANK"] == str(rank):
        print("before the error")  # noqa: T201
        raise KeyError("gone")
    time.sleep(600)


def hold_slots(folder: str, name: str) -> bool:
    """Return whether a process of another gang ran at the same time."""
    import os
    import pathlib
    import time

    mine = pathlib.Path(folder, f"{name}-{os.environ['RANK']}")
    mine.touch()
    met = False
    for _ in range(5):
        met = met or any(file.name[0] != name for file in pathlib.Path(folder).iterdir())
        time.sleep(0.02)
    mine.unlink()
    return met


def count_up(checkpoints_end: int, pids: str) -> tuple[int, int, str]:
    """Count to a number with a checkpoint for each; return where this attempt began."""
    import os
    import pathlib
    import time

    rank = os.environ["RANK"]
    pathlib.Path(pids, f"{rank}-{os.environ['HYPERPLANE_RESTART_COUNT']}").write_text(
        str(os.getpid())
    )
    file = pathlib.Path(os.environ["HYPERPLANE_CHECKPOINTS"], rank)
    began = number = int(file.read_text()) if file.exists() else 0
    while number < checkpoints_end:
        part = file.with_suffix(".part")
        part.write_text(str(number + 1))
        part.replace(file)
        time.sleep(0.1)
        number += 1
        if os.environ["HYPERPLANE_RESTART_COUNT"] == "0":  # not at its end before it is killed
            number = min(number, checkpoints_end - 10)
    return began, checkpoints_end, os.environ["TORCHELASTIC_RESTART_COUNT"]


def count_together(end: int) -> dict[str, Any]:
    """Count to a number; the ranks exchange each one, and rank 0 writes a checkpoint."""
    import os
    import pathlib
    import socket
    import time

    rank, folder = int(os.environ["RANK"]), pathlib.Path(os.environ["HYPERPLANE_CHECKPOINTS"])
    restarts = os.environ["HYPERPLANE_RESTART_COUNT"]
    file = folder / "state"
    began = number = int(file.read_text()) if file.exists() else 0
    (folder / f"pid-{rank}-{restarts}.new").write_text(str(os.getpid()))
    (folder / f"pid-{rank}-{restarts}.new").rename(folder / f"pid-{rank}-{restarts}")
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        server = socket.create_server(("", address[1]))
        connection = server.accept()[0]
    else:
        while True:
            try:
                connection = socket.create_connection(address, 5)
                break
            except OSError:
                time.sleep(0.05)
        connection.settimeout(None)
    own = connection.getsockname()[0]
    while number < end:
        connection.sendall(b"x")
        if not connection.recv(1):
            raise RuntimeError("the other rank has closed the connection")
        if rank == 0:
            file.with_suffix(".new").write_text(str(number + 1))
            file.with_suffix(".new").rename(file)
        print(f"number {number} on {own}", flush=True)  # noqa: T201
        time.sleep(0.1)
        number += 1
        if restarts == "0":  # not at its end before a process is killed
            number = min(number, end - 10)
    return {"began": began, "restarts": restarts, "host": own}
