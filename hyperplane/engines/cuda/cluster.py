"""dask-cuda's LocalCUDACluster with this package's guards.

Subclasses, because dask-cuda sets the ``config`` and the variables of its nannies itself. Nothing
else about them differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from dask_cuda import LocalCUDACluster
from distributed.core import Status

from hyperplane.engines.local.cluster import GuardedLocalCluster, GuardedNanny


class CudaNanny(GuardedNanny):
    """A nanny of one GPU's worker process, which is spawned: a CUDA context does not survive fork.

    Parameters
    ----------
    guard : mapping
        Dotted Dask settings of the worker and of the nanny itself.
    config : mapping
        Those that dask-cuda sets.
    **kwargs
        As for Nanny.
    """

    def __init__(
        self, *args: Any, guard: Mapping[str, Any], config: Mapping[str, Any], **kwargs: Any
    ) -> None:
        super().__init__(*args, config={**config, **guard}, forked=False, **kwargs)

    async def close(  # type: ignore[override]
        self, timeout: float = 5, reason: str = "nanny-close"
    ) -> Literal["OK"]:
        """Close, and end a worker process that is still on its way: it may hold a GPU's memory."""
        process = getattr(self.process, "process", None)
        try:
            return await super().close(timeout=timeout, reason=reason)
        finally:
            with suppress(ValueError):  # Dask has waited for its end and let go of it
                if process is not None and process.is_alive():
                    await process.kill()
                    await process.join(timeout)


class _StartedCUDACluster(LocalCUDACluster):  # type: ignore[misc]
    """A LocalCUDACluster that is there with all its workers, or raises and is closed.

    Dask closes a cluster whose own start fails. dask-cuda starts the workers after that, twice in
    a row, and hears nothing of those that the first of the two could not start.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._starting = True
        self._failed: Exception | None = None
        try:
            super().__init__(**kwargs)
            if self._failed is not None:
                raise self._failed
        except Exception:
            if getattr(self, "status", None) == Status.running:
                with suppress(Exception):  # what matters to the caller is the first error
                    self.close()
            raise
        self._starting = False

    async def _correct_state_internal(self) -> None:
        try:
            await super()._correct_state_internal()
        except Exception as error:
            if not self._starting:
                raise
            self._failed = self._failed or error


class GuardedCudaCluster(GuardedLocalCluster, _StartedCUDACluster):
    """A LocalCUDACluster that leaves nothing behind.

    Parameters
    ----------
    environ : mapping of str to str
        Variables of the worker processes, beside ``CUDA_VISIBLE_DEVICES``.
    **kwargs
        As for GuardedCluster and LocalCUDACluster.
    """

    def __init__(self, *, environ: Mapping[str, str], **kwargs: Any) -> None:
        self._environ = environ
        super().__init__(**kwargs)

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        """The next worker, with dask-cuda's variables and ours."""
        spec: dict[Any, dict[str, Any]] = super().new_worker_spec()
        for worker in spec.values():
            options = worker["options"]
            options["env"] = {**self._environ, **options["env"]}
        return spec
