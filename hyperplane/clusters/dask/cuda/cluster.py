"""Subclasses of dask-cuda's LocalCUDACluster and of Dask's Nanny for GPU workers.

They are needed because dask-cuda sets the ``config`` and the environment of its nannies itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from dask_cuda import LocalCUDACluster
from distributed.core import Status

from hyperplane.clusters.dask.local.cluster import GuardedLocalCluster, GuardedNanny


class CudaNanny(GuardedNanny):
    """Nanny of one GPU's worker process, which is spawned: CUDA contexts do not survive a fork.

    Parameters
    ----------
    settings : mapping
        Dotted Dask settings of the worker and of the nanny itself.
    config : mapping
        Settings that dask-cuda passes; `settings` has priority.
    **kwargs
        Arguments of Nanny.
    """

    def __init__(
        self, *args: Any, settings: Mapping[str, Any], config: Mapping[str, Any], **kwargs: Any
    ) -> None:
        super().__init__(*args, config={**config, **settings}, forked=False, **kwargs)

    async def close(  # type: ignore[override]
        self, timeout: float = 5, reason: str = "nanny-close"
    ) -> Literal["OK"]:
        """Close, and kill a worker process that is still starting: it may hold GPU memory."""
        process = getattr(self.process, "process", None)
        try:
            return await super().close(timeout=timeout, reason=reason)
        finally:
            with suppress(ValueError):  # Dask has already closed the process object
                if process is not None and process.is_alive():
                    await process.kill()
                    await process.join(timeout)


class _StartedCUDACluster(LocalCUDACluster):  # type: ignore[misc]
    """LocalCUDACluster whose constructor closes it and raises if a worker fails to start.

    Dask closes a cluster if its constructor fails. dask-cuda starts the workers after that, in two
    calls, and loses the exceptions of the first.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._starting = True
        self._start_error: Exception | None = None
        try:
            super().__init__(**kwargs)
            if self._start_error is not None:
                raise self._start_error
        except Exception:
            if getattr(self, "status", None) == Status.running:
                with suppress(Exception):  # the caller needs the first error
                    self.close()
            raise
        self._starting = False

    async def _correct_state_internal(self) -> None:
        try:
            await super()._correct_state_internal()
        except Exception as error:
            if not self._starting:
                raise
            self._start_error = self._start_error or error


class GuardedCudaCluster(GuardedLocalCluster, _StartedCUDACluster):
    """LocalCUDACluster with idle timeout, busy-worker guard and complete cleanup.

    Parameters
    ----------
    environ : mapping of str to str
        Environment variables of the worker processes in addition to ``CUDA_VISIBLE_DEVICES``.
    **kwargs
        Arguments of GuardedLocalCluster and LocalCUDACluster.
    """

    def __init__(self, *, environ: Mapping[str, str], **kwargs: Any) -> None:
        self._environ = environ
        super().__init__(**kwargs)

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        """Return the specification of the next worker, with our environment variables added."""
        spec: dict[Any, dict[str, Any]] = super().new_worker_spec()
        for worker in spec.values():
            options = worker["options"]
            options["env"] = {**self._environ, **options["env"]}
        return spec
