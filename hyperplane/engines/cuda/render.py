"""The same cluster on several machines, as a script around dask-cuda's own worker command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, cast

from hyperplane.engines.dask_settings import drop_overridden
from hyperplane.engines.remote_process import as_variables, server_settings, worker_variables
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import CudaSettings
from hyperplane.spec.worker import WorkerSpec
from hyperplane.units import plural

SCRIPT = """\
#!/usr/bin/env bash
# Cluster {name}: {machines}, each with {layout}.
# Run it with "scheduler" on one machine that the others reach, then with "worker" on each machine
# with GPUs. Whoever has the key can run code on all of them: keep it readable by its owner only.
set -euo pipefail
: "${{TLS_CA:?file of the certificate of the authority}}"
: "${{TLS_CERT:?file of the certificate of all processes of the cluster}}"
: "${{TLS_KEY:?file of the key of that certificate}}"
tls=(--tls-ca-file "$TLS_CA" --tls-cert "$TLS_CERT" --tls-key "$TLS_KEY")

{exports}

case "${{1:-}}" in
scheduler)
  exec dask scheduler "${{tls[@]}}" \\
    {scheduler}
  ;;
worker)
  : "${{SCHEDULER:?address of the scheduler, such as tls://10.0.0.1:8786}}"
  # One worker process runs on each of these.
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
    """The script; nothing is contacted.

    Parameters
    ----------
    plan : ClusterPlan
        Its nodes are machines here.
    worker : WorkerSpec
        The layout of a machine, with one process on each GPU.
    """
    settings = cast(CudaSettings, plan.settings)
    return SCRIPT.format(
        name=plan.name,
        machines=plural(plan.nodes, "machine"),
        layout=worker,
        exports="\n".join(_exports(plan, settings)),
        scheduler=_lines(_scheduler_options(plan, settings)),
        gpus=",".join(str(number) for number in range(worker.nprocs)),
        worker=_lines(_worker_options(plan, worker, settings)),
    )


def _exports(plan: ClusterPlan, settings: CudaSettings) -> list[str]:
    """Settings and variables of all processes; a restarted worker has them, too."""
    ours = {
        "dataframe.backend": settings.dataframe_backend,
        "distributed.comm.require-encryption": True,
    }
    # Any: it reads the two patiences only, which these settings have as well.
    dask_settings = {**server_settings(plan, cast(Any, settings)), **drop_overridden(ours)}
    # dask-cuda says so to the workers only; what they send moves between CPU and GPU as well.
    spill = {"CUDF_SPILL": "on"} if settings.enable_cudf_spill else {}
    variables = {**as_variables(dask_settings), **worker_variables(plan), **spill}
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _lines(options: Mapping[str, str | None]) -> str:
    """Options of a command, one a line; None is an option without a value."""
    return " \\\n    ".join(
        f"--{name}" if value is None else f"--{name} {shlex.quote(value)}"
        for name, value in options.items()
    )


def _scheduler_options(plan: ClusterPlan, settings: CudaSettings) -> dict[str, str | None]:
    found: dict[str, str | None] = {
        "protocol": "tls",
        "port": "8786",
        # Its pages are not encrypted and ask for no key: ssh -L leads to them.
        "dashboard-address": f"127.0.0.1:{plan.dashboard_port or 8787}",
    }
    if plan.idle_timeout is not None:
        found["idle-timeout"] = f"{plan.idle_timeout:g}s"
    return found


def _worker_options(
    plan: ClusterPlan, worker: WorkerSpec, settings: CudaSettings
) -> dict[str, str | None]:
    limit = settings.device_memory_limit
    found: dict[str, str | None] = {
        "protocol": "tls",
        "nthreads": str(worker.nthreads),
        "memory-limit": str(worker.ram_per_proc),
        # To dask-cuda a number with a point is a part of the GPU, and 0 is no limit.
        "device-memory-limit": str(0 if limit is None else limit),
        "dashboard-address": "127.0.0.1:0",
        "death-timeout": f"{plan.request.timeout:g}s",
    }
    if settings.pool is not None:
        found["rmm-pool-size"] = str(settings.pool)
    if settings.rmm_async:
        found["rmm-async"] = None
    if settings.rmm_libraries:
        found["set-rmm-allocator-for-libs"] = ",".join(settings.rmm_libraries)
    if settings.enable_cudf_spill:
        found["enable-cudf-spill"] = None
    if settings.local_directory:
        found["local-directory"] = settings.local_directory
    return found
