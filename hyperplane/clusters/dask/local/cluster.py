"""Subclasses of Dask's LocalCluster and Nanny that apply the settings of one cluster.

Dask reads some settings in this process while it works, for example the nanny's ``terminate`` when
it builds a nanny and the start method when it starts a worker process.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import MappingProxyType
from typing import Any, Literal

import dask.config
import psutil
from distributed import LocalCluster, Nanny
from distributed.core import Status
from distributed.node import ServerNode

from hyperplane.clusters import records
from hyperplane.clusters.dask.guarded_cluster import GuardedCluster
from hyperplane.clusters.dask.local import forkserver
from hyperplane.clusters.dask.local.process_state import WorkerEnvironment
from hyperplane.clusters.dask.settings import (
    changed_settings,
    in_force,
    restore_client_settings,
    snapshot,
)
from hyperplane.core.dask_internals.connection_pools import allow_repeated_cancels
from hyperplane.core.dask_internals.start_methods import keep_forkserver_modules

#: Seconds to wait for a process whose start was cancelled: until it exists, and until it has ended.
END_SECONDS = 20.0
#: Seconds to wait for a process that a nanny or a thread may still create.
CREATION_SECONDS = 5.0

_forking = 0
_forking_lock = threading.Lock()
_forking_settings = ExitStack()


@contextmanager
def _use_forkserver() -> Iterator[None]:
    """Set Dask's start method to "forkserver" while any worker is starting.

    Starts overlap because they await: the first one sets it and the last one restores it.
    """
    global _forking
    with _forking_lock:
        _forking += 1
        if _forking == 1:
            setting = {"distributed.worker.multiprocessing-method": "forkserver"}
            _forking_settings.enter_context(dask.config.set(setting))
            _forking_settings.enter_context(keep_forkserver_modules())
    try:
        yield
    finally:
        with _forking_lock:
            _forking -= 1
            if not _forking:
                _forking_settings.close()


class GuardedNanny(Nanny):
    """Nanny whose worker keeps its settings through every restart.

    Parameters
    ----------
    config : mapping
        Dotted Dask settings of the worker and of the nanny itself.
    forked : bool
        Whether worker processes are forked from the forkserver.
    main : mapping, optional
        From :func:`main_module.spawn_preparation`; empty if workers do not run the main module.
    **kwargs
        Arguments of Nanny.
    """

    def __init__(
        self,
        *args: Any,
        config: Mapping[str, Any],
        forked: bool,
        main: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        self._settings = dict(config)
        with in_force(self._settings):
            # A copy, because Dask's own snapshot shares nested sections with its configuration.
            self._configuration = kwargs["config"] = snapshot()
            super().__init__(*args, **kwargs)
        allow_repeated_cancels(self)
        self._forked = forked
        if forked:
            # Dask plugins such as Environ change ``env``, and a restart reads it again.
            self.env = WorkerEnvironment(self.env, main)
            # Dask would write these variables into this process before it spawns a worker; the
            # forkserver has them already.
            self.pre_spawn_env = {}

    async def instantiate(self) -> Status:
        """Start the worker process, from the forkserver if the nanny uses it."""
        self._update_configuration()
        if not self._forked:
            return await super().instantiate()
        forkserver.restart_if_ended()
        with _use_forkserver():
            return await super().instantiate()

    def _update_configuration(self) -> None:
        """Apply settings that the program has changed since the last start to the next worker."""
        with in_force(self._settings):
            current = snapshot()
        changed = changed_settings(self._configuration, current)
        self._configuration = current
        if changed:
            dask.config.update(self.config, changed)
            if self.process is not None:
                dask.config.update(self.process.config, changed)

    async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
        """End the worker process, also one whose start was cancelled by a time-out, or hangs.

        Dask's method raises in the first case and leaves the process, which a thread may still
        create. In the second case it waits for the start, as long as ``death_timeout``.
        """
        worker = self.process
        if worker is not None and worker.status == Status.starting:
            # Wait until the start has ended; a cancelled start keeps this status. If the nanny
            # closes, a process that is stopped, or whose scheduler has ended, never starts.
            with suppress(TimeoutError):
                is_closing = self.status == Status.closing
                await asyncio.wait_for(worker.running.wait(), timeout if is_closing else None)
        if worker is None or worker.process is None or worker.status != Status.starting:
            return await super().kill(timeout=timeout, reason=reason)
        process, hangs = worker.process, not worker.running.is_set()
        with suppress(AttributeError):  # of multiprocessing, if the process was not created
            # The thread that creates the process handles the request after that.
            await asyncio.wait_for(process.kill(), END_SECONDS)
        if process.pid is not None:
            await asyncio.wait_for(worker.stopped.wait(), END_SECONDS)
            if hangs:  # a start that has not ended is cancelled with a logged error
                await asyncio.wait_for(worker.running.wait(), END_SECONDS)

    def close_gracefully(self, reason: str = "nanny-close-gracefully") -> None:
        """Start no worker process again, unless the nanny is closing already.

        Its worker requests this when it ends. Dask's method replaces the status "closing", so that
        the end of the worker closes the nanny a second time. The first one then cancels the second
        one, which logs an error.
        """
        if self.status not in (Status.closing, Status.closed):
            super().close_gracefully(reason)

    async def close(  # type: ignore[override]
        self, timeout: float = 5, reason: str = "nanny-close"
    ) -> Literal["OK"]:
        """Close the nanny, also when its worker process never started.

        A stopped forkserver does not report that a worker process has ended; such a worker counts
        as ended when the operating system says so.

        Before distributed 2026.8 a nanny whose worker failed to start could fail to close and stay
        half closed, and a second close() waited forever.
        """
        pid = self.pid if self._forked else None
        try:
            return await super().close(timeout=timeout, reason=reason)
        except Exception as error:
            if self.status == Status.closing:
                self.process = None
                self.status = Status.closed
                await ServerNode.close(self)
            if pid and isinstance(error, TimeoutError) and forkserver.check_worker_ended(pid):
                return "OK"
            raise


class GuardedLocalCluster(GuardedCluster, LocalCluster):
    """LocalCluster with idle timeout, busy-worker guard and complete cleanup.

    Parameters
    ----------
    import_meanwhile : sequence of str
        Modules to import in this process while the worker processes start.
    **kwargs
        Arguments of GuardedCluster and LocalCluster.
    """

    nannies_are_here = True
    end_workers_seconds = 60.0

    def __init__(self, *, import_meanwhile: Sequence[str], **kwargs: Any) -> None:
        self._import_meanwhile = import_meanwhile
        super().__init__(**kwargs)
        self._importing.join(self._remaining())

    def kill_workers(self) -> None:
        """Kill worker processes, also those that threads create within some seconds."""
        for nanny in list(self._created):
            nanny.close_gracefully("failed-start")  # it starts no process again
        deadline = time.monotonic() + CREATION_SECONDS
        while True:
            processes = [getattr(nanny.process, "process", None) for nanny in list(self._created)]
            for process in processes:
                if process is not None and process.is_alive():
                    with suppress(psutil.Error):
                        psutil.Process(process.pid).kill()
            pending = any(each is not None and each.pid is None for each in processes)
            if not pending or time.monotonic() > deadline:
                return
            time.sleep(0.1)

    async def end_workers(self) -> None:
        """Kill worker processes that are still starting instead of waiting for them."""
        nannies = list(self._created)
        starts = asyncio.gather(*(nanny.start() for nanny in nannies), return_exceptions=True)
        seen = time.monotonic()
        # Repeatedly, because a process may appear after a check and then hang in its start.
        while not starts.done() and time.monotonic() - seen < CREATION_SECONDS:
            for nanny in nannies:
                process = getattr(nanny.process, "process", None)
                if process is None:
                    continue
                seen = time.monotonic()
                if process.is_alive():
                    with suppress(ValueError):  # it has ended meanwhile
                        await process.kill()
            await asyncio.wait([starts], timeout=0.1)
        await super().end_workers()

    async def _start(self) -> None:
        await super()._start()
        # After the scheduler has started: from here on this process only waits for workers.
        self._importing = _import_in_background(self._import_meanwhile)


def release_local_cluster(name: str, scratch: str, uses_forkserver: bool) -> None:
    """Release the forkserver, client settings, record and scratch folder of a cluster."""
    restore_client_settings(name)
    try:
        if uses_forkserver:
            forkserver.release()
    finally:
        records.remove(name, scratch)


def _import_in_background(modules: Sequence[str]) -> threading.Thread:
    """Import the modules that the program needs next, in a thread while the workers start."""

    def load() -> None:
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="hyperplane-import", daemon=True)
    thread.start()
    return thread
