"""Render a plan as a script that starts its cluster on several machines with dask-cuda."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, cast

from hyperplane.clusters.dask.remote_process import as_variables, server_settings, worker_variables
from hyperplane.clusters.dask.settings import drop_overridden
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import CudaSettings
from hyperplane.spec.worker import WorkerSpec

SCRIPT = """\
#!/usr/bin/env bash
# Cluster {name}: {machines}, each with {layout}.
# Run it with "scheduler" on one machine that the others can reach, then with "worker" on each
# machine with GPUs. The key permits running code on all of them: only its owner should read it.
set -euo pipefail
: "${{TLS_CA:?file with the certificate of the authority}}"
: "${{TLS_CERT:?file with the certificate of all processes of the cluster}}"
: "${{TLS_KEY:?file with the key of that certificate}}"
tls=(--tls-ca-file "$TLS_CA" --tls-cert "$TLS_CERT" --tls-key "$TLS_KEY")

{exports}

case "${{1:-}}" in
scheduler)
  exec dask scheduler "${{tls[@]}}" \\
    {scheduler}
  ;;
worker)
  : "${{SCHEDULER:?address of the scheduler, such as tls://10.0.0.1:8786}}"
  # One worker process runs on each of these GPUs.
  export CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES:-{gpus}}}"
  exec dask cuda worker "$SCHEDULER" "${{tls[@]}}" \\
    {worker}
  ;;
*)
  echo "usage: $0 scheduler|worker" >&2
  exit 2
  ;;
esac
"""


def render(plan: ClusterPlan, worker: WorkerSpec) -> str:
    """Return the script, in which each node of the plan is a machine with layout `worker`."""
    settings = cast(CudaSettings, plan.settings)
    return SCRIPT.format(
        name=plan.name,
        machines=plural(plan.nodes, "machine"),
        layout=worker,
        exports="\n".join(_export_lines(plan, settings)),
        scheduler=_join_options(_scheduler_options(plan, settings)),
        gpus=",".join(str(number) for number in range(worker.nprocs)),
        worker=_join_options(_worker_options(plan, worker, settings)),
    )


def _export_lines(plan: ClusterPlan, settings: CudaSettings) -> list[str]:
    """Return ``export`` lines with the settings and variables of all processes."""
    ours = {
        "dataframe.backend": settings.dataframe_backend,
        "distributed.comm.require-encryption": True,
    }
    dask_settings = {**server_settings(plan, cast(Any, settings)), **drop_overridden(ours)}
    # dask-cuda sets CUDF_SPILL for workers only, but other processes also move data from GPUs.
    spill = {"CUDF_SPILL": "on"} if settings.enable_cudf_spill else {}
    variables = {**as_variables(dask_settings), **worker_variables(plan), **spill}
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _join_options(options: Mapping[str, str | None]) -> str:
    """Return the options of a command, one per line; None marks an option without a value."""
    return " \\\n    ".join(
        f"--{name}" if value is None else f"--{name} {shlex.quote(value)}"
        for name, value in options.items()
    )


def _scheduler_options(plan: ClusterPlan, settings: CudaSettings) -> dict[str, str | None]:
    options: dict[str, str | None] = {
        "protocol": "tls",
        "port": "8786",
        # On loopback, because the pages have neither encryption nor authentication; use ssh -L.
        "dashboard-address": f"127.0.0.1:{plan.dashboard_port or 8787}",
    }
    if plan.idle_timeout is not None:
        options["idle-timeout"] = f"{plan.idle_timeout:g}s"
    return options


def _worker_options(
    plan: ClusterPlan, worker: WorkerSpec, settings: CudaSettings
) -> dict[str, str | None]:
    limit = settings.device_memory_limit
    options: dict[str, str | None] = {
        "protocol": "tls",
        "nthreads": str(worker.nthreads),
        "memory-limit": str(worker.ram_per_proc),
        # dask-cuda reads a float as a fraction of the GPU's memory, and 0 as no limit.
        "device-memory-limit": str(0 if limit is None else limit),
        "dashboard-address": "127.0.0.1:0",
        "death-timeout": f"{plan.request.timeout:g}s",
    }
    if settings.pool is not None:
        options["rmm-pool-size"] = str(settings.pool)
    if settings.rmm_async:
        options["rmm-async"] = None
    if settings.rmm_libraries:
        options["set-rmm-allocator-for-libs"] = ",".join(settings.rmm_libraries)
    if settings.enable_cudf_spill:
        options["enable-cudf-spill"] = None
    if settings.local_directory:
        options["local-directory"] = settings.local_directory
    return options
