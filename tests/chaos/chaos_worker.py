"""Worker and scheduler preload of the chaos tests: proxied connections, and a clock that jumps.

It writes the ID of its process into the folder ``chaos.folder`` of Dask's configuration, under the
name of the worker, and reads from there by how many seconds its clock is wrong.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import dask.config

_real_time = time.time
#: Clocks in the file of clocks; the last one is the owner's.
CLOCKS = 64
_SIZE = 8


def create_clocks(folder: Path) -> None:
    """Create the file of clocks, all right."""
    (folder / "clocks").write_bytes(bytes(_SIZE * CLOCKS))


def set_clock(folder: Path, number: int, offset: float) -> None:
    """Let the clock of a process jump by some seconds."""
    with (folder / "clocks").open("r+b") as file:
        file.seek(_SIZE * number)
        file.write(struct.pack("d", offset))


def clock_number(name: str) -> int:
    """Return the number of a worker's clock."""
    return sum(name.encode()) % (CLOCKS - 1)


def follow_clock(folder: Path, number: int) -> None:
    """Replace the clock in all modules of this process."""
    with (folder / "clocks").open("rb") as file:
        clocks = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def skewed_time() -> float:
        return _real_time() + struct.unpack_from("d", clocks, _SIZE * number)[0]

    for name, module in sys.modules.copy().items():
        if name.startswith(("distributed", "dask", "hyperplane", "time")):
            for key, value in list(vars(module).items()):
                if value is _real_time and module is not sys.modules[__name__]:
                    setattr(module, key, skewed_time)


def _connect_through_proxy(name: str, host: str, port: int) -> None:
    from distributed.comm.tcp import BaseTCPConnector
    from tornado.iostream import StreamClosedError

    client = BaseTCPConnector.client
    if hasattr(client, "chaos_name"):  # each process has one worker
        client.chaos_name = name  # type: ignore[attr-defined]
        return
    client.chaos_name = name  # type: ignore[attr-defined]
    connect = client.connect

    async def connect_to_proxy(
        to: str, to_port: int, ssl_options: Any = None, **options: Any
    ) -> Any:
        try:
            stream = await connect(host, port, **options)
        except StreamClosedError:  # the proxy has ended with its owner; the nanny has not
            return await connect(to, to_port, ssl_options=ssl_options, **options)
        await stream.write(f"{client.chaos_name} {to} {to_port}\n".encode())  # type: ignore[attr-defined]
        if ssl_options is None:
            return stream
        return await stream.start_tls(False, ssl_options=ssl_options, server_hostname=to)

    client.connect = connect_to_proxy  # type: ignore[method-assign]


def _write(folder: Path, name: str) -> None:
    draft = folder / f".{name}"
    draft.write_text(str(os.getpid()))
    draft.replace(folder / "pids" / name)


def dask_setup(server: Any) -> None:
    """Prepare this process; Dask calls it for each worker, and for a scheduler."""
    folder = Path(dask.config.get("chaos.folder"))
    name = str(getattr(server, "name", ""))
    if not hasattr(server, "nthreads") and not hasattr(server, "state"):
        _write(folder, "scheduler")
        return
    _write(folder, name)
    _connect_through_proxy(name, *dask.config.get("chaos.proxy"))
    follow_clock(folder, clock_number(name))
