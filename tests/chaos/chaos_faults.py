"""Make the faults of a schedule happen to a running cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import chaos_worker
import psutil
from chaos_proxy import WorkerProxy
from chaos_schedule import PlannedFault
from distributed.diagnostics.plugin import SchedulerPlugin

#: Seconds to wait for the moment of a fault that a job never reaches.
LONGEST_WAIT = 30.0


class FinishedTasks(SchedulerPlugin):
    """Scheduler plugin that counts finished tasks."""

    name = "chaos-finished-tasks"

    def __init__(self) -> None:
        self.count = 0
        self.changed = threading.Condition()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task whose result is in memory."""
        if start == "processing" and finish == "memory":
            with self.changed:
                self.count += 1
                self.changed.notify_all()


class FaultInjector:
    """Makes faults happen in threads while a job runs.

    Parameters
    ----------
    client, cluster
        The cluster.
    folder : Path
        Folder of ``chaos_worker.py``.
    proxy : WorkerProxy
        Proxy of all workers.
    disk : Path or None
        A folder on a small file system that holds the workers' files.
    workers : int
        Number of worker processes.
    """

    def __init__(
        self,
        client: Any,
        cluster: Any,
        folder: Path,
        proxy: WorkerProxy,
        disk: Path | None,
        workers: int,
    ) -> None:
        self.client, self.cluster, self.folder = client, cluster, folder
        self.proxy, self.disk, self.workers = proxy, disk, workers
        self.finished = FinishedTasks()
        #: One line for each fault that happened.
        self.happened: list[str] = []
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._to_undo: list[Callable[[], None]] = []
        self._stopped: set[int] = set()

    def begin(self, faults: tuple[PlannedFault, ...], tasks: int, seconds: float) -> None:
        """Wait for the moments of faults in threads; ``tasks`` of 0 counts seconds instead."""
        self.finished.count = 0
        began = time.monotonic()
        for fault in faults:
            thread = threading.Thread(
                target=self._run, args=(fault, tasks, seconds, began), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """End all faults: nothing is stopped, cut or full afterwards."""
        self._over.set()
        with self.finished.changed:
            self.finished.changed.notify_all()
        for thread in self._threads:
            thread.join()
        for undo in self._to_undo:
            undo()
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _run(self, fault: PlannedFault, tasks: int, seconds: float, began: float) -> None:
        if tasks:
            with self.finished.changed:
                self.finished.changed.wait_for(
                    lambda: self._over.is_set() or self.finished.count >= fault.moment * tasks,
                    LONGEST_WAIT,
                )
        else:
            self._over.wait(max(0.0, began + fault.moment * seconds - time.monotonic()))
        if self._over.is_set():
            return
        at = f"{fault.kind} after {time.monotonic() - began:.1f} s, {self.finished.count} tasks"
        self.happened.append(at)
        try:
            getattr(self, "_" + fault.kind.replace(" ", "_"))(fault)
        except Exception as error:  # noqa: BLE001 - a fault that meets another may fail
            self.happened[self.happened.index(at)] += f", which failed: {error!r}"

    def _wait(self, seconds: float) -> None:
        self._over.wait(seconds)

    def _pids(self) -> dict[str, int]:
        """Return the running worker processes by name."""
        found = {}
        for file in sorted((self.folder / "pids").iterdir()):
            if file.name != "scheduler":
                with suppress(psutil.Error):
                    process = psutil.Process(int(file.read_text()))
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found[file.name] = process.pid
        return found

    def _choose(self, fault: PlannedFault) -> tuple[str, int]:
        pids = self._pids()
        return sorted(pids.items())[fault.victim % len(pids)]

    def _kill_worker(self, fault: PlannedFault) -> None:
        os.kill(self._choose(fault)[1], signal.SIGKILL)

    def _terminate_worker(self, fault: PlannedFault) -> None:
        os.kill(self._choose(fault)[1], signal.SIGTERM)

    def _kill_all_workers(self, fault: PlannedFault) -> None:
        for pid in self._pids().values():
            os.kill(pid, signal.SIGKILL)

    def _stop_worker(self, fault: PlannedFault) -> None:
        pid = self._choose(fault)[1]
        os.kill(pid, signal.SIGSTOP)
        self._wait(fault.seconds)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _freeze_worker(self, fault: PlannedFault) -> None:
        pid = self._choose(fault)[1]
        self._stopped.add(pid)
        os.kill(pid, signal.SIGSTOP)

    def _drop_connections(self, fault: PlannedFault) -> None:
        self.proxy.drop(self._choose(fault)[0])

    def _with_link(self, fault: PlannedFault, **state: Any) -> None:
        name = self._choose(fault)[0]
        self.proxy.set_link(name, **state)
        self._wait(fault.seconds)
        self.proxy.heal(name)

    def _delay_connections(self, fault: PlannedFault) -> None:
        self._with_link(fault, delay=fault.amount)

    def _slow_connections(self, fault: PlannedFault) -> None:
        self._with_link(fault, bytes_per_second=fault.amount)

    def _cut_connections(self, fault: PlannedFault) -> None:
        self._with_link(fault, is_cut=True)

    def _skew_worker_clock(self, fault: PlannedFault) -> None:
        number = chaos_worker.clock_number(self._choose(fault)[0])
        chaos_worker.set_clock(self.folder, number, fault.amount)
        self._to_undo.append(lambda: chaos_worker.set_clock(self.folder, number, 0.0))

    def _skew_owner_clock(self, fault: PlannedFault) -> None:
        number = chaos_worker.CLOCKS - 1
        chaos_worker.set_clock(self.folder, number, fault.amount)
        self._to_undo.append(lambda: chaos_worker.set_clock(self.folder, number, 0.0))

    def _fill_disk(self, fault: PlannedFault) -> None:
        if self.disk is None:
            raise RuntimeError("a small file system needs root")
        filler = self.disk / "filler"
        self._to_undo.append(lambda: filler.unlink(missing_ok=True))
        # At the end of the run, or after some seconds.
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        self._wait(fault.seconds)
        filler.unlink(missing_ok=True)

    def _restart(self, fault: PlannedFault) -> None:
        self.client.restart(timeout=60)

    def _scale_down(self, fault: PlannedFault) -> None:
        self.cluster.scale(1)

    def _scale_up_and_down(self, fault: PlannedFault) -> None:
        self.cluster.scale(self.workers + 1)
        self._wait(fault.seconds)
        self.cluster.scale(1)

    def _stop_owner(self, fault: PlannedFault) -> None:
        command = f"sleep {fault.seconds}; kill -CONT {os.getpid()}"
        with subprocess.Popen(["sh", "-c", command]):
            os.kill(os.getpid(), signal.SIGSTOP)

    def _close_cluster(self, fault: PlannedFault) -> None:
        self.cluster.close()

    def _end_scheduler(self, fault: PlannedFault) -> None:
        scheduler = self.cluster.scheduler
        scheduler.loop.asyncio_loop.call_soon_threadsafe(
            lambda: scheduler.loop.asyncio_loop.create_task(scheduler.close())
        )

    def _kill_scheduler(self, fault: PlannedFault) -> None:
        os.kill(int((self.folder / "pids" / "scheduler").read_text()), signal.SIGKILL)

    def _kill_owner(self, fault: PlannedFault) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _kill_forkserver(self, fault: PlannedFault) -> None:
        from multiprocessing import forkserver

        os.kill(vars(forkserver._forkserver)["_forkserver_pid"], signal.SIGKILL)  # type: ignore[attr-defined]
