"""The section of a plan for Dask, from a request and the configuration."""

from __future__ import annotations

from hyperplane import config, config_memory
from hyperplane.clusters.dask.settings import user_settings
from hyperplane.clusters.framework import OptionsDraft
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.tuning import Tuning
from hyperplane.spec.worker import WorkerSpec


def draft_options(request: ClusterRequest) -> OptionsDraft:
    """Return the memory policy and the tuning of a request, with notes on the policy.

    Raises
    ------
    RequestError
        When there is no tuning profile of the requested name.
    ConfigError
        When the configured memory policy or the profiles are invalid.
    """
    asked = request.memory
    with user_settings():
        memory = config.memory_policy() if asked is None else asked
        from_dask = config_memory.note_dask_thresholds() if asked is None else ""
        overridden = config_memory.note_overridden_thresholds(asked)
    name, profile = config.tuning().find(request.tuning)

    def for_layout(worker: WorkerSpec, nodes: int) -> DaskOptions:
        processes = nodes * worker.nprocs
        tuning = Tuning.of(name, profile, processes=processes, nthreads=worker.nthreads)
        return DaskOptions(memory, tuning)

    return OptionsDraft(
        for_layout, tuple(filter(None, [from_dask])), tuple(filter(None, [overridden]))
    )
